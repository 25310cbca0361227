"""Links to files outside of the site become the file's name.

On a code host `[all runs](../benchmarks/results/front.csv)` leads to the file. A site
of static pages does not have it and cannot know where the reader's copy is, so the page
says what the file is called.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]+)\)")


def without_outside_links(text: str, page: Path, site: Path) -> str:
    """Return Markdown in which links out of the folder `site` are file names."""

    def name(match: re.Match[str]) -> str:
        words, target = match.groups()
        file = (page.parent / target.partition("#")[0]).resolve()
        if file.is_relative_to(site.resolve()):
            return match[0]
        path = file.relative_to(site.resolve().parent)
        return f"{words} (`{path}`)"

    return LINK.sub(name, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite each page when it is read."""

    def rewrite(app: Sphinx, name: str, source: list[str]) -> None:
        site = Path(app.srcdir)
        source[0] = without_outside_links(source[0], site / f"{name}.md", site)

    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True}
