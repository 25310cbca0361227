"""The site builds without a warning, leads nowhere dead and needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import augmask
from augmask.cli import app
from augmask.table.schema_file import SETTINGS

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[key] for key in ("id", "name") if found.get(key))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]):
            self.loaded.append(found[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    # the folder of caches is not the site
    command += ["-d", str(folder / "cache"), str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_page_of_the_docs_is_on_the_site(site):
    for source in (ROOT / "docs").rglob("*.md"):
        page = source.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / page).exists(), page


def test_no_link_is_dead(site, pages):
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve()
            target = target if parts.path else path
            if not target.is_file():
                dead.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages:
                # "top" and the empty anchor are those of every page
                known = pages[target].anchors | {"top"}
                if unquote(parts.fragment) not in known:
                    dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead, "\n".join(dead)


def test_a_page_loads_nothing_from_elsewhere(site, pages):
    for path, page in pages.items():
        for file in page.loaded:
            assert not urlsplit(file).netloc, f"{path.relative_to(site)} loads {file}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()[\s'\"]*(https?:)?//", sheet.read_text())


def test_every_public_name_is_in_the_reference(pages):
    anchors = set().union(*(page.anchors for page in pages.values()))
    for name in augmask.__all__:
        homes = (f"augmask.{name}", f"augmask.errors.{name}")
        assert any(home in anchors for home in homes), name


def test_every_command_and_option_is_in_the_reference(site):
    text = (site / "reference" / "command-line.html").read_text()
    for command in app.registered_commands:
        assert f"augmask {command.callback.__name__}" in text
    for option in ("--max-minutes", "--where", "--n-draws", "--save-schema"):
        assert option in text


def test_every_setting_of_a_column_is_in_the_reference():
    text = (ROOT / "docs" / "reference" / "data.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(documented) == sorted(SETTINGS.fields)
