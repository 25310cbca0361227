"""HTML tables for objects in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]
) -> str:
    """Return a plain HTML table without scripts or links; every text is escaped.

    Examples
    --------
    >>> html_table("Two & two", ["n"], [[4]])
    '<table><caption>Two &amp; two</caption><thead><tr><th>n</th></tr></thead>\
<tbody><tr><td>4</td></tr></tbody></table>'
    """

    def line(cells: Sequence[object], tag: str) -> str:
        inside = "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{inside}</tr>"

    body = "".join(line(row, "td") for row in rows)
    top = f"<thead>{line(head, 'th')}</thead>" if head else ""
    return (
        f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>"
    )
