"""A Figure becomes a short piece of SVG whose colours the page decides.

Figures are drawn in placeholder colours; here these turn into CSS variables, so one
picture serves light and dark pages. Text stays text and takes the page's font.
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

# Pixels of the page per point of the figure, at most.
LARGEST = 1.75
# Placeholder to the name of a CSS variable. Nothing else may use these colours.
REAL, SYNTHETIC, REMASKED = "#010101", "#020202", "#030303"
INK, FAINT = "#040404", "#050505"
VARIABLES = {
    REAL: "real",
    SYNTHETIC: "synthetic",
    REMASKED: "remasked",
    INK: "ink",
    FAINT: "faint",
}

_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_DROPPED = re.compile(
    r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>", re.DOTALL
)
_OPEN = re.compile(r"<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_GROUP_ID = re.compile(r"<g id=\"[^\"]*\"")
_EMPTY = re.compile(r"<g>\s*</g>|<defs>\s*</defs>|<defs/>")
# A group that says nothing around one element.
_LONE = re.compile(r"<g>\s*(<(?:path|use|text|image)\b[^<]*?(?:/>|</text>))\s*</g>")
_NUMBER = re.compile(r"-?\d+\.\d+")
_GEOMETRY = re.compile(r" (?:d|x|y|width|height|transform|points)=\"[^\"]*\"")
_STYLE = re.compile(r"style=\"([^\"]*)\"")
_NAME = re.compile(r"(\bid=\"|url\(#|href=\"#)(?=[\w-])")
_SPACE = re.compile(r">\s+<")


def _rounded(match: re.Match[str]) -> str:
    # A transform may stretch an image by its numbers, so these need more digits.
    digits = 4 if match[0].startswith(" transform") else 1

    def short(number: re.Match[str]) -> str:
        return f"{float(number[0]):.{digits}f}".rstrip("0").rstrip(".")

    return _NUMBER.sub(short, match[0])


def _styled(match: re.Match[str]) -> str:
    """Return a style without defaults and with the page's colours and font."""
    kept = []
    for part in match[1].split(";"):
        name, _, value = (text.strip() for text in part.partition(":"))
        if not name or (name, value) in _DEFAULTS:
            continue
        if name == "font":
            name, value = "font-size", value.split(" ")[0]
        for colour, variable in VARIABLES.items():
            value = value.replace(colour, f"var(--{variable})")
        kept.append(f"{name}:{value}")
    return f'style="{";".join(kept)}"' if kept else ""


_DEFAULTS = {
    ("stroke-linejoin", "miter"),
    ("stroke-linecap", "butt"),
    ("text-anchor", "start"),
    ("stroke-width", "1"),
}


def _picture(figure: Figure) -> str:
    for text in figure.findobj(Text):
        # A column may be called "$x$"; it is a name, not a formula.
        text.set_parse_math(False)
    stream = io.StringIO()
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "augmask"}
    with warnings.catch_warnings(), rc_context(settings):
        # The browser has glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(
            stream,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return stream.getvalue()


def _opening(box: str, label: str) -> str:
    """Return the tag that opens a picture; it grows until its text is this large."""
    widest = LARGEST * float(box.split()[2])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" '
        f'style="max-width:{widest:.0f}px" aria-label="{escape(label)}">'
    )


def svg(figure: Figure, label: str, name: str) -> str:
    """Return a figure as SVG that can stand inside a page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    label : str
        What a reader who cannot see it should know.
    name : str
        Starts every id inside, so that pictures on one page do not share any.

    Examples
    --------
    >>> figure = Figure(figsize=(2, 1))
    >>> _ = figure.subplots().plot([0, 1], color=SYNTHETIC)
    >>> text = svg(figure, 'a "line"', "p1")
    >>> text.startswith("<svg"), "var(--synthetic)" in text, "&quot;line&quot;" in text
    (True, True, True)
    """
    text = _HEAD.sub("", _picture(figure))
    text = _DROPPED.sub("", text)
    text = _GROUP_ID.sub("<g", text)
    text = _GEOMETRY.sub(_rounded, text)
    text = _STYLE.sub(_styled, text)
    text = _NAME.sub(rf"\g<1>{name}-", text)
    text = text.replace("xlink:href", "href")
    text = _OPEN.sub(lambda opened: _opening(opened[1], label), text, count=1)
    text = _SPACE.sub("><", text)
    for _ in range(4):
        text = _LONE.sub(r"\1", _EMPTY.sub("", text))
    return text.strip()
