"""What all plots share: bare axes, round labels, and heat maps that fade to nothing.

Every plot of the report is a function that returns a `Figure` and touches no global
state, so the same picture can go into a page, a notebook or a paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from augmask.report.svg import FAINT, INK

Floats = npt.NDArray[np.float64]

SMALL = 7.5
# The page's colours in light mode, for pixels, which no CSS variable reaches.
PIXELS = {
    "real": (91, 103, 122),
    "synthetic": (59, 91, 219),
    "remasked": (224, 88, 8),
}


def plain_number(value: float, _: Any = None) -> str:
    """Return a tick label: 12500 is 12.5k.

    Examples
    --------
    >>> plain_number(12500), plain_number(-3e6), plain_number(0.25), plain_number(0)
    ('12.5k', '−3M', '0.25', '0')
    """
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if unit == "k" else limit
            return f"{value / scale:.4g}{unit}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def percent(value: float, _: Any = None) -> str:
    """Return a share as a tick label."""
    return f"{100 * value:.3g}%"


def bare(ax: Axes, *, left: bool = False) -> Axes:
    """Take away all that is not data: frame, ticks, and the left axis unless asked."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(
        bottom=False, left=False, labelsize=SMALL, labelcolor=INK, pad=3, labelleft=left
    )
    ax.margins(0)
    return ax


def number_axis(ax: Axes, dates: bool, n: int = 4) -> None:
    """Label the horizontal axis with a few round numbers or dates."""
    if dates:
        # matplotlib does not say what types these take.
        locate: Any = AutoDateLocator
        write: Any = ConciseDateFormatter
        locator = locate(minticks=2, maxticks=n)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(write(locator, show_offset=False))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(n, steps=[1, 2, 2.5, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(plain_number))


def faded(values: Floats, colour: str, below: str | None = None) -> Any:
    """Return pixels whose opacity is the size of the value, 0 to 1; NaN is clear.

    Negative values take the colour `below`. Opacity in 32 steps keeps the file small.
    """
    size = np.round(np.clip(np.abs(np.nan_to_num(values)), 0, 1) * 31) / 31 * 255
    pixels = np.zeros((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = PIXELS[colour]
    if below is not None:
        pixels[np.nan_to_num(values) < 0, :3] = PIXELS[below]
    pixels[..., 3] = size
    pixels[pixels[..., 3] == 0] = 0
    return pixels


def heat(ax: Axes, pixels: Any, *, flip: bool = False) -> None:
    """Draw pixels as crisp cells that fill the axes."""
    ax.imshow(
        pixels,
        interpolation="none",
        aspect="auto",
        origin="lower" if flip else "upper",
    )


def framed(ax: Axes) -> Axes:
    """Give a heat map a thin frame and no ticks."""
    for spine in ax.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.8)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def canvas(
    width: float, height: float, box: Sequence[float] = (0.0, 0.0, 1.0, 1.0)
) -> tuple[Figure, Axes]:
    """Return a figure in inches and its only axes, placed by left, bottom, size."""
    figure = Figure(figsize=(width, height))
    left, bottom, wide, high = box
    return figure, figure.add_axes((left, bottom, wide, high))
