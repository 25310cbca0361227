from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.report.counts import Bars, Histogram
from augmask.report.imputation_examples import Fan
from augmask.report.plots_fill import fan_figure, shares_figure
from augmask.report.svg import svg


@pytest.mark.parametrize("dates", [False, True])
def test_the_ranges_stand_under_their_numbers(dates):
    column = Histogram(np.arange(0.0, 101.0, 10), {"real": np.full(10, 0.1)}, dates)
    found = Fan("x", column, np.array([10, 20, 30, 40, 50, 60, 70.0]), "")
    above, strip = fan_figure(found).axes
    assert above.get_xlim() == strip.get_xlim()
    assert above.get_position().x0 == strip.get_position().x0
    spans = [(p.get_x(), p.get_x() + p.get_width()) for p in strip.patches]
    assert spans == [(10, 70), (20, 60), (30, 50)]
    assert strip.lines[0].get_xdata()[0] == 40


def test_shares_are_bars_in_the_colours_of_the_page():
    shares = {"real": np.array([0.7, 0.3]), "synthetic": np.array([0.2, 0.8])}
    text = svg(fan_figure(Fan("w", Bars(("a", "b"), shares), None, "")), "w", "p")
    assert "var(--synthetic)" in text
    assert "var(--real)" in text


def test_the_dashed_line_is_what_right_draws_would_show():
    found = pd.DataFrame(
        {"drawn": [0.1, 0.9], "found": [0.2, 0.8], "right": [0.1, 0.9]}
    )
    (ax,) = shares_figure(found).axes
    dashed, line = ax.lines
    assert dashed.get_ydata().tolist() == [0.1, 0.9]
    assert line.get_ydata().tolist() == [0.2, 0.8]
