"""Compact SVG of a matplotlib figure, with the colours and the font of the page.

Figures use placeholder colours, which become CSS variables here, so that one figure
serves light and dark pages. Text stays text.
"""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text

# Most pixels of the page per point of the figure.
MAX_SCALE = 1.75
# Placeholder colours, and the CSS variables that replace them.
REAL, SYNTHETIC, REMASKED = "#010101", "#020202", "#030303"
INK, FAINT = "#040404", "#050505"
NAMES = ("real", "synthetic", "remasked", "ink", "faint")
VARIABLES = dict(zip((REAL, SYNTHETIC, REMASKED, INK, FAINT), NAMES, strict=True))

_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_DROPPED = re.compile(
    r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>", re.DOTALL
)
_OPEN = re.compile(r"<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_GROUP_ID = re.compile(r"<g id=\"[^\"]*\"")
_EMPTY = re.compile(r"<g>\s*</g>|<defs>\s*</defs>|<defs/>")
# A group without attributes around one element.
_LONE = re.compile(r"<g>\s*(<(?:path|use|text|image)\b[^<]*?(?:/>|</text>))\s*</g>")
_NUMBER = re.compile(r"-?\d+\.\d+")
_GEOMETRY = re.compile(r" (?:d|x|y|width|height|transform|points)=\"[^\"]*\"")
_STYLE = re.compile(r"style=\"([^\"]*)\"")
_NAME = re.compile(r"(\bid=\"|url\(#|href=\"#)(?=[\w-])")
_SPACE = re.compile(r">\s+<")
_DEFAULTS = {
    ("stroke-linejoin", "miter"),
    ("stroke-linecap", "butt"),
    ("text-anchor", "start"),
    ("stroke-width", "1"),
}


def _round(match: re.Match[str]) -> str:
    # A transform may scale an image, so it needs more digits.
    digits = 4 if match[0].startswith(" transform") else 1

    def short(number: re.Match[str]) -> str:
        return f"{float(number[0]):.{digits}f}".rstrip("0").rstrip(".")

    return _NUMBER.sub(short, match[0])


def _restyle(match: re.Match[str]) -> str:
    """Return a style attribute without defaults, with the page's colours and font."""
    parts = []
    for part in match[1].split(";"):
        name, _, value = (text.strip() for text in part.partition(":"))
        if not name or (name, value) in _DEFAULTS:
            continue
        if name == "font":
            name, value = "font-size", value.split(" ")[0]
        for colour, variable in VARIABLES.items():
            value = value.replace(colour, f"var(--{variable})")
        parts.append(f"{name}:{value}")
    return f'style="{";".join(parts)}"' if parts else ""


def _savefig(figure: Figure) -> str:
    for text in figure.findobj(Text):
        # "$x$" may be the name of a column.
        text.set_parse_math(False)
    stream = io.StringIO()
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "augmask"}
    with warnings.catch_warnings(), rc_context(settings):
        # The browser has glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(
            stream,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return stream.getvalue()


def svg(figure: Figure, label: str, name: str) -> str:
    """Return a figure as SVG to embed in a page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    label : str
        A description for screen readers.
    name : str
        Prefix of all ids, so that figures on one page do not share any.
    """

    def opening(match: re.Match[str]) -> str:
        width = MAX_SCALE * float(match[1].split()[2])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{match[1]}" role="img" '
            f'style="max-width:{width:.0f}px" aria-label="{escape(label)}">'
        )

    text = _HEAD.sub("", _savefig(figure))
    text = _DROPPED.sub("", text)
    text = _GROUP_ID.sub("<g", text)
    text = _GEOMETRY.sub(_round, text)
    text = _STYLE.sub(_restyle, text)
    text = _NAME.sub(rf"\g<1>{name}-", text)
    text = text.replace("xlink:href", "href")
    text = _OPEN.sub(opening, text, count=1)
    text = _SPACE.sub("><", text)
    for _ in range(4):
        text = _LONE.sub(r"\1", _EMPTY.sub("", text))
    return text.strip()
