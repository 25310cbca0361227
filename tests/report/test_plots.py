from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from augmask.report.aggregates import Bars, Histogram, histogram, joint
from augmask.report.plots import (
    MOST_NAMES,
    fan_figure,
    histogram_figure,
    joint_figure,
    matrix_box,
    matrix_figure,
    shares_figure,
    training_figure,
)
from augmask.report.svg import svg


def histogram_axes(shares):
    column = Histogram(np.arange(len(shares) + 1.0), {"real": np.array(shares)})
    return histogram_figure(column).axes[0]


def test_a_bin_that_dwarfs_the_others_is_cut_off_and_labelled():
    ax = histogram_axes([0.9, 0.04, 0.03, 0.03])
    assert ax.get_ylim()[1] < 0.1
    assert [text.get_text() for text in ax.texts] == ["90% here"]


def test_an_ordinary_column_is_not_cut_off():
    ax = histogram_axes([0.2, 0.5, 0.3])
    assert ax.get_ylim()[1] > 0.5
    assert not ax.texts


def test_both_losses_fill_their_panel_with_the_validation_loss_above():
    history = pd.DataFrame(
        {
            "step": [1.0, 2.0, 3.0, 4.0],
            "loss": [5.0, 4.0, 5.0, 4.5],
            "held_out": [0.60, None, None, 0.58],
        }
    )
    panels = training_figure(history, 4).axes
    above, below = sorted(panels, key=lambda ax: -ax.get_position().y0)
    for ax, values in ((above, (0.58, 0.60)), (below, (4.0, 5.0))):
        low, high = ax.get_ylim()
        assert low < values[0]
        assert high > values[1]
        # A common scale would flatten the validation loss to a line.
        assert (values[1] - values[0]) / (high - low) > 0.7
    assert above.get_xlim() == below.get_xlim()


def test_without_a_validation_loss_there_is_one_panel():
    history = pd.DataFrame({"step": [1.0, 2.0], "loss": [2.0, 1.0], "held_out": None})
    assert len(training_figure(history, None).axes) == 1


@pytest.mark.parametrize("dates", [False, True])
def test_intervals_of_draws_align_with_the_column_above(dates):
    column = Histogram(np.arange(0.0, 101.0, 10), {"real": np.full(10, 0.1)}, dates)
    above, fan = fan_figure(column, np.array([10, 20, 30, 40, 50, 60, 70.0])).axes
    assert above.get_xlim() == fan.get_xlim()
    assert above.get_position().x0 == fan.get_position().x0
    spans = [(p.get_x(), p.get_x() + p.get_width()) for p in fan.patches]
    assert spans == [(10, 70), (20, 60), (30, 50)]
    assert fan.lines[0].get_xdata()[0] == 40


def test_drawn_levels_are_bars_in_the_colours_of_the_page():
    shares = {"real": np.array([0.7, 0.3]), "synthetic": np.array([0.2, 0.8])}
    text = svg(fan_figure(Bars(("a", "b"), shares), None), "w", "p")
    assert "var(--synthetic)" in text
    assert "var(--real)" in text


def test_the_dashed_line_is_what_calibrated_draws_would_show():
    shares = pd.DataFrame(
        {"drawn": [0.1, 0.9], "true": [0.2, 0.8], "expected": [0.1, 0.9]}
    )
    (ax,) = shares_figure(shares).axes
    dashed, line = ax.lines
    assert dashed.get_ydata().tolist() == [0.1, 0.9]
    assert line.get_ydata().tolist() == [0.2, 0.8]


def collisions(figure):
    """Return the pairs of tick labels of an axis that overlap, and those cut off."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = []
    for ax in figure.axes:
        for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
            shown = [t for t in labels if t.get_text() and t.get_visible()]
            boxes = [t.get_window_extent(canvas.get_renderer()) for t in shown]
            for (s, a), (t, b) in pairwise(zip(shown, boxes, strict=True)):
                if a.overlaps(b):
                    found.append((s.get_text(), t.get_text()))
    return found


@pytest.mark.parametrize("days", [2, 9, 40, 130, 250, 400, 900, 1500, 4000, 30000])
def test_date_ticks_do_not_collide(days):
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2019-11-03") + pd.to_timedelta(
        rng.uniform(0, 24 * days, 500).round(), "h"
    )
    bins = histogram({"real": pd.DataFrame({"when": when})}, "when")
    assert not collisions(histogram_figure(bins))


def test_names_below_a_pair_do_not_collide():
    rng = np.random.default_rng(0)
    words = [f"Level number {k}" for k in range(7)]
    frame = pd.DataFrame({"a": rng.choice(words, 900), "b": rng.choice(words, 900)})
    pair = joint({"real": frame, "synthetic": frame}, "a", "b", 0.5, [])
    assert not collisions(joint_figure(pair))


def test_a_matrix_lies_where_its_cells_are_read():
    for n in (5, MOST_NAMES + 1):
        figure = matrix_figure(np.eye(n), [f"c{i}" for i in range(n)])
        (ax,) = figure.axes
        assert ax.get_position().bounds == pytest.approx(matrix_box(n))
