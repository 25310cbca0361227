from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex

from augmask_bench.figures import (
    FIGURES,
    cost_quality,
    critical_difference,
    ranks_map,
    robustness,
)
from augmask_bench.ranks import METRICS, rank_table

from .synthetic_results import break_runs, make_results

LIFTS = {
    "MIWAE": 0.02,
    "CDTD + NoAug": -0.1,
    "CDTD + AugFull": 0.01,
    "CDTD + AugMask": 0.1,
    "TabDiff + NoAug": -0.12,
    "TabDiff + AugMask": 0.08,
}
OURS = ("ranks", "critical-difference", "robustness", "cost-quality")


@pytest.fixture
def results():
    return make_results(
        LIFTS, noise=0.01, mechanisms=("mcar", "mar"), ratios=(0.1, 0.5, 0.9)
    )


@pytest.mark.parametrize("name", OURS)
def test_nothing_is_drawn_outside_the_picture(name, results):
    figure = FIGURES[name].draw(results, None)
    figure.savefig(io.BytesIO(), format="png")
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert drawn.x0 >= -0.02
    assert drawn.y0 >= -0.02
    assert drawn.x1 <= width + 0.02
    assert drawn.y1 <= height + 0.02
    # and the picture is not mostly margin
    assert drawn.width * drawn.height > 0.8 * width * height


@pytest.mark.parametrize("name", OURS)
def test_a_figure_that_cannot_be_drawn_has_a_reason(name, results):
    module = FIGURES[name]
    assert module.needs(results) == ""
    lone = module.needs(results[results["method"] == "MIWAE"])
    assert "two methods" in lone


def test_curves_need_two_ratios_and_costs_need_times(results):
    one = results[results["ratio"] == 0.5]
    assert "at least two ratios" in robustness.needs(one)
    assert "fit_seconds" in cost_quality.needs(results.drop(columns="fit_seconds"))


def test_the_map_shows_every_average_rank(results):
    figure = ranks_map.draw(results, None)
    for ax, mechanism in zip(figure.axes, ("mcar", "mar"), strict=True):
        mean = rank_table(results, mechanism).mean
        written = [text.get_text() for text in ax.texts]
        assert written == [f"{value:.1f}" for value in mean.to_numpy().ravel()]
    first, second = figure.axes
    assert [t.get_text() for t in first.get_yticklabels()] == list(mean.index)
    # the same methods are not named twice
    assert not any(t.get_text() for t in second.get_yticklabels())


def test_bars_join_methods_that_do_not_differ():
    groups = critical_difference.groups_within
    assert groups([1.0, 1.5, 2.2, 4.0], 1.0) == [(0, 1), (1, 2)]
    assert groups([1.0, 1.2, 1.4], 5.0) == [(0, 2)]
    assert groups([1.0, 3.0], 1.0) == []


def test_the_critical_difference_is_nemenyis():
    # Demšar (2006): q = 2.343 for three methods, 3.164 for ten
    for k, q in ((3, 2.343), (10, 3.164)):
        distance = critical_difference.critical_difference(k, 30)
        assert distance == pytest.approx(q * np.sqrt(k * (k + 1) / 180), abs=1e-3)


def test_methods_are_at_their_summary_ranks(results):
    figure = critical_difference.draw(results, None)
    assert len(figure.axes) == 2
    for ax, mechanism in zip(figure.axes, ("mcar", "mar"), strict=True):
        mean = rank_table(results, mechanism).mean["summary"]
        elbows = [line for line in ax.lines if len(line.get_xdata()) == 3]
        starts = sorted(line.get_xdata()[0] for line in elbows)
        assert starts == sorted(mean)
        written = " ".join(text.get_text() for text in ax.texts)
        for method, rank in mean.items():
            assert (
                f"{method}  {rank:.1f}" in written or f"{rank:.1f}  {method}" in written
            )
        assert "12 blocks" in written
        assert "2 datasets" in written


def test_one_panel_per_metric_one_row_per_generator_and_mechanism(results):
    figure = robustness.draw(results, None)
    assert len(figure.axes) == 4 * len(METRICS)
    rows = [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()]
    assert rows == ["CDTD, MCAR", "TabDiff, MCAR", "CDTD, MAR", "TabDiff, MAR"]
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == list(METRICS.values())
    assert [len(ax.lines) for ax in figure.axes[::5]] == [4, 3, 4, 3]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["NoAug", "AugFull", "AugMask", "MIWAE"]
    # one colour per name, in every panel
    used = {to_hex(line.get_color()) for ax in figure.axes for line in ax.lines}
    assert len(used) == 4
    for ax in figure.axes:
        for line in ax.lines:
            low, high = ax.get_ylim()
            assert low < line.get_ydata().min()
            assert line.get_ydata().max() < high


def test_a_line_is_the_mean_of_all_runs_and_has_a_gap_where_one_failed(results):
    broken = break_runs(
        results,
        "CDTD + AugMask",
        ratio=0.9,
        dataset="table_0",
        mechanism="mcar",
        seed=1,
    )
    figure = robustness.draw(broken, None)
    ax = figure.axes[list(METRICS).index("shape")]
    mine = [line for line in ax.lines if to_hex(line.get_color()) == "#3b5bdb"]
    curve = next(line for line in mine if len(line.get_xdata()) == 3)
    part = results.query("method == 'CDTD + AugMask' and mechanism == 'mcar'")
    means = part.groupby("ratio")["shape"].mean()
    np.testing.assert_allclose(curve.get_ydata()[:2], means.iloc[:2])
    assert np.isnan(curve.get_ydata()[2])
    (cross,) = (line for line in mine if line.get_marker() == "x")
    assert list(cross.get_xdata()) == [0.9]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[-1] == "a run failed"


def test_lines_are_compared_on_common_blocks(results):
    some = results[
        (results["method"] != "CDTD + NoAug") | (results["dataset"] == "table_1")
    ]
    ax = robustness.draw(some, None).axes[list(METRICS).index("shape")]
    mine = next(line for line in ax.lines if to_hex(line.get_color()) == "#3b5bdb")
    part = results.query(
        "method == 'CDTD + AugMask' and mechanism == 'mcar' and dataset == 'table_1'"
    )
    np.testing.assert_allclose(mine.get_ydata(), part.groupby("ratio")["shape"].mean())


def test_points_are_at_time_and_rank(results):
    costs = cost_quality.costs(results)
    # 10 s of fit per position in the list, 2 s of sampling, 1 s of augmentation
    assert costs["seconds"]["MIWAE"] == 12.0
    assert costs["seconds"]["CDTD + AugMask"] == 43.0
    figure = cost_quality.draw(results, None)
    (ax,) = figure.axes
    points = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in ax.lines
        if len(line.get_xdata()) == 1
    }
    assert points == set(zip(costs["seconds"], costs["rank"], strict=True))
    # up is better
    assert ax.yaxis_inverted()
    assert {text.get_text() for text in ax.texts} == {"MIWAE", "CDTD", "TabDiff"}


def test_a_method_without_a_completed_run_has_no_cost(results):
    broken = break_runs(results, "TabDiff + NoAug")
    assert "TabDiff + NoAug" not in cost_quality.costs(broken).index


VARIANTS = [f"CDTD + AugMask (variant {i})" for i in range(9)]


def test_with_many_variants_only_plain_strategies_are_drawn():
    some = dict.fromkeys(["CDTD + NoAug", "CDTD + AugMask"], 0.0)
    ax = robustness.draw(make_results(some | dict.fromkeys(VARIANTS, 0.0))).axes[0]
    assert len(ax.lines) == 2
    few = robustness.draw(make_results(some | dict.fromkeys(VARIANTS[:4], 0.0)))
    assert len(few.axes[0].lines) == 6
    names = [text.get_text() for text in few.legends[0].get_texts()]
    assert names[0] == "NoAug"
    assert set(VARIANTS[:4]) < set(names)
    assert "not distinguishable" in robustness.needs(
        make_results(dict.fromkeys(VARIANTS, 0.0))
    )


def test_variants_of_one_strategy_are_labelled_and_not_joined():
    lifts = {"CDTD + NoAug": 0.0, "CDTD + AugMask": 0.2, VARIANTS[0]: 0.1}
    (ax,) = cost_quality.draw(make_results(lifts)).axes
    assert {text.get_text() for text in ax.texts} == set(lifts)
    assert all(len(line.get_xdata()) == 1 for line in ax.lines)


def test_long_names_of_many_methods_stay_inside_the_diagram():
    lifts = {
        f"CDTD + AugMask (a long name of variant {i})": 0.01 * i for i in range(25)
    }
    results = make_results(lifts)
    assert critical_difference.needs(results) == ""
    figure = critical_difference.draw(results)
    drawn = figure.get_tightbbox()
    assert drawn.x0 >= -0.02
    assert drawn.x1 <= figure.get_figwidth() + 0.02
    lifts = {f"G{i} + NoAug": 0.0 for i in range(41)}
    assert "not readable" in critical_difference.needs(make_results(lifts))
