from __future__ import annotations

import numpy as np

from augmask.report.counts import Histogram
from augmask.report.plots_columns import histogram_figure


def drawn(shares):
    found = Histogram(np.arange(len(shares) + 1.0), {"real": np.array(shares)}, False)
    return histogram_figure(found).axes[0]


def test_a_bin_that_dwarfs_the_others_is_cut_and_named():
    ax = drawn([0.9, 0.04, 0.03, 0.03])
    assert ax.get_ylim()[1] < 0.1
    assert [text.get_text() for text in ax.texts] == ["90% here"]


def test_an_ordinary_column_is_drawn_whole():
    ax = drawn([0.2, 0.5, 0.3])
    assert ax.get_ylim()[1] > 0.5
    assert not ax.texts
