"""Figures of the table of results alone."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from augmask_bench.figures import (
    augmentation_cost,
    augmenters,
    completions,
    misspecification,
)
from augmask_bench.figures.data import matched, with_quality

AUGMENTERS = ["zero", "mean", "ecdf", "lgbm-d", "lgbm-s"]
BOTH = ["all", "observed"]
SWEEP = {"eta": [0.0, 0.5, 1.0], "lam": [0.0, 1.0]}
SETTINGS = {"one": 0.6, "cycle:30": 0.4, "anchor:30:0.8": 0.5, "cycle:10": 0.45}


def masked(facts):
    return facts["supervise"] == "observed"


@pytest.fixture
def results(grid):
    """One table per figure."""
    alone = grid(lambda _: 0.5, augmenter=AUGMENTERS, generator=["fill"])
    alone["augment_seconds"] = alone["augmenter"].map(AUGMENTERS.index) + 0.5
    return {
        augmenters: grid(
            lambda f: 0.5 + 0.02 * AUGMENTERS.index(f["augmenter"]) + 0.03 * masked(f),
            augmenter=AUGMENTERS,
            supervise=BOTH,
            generator=["cdtd", "tabdiff"],
        ),
        misspecification: grid(
            lambda f: 0.6 - 0.1 * f["eta"] + masked(f) * (0.06 * f["eta"] - 0.01),
            **SWEEP,
            supervise=BOTH,
            noise=0.0,
        ),
        completions: grid(
            lambda f: SETTINGS[f["completions"]], completions=list(SETTINGS)
        ),
        augmentation_cost: alone,
    }


MODULES = [augmenters, misspecification, completions, augmentation_cost]


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_drawn_outside_the_picture(module, results):
    figure = module.draw(results[module], None)
    figure.savefig(io.BytesIO(), format="png")
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= -0.02
    assert drawn.x1 <= width + 0.02
    assert drawn.y1 <= height + 0.02
    assert drawn.width * drawn.height > 0.75 * width * height


@pytest.mark.parametrize("module", MODULES)
def test_a_figure_that_cannot_be_drawn_has_a_reason(module, results):
    rows = results[module]
    assert module.needs(rows) == ""
    for other in MODULES:
        if other is not module and other is not augmentation_cost:
            assert len(other.needs(rows)) > 40
    assert module.needs(rows.iloc[:1])
    assert module.needs(rows.iloc[:0])
    broken = rows.assign(status="failed")
    assert module.needs(broken)


def test_means_are_over_blocks_that_all_variants_completed(grid):
    rows = grid(lambda _: 0.5, augmenter=["mean", "ecdf"], supervise=BOTH)
    lost = (rows["augmenter"] == "ecdf") & (rows["dataset"] == "table_1")
    rows.loc[lost & (rows["seed"] == 1) & (rows["supervise"] == "all"), "status"] = (
        "failed"
    )
    comparable = matched(with_quality(rows), ["augmenter", "supervise"])
    blocks = comparable[["dataset", "seed"]].drop_duplicates().values.tolist()
    assert sorted(blocks) == [["table_0", 0], ["table_0", 1], ["table_1", 0]]
    assert len(comparable) == 3 * 4


def test_augmenters_are_points_of_two_colours_shaded_if_stochastic(results):
    rows = results[augmenters]
    figure = augmenters.draw(rows)
    top = figure.axes[0]
    points = [line for line in top.lines if line.get_marker() == "o"]
    assert len(points) == 2 * len(AUGMENTERS)
    full, mask = points[0].get_ydata()[0], points[1].get_ydata()[0]
    cells = with_quality(rows[rows["generator"] == "cdtd"])
    zero = cells[cells["augmenter"] == "zero"].groupby("supervise")["quality"].mean()
    assert (full, mask) == pytest.approx((zero["all"], zero["observed"]))
    # ecdf and lgbm-s are stochastic
    assert len(top.patches) == 2
    named = [t.get_text() for t in figure.axes[2].get_xticklabels()]
    assert named == ["Zero", "Mean", "ECDF", "LGBM-D", "LGBM-S"]


def test_the_gap_is_centred_at_zero_and_written_in_the_cells(results):
    rows = results[misspecification]
    figure = misspecification.draw(rows)
    gap = figure.axes[2]
    written = [text.get_text() for text in gap.texts]
    assert written == ["−1.0", "−1.0", "+2.0", "+2.0", "+5.0", "+5.0"]
    pixels = gap.images[0].get_array()
    orange, blue = pixels[0, 0], pixels[-1, 0]
    assert orange[0] > orange[2]
    assert blue[2] > blue[0]
    # opacity is proportional to the absolute gap
    assert blue[3] == pytest.approx(5 * orange[3], rel=0.15)
    assert [t.get_text() for t in gap.get_yticklabels()] == ["0", "0.5", "1"]


def test_the_unperturbed_augmenter_is_a_corner_of_the_sweep(grid):
    """A plan may omit eta and lam where they have no effect."""
    rows = grid(lambda _: 0.5, **SWEEP, supervise=BOTH)
    corner = (rows["eta"] == 0) & (rows["lam"] == 1)
    rows.loc[corner, ["eta", "lam"]] = np.nan
    three = misspecification.maps(misspecification.sweeps(rows)["cdtd"])
    assert three["AugMask"].notna().all(axis=None)
    assert three["AugMask"].shape == (3, 2)


def test_completions_are_in_the_order_of_the_paper(results):
    figure = completions.draw(results[completions])
    left = figure.axes[0]
    assert [t.get_text() for t in left.get_yticklabels()] == [
        "one, fixed", "10 cycled", "30 cycled", "30 cached, 80% fixed"
    ]  # fmt: skip
    points = [line.get_xdata()[0] for line in left.lines if line.get_marker() == "o"]
    assert np.argsort(points).tolist() == [2, 1, 3, 0]


def test_costs_are_medians_and_failures_are_marked(results, run):
    rows = results[augmentation_cost]
    broken = run(
        dataset="table_0", generator="fill", augmenter="mice", status="failed",
        augment_seconds=np.nan,
    )  # fmt: skip
    table = augmentation_cost.taxonomy(pd.concat([rows, pd.DataFrame([broken])]))
    assert list(table.columns) == ["Zero", "Mean", "ECDF", "MICE", "LGBM-D", "LGBM-S"]
    assert table.loc["Stochastic"].tolist() == ["✗", "✗", "✓", "✗", "✗", "✓"]
    assert table.loc["Multivariate"].tolist() == ["✗", "✗", "✗", "✓", "✓", "✓"]
    assert table.loc["table_0 (s)"].tolist() == [
        "0.500", "1.50", "2.50", "failed", "3.50", "4.50"
    ]  # fmt: skip
    assert table.loc["table_1 (s)", "MICE"] == "–"
    lines = augmentation_cost.markdown(rows).splitlines()
    assert lines[0] == "| Property | Zero | Mean | ECDF | LGBM-D | LGBM-S |"
    assert len({line.count("|") for line in lines}) == 1
