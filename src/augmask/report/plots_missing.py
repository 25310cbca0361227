"""Where the holes are, and which come together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from augmask.missing.describe import Missingness
from augmask.report.counts import least_share, short
from augmask.report.facts import Holes
from augmask.report.plots import SMALL, bare, canvas, faded, framed, heat, percent
from augmask.report.svg import FAINT, INK, REAL

LINE = 0.165
MAP = 6.6


def name_width(names: Sequence[str], most: int) -> float:
    """Return inches that the longest name takes, cut to `most` letters."""
    return 0.12 + 0.066 * max(len(short(name, most)) for name in names)


def missing_map(holes: Holes) -> Figure:
    """Draw columns against rows sorted by pattern, and each column's share of holes."""
    # Names on the page are text, those of the table need not be.
    rates = holes.missing.column_rates.rename(index=str)
    names = [name for name in holes.names if rates[name] > 0]
    n = len(names)
    height = 0.3 + LINE * n
    box = 0.28 / height, 1 - 0.3 / height
    left = name_width(names, 26) / MAP
    rate = 0.15
    start = left + rate + 0.01
    figure, ax = canvas(MAP, height, (start, box[0], 0.995 - start, box[1]))
    heat(ax, faded(holes.bands[:, :n].T, "real"))
    framed(ax)
    ax.set_xlabel(
        "rows of the table, few holes to many", size=SMALL, color=INK, labelpad=4
    )
    side = bare(figure.add_axes((left, box[0], rate, box[1])), left=True)
    n_rows = holes.missing.n_rows
    known = [least_share(float(rate), n_rows) for rate in rates[names]]
    shares = np.array([share for share, _ in known])
    side.barh(np.arange(n), shares, 0.7, color=REAL, alpha=0.6, lw=0)
    side.set_ylim(n - 0.5, -0.5)
    # Room for the number behind the longest bar.
    side.set_xlim(0, 1.75 * max(0.4, shares.max()))
    side.spines["bottom"].set_visible(False)
    side.axvline(0, color=FAINT, lw=0.8)
    side.set_xticks([])
    side.set_yticks(np.arange(n), [short(name, 26) for name in names])
    for i, (share, few) in enumerate(known):
        side.text(
            share + 0.03 * side.get_xlim()[1],
            i,
            ("<" if few else "") + percent(float(f"{share:.2g}")),
            size=SMALL,
            va="center",
            color=INK,
        )
    return figure


def co_missing_figure(missing: Missingness) -> Figure:
    """Draw φ between the holes of every two columns: blue together, orange apart."""
    phi = missing.co_missing.to_numpy()
    n = len(phi)
    line = LINE if n <= 30 else 0.13
    side = max(1.2, line * n)
    names = [short(name) for name in missing.co_missing.columns]
    left = name_width(names, 22)
    width = side + left + 0.02
    figure, ax = canvas(width, side, (left / width, 0.005, side / width, 0.99))
    shown = phi.copy()
    np.fill_diagonal(shown, np.nan)
    heat(ax, faded(shown, "synthetic", "remasked"))
    framed(ax)
    ax.set_yticks(np.arange(n), names)
    size = SMALL if n <= 30 else 6.5
    ax.tick_params(left=False, labelsize=size, labelcolor=INK, pad=3)
    return figure
