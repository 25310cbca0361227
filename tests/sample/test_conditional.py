"""Conditional sampling from a generator whose conditional distributions are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from augmask.config import Settings
from augmask.errors import ConditionError
from augmask.rng import stream
from augmask.sample.conditional import MAX_SEARCH, RowFilter, sample_where
from augmask.sample.constraints import learn_constraints, read_constraints
from augmask.sample.row_generator import EncodedRows, RowGenerator
from augmask.table.codec import Codec
from augmask.table.conditions import read_where
from augmask.table.infer import infer_schema


def world(n, rng, x=None, y=None):
    """x, y normal with correlation 0.8; z = x - y + noise; a town that depends on x."""
    if x is None and y is not None:
        x = 0.8 * y + 0.6 * rng.normal(size=n)
    x = rng.normal(size=n) if x is None else x
    y = 0.8 * x + 0.6 * rng.normal(size=n) if y is None else y
    z = x - y + 0.5 * rng.normal(size=n)
    town = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * x)), "Pau", "Metz")
    town = np.where(rng.random(n) < 0.1, "Brest", town)
    return pd.DataFrame({"x": x, "y": y, "z": z, "town": town})


def at_town(n, rng, towns):
    """Rows with known towns, by rejection."""
    rows = world(60 * n + 1000, rng)
    rows_of = rows.groupby("town", observed=True).indices
    at = np.array([rng.choice(rows_of[town]) for town in towns])
    return rows.iloc[at].reset_index(drop=True)


class World(RowGenerator):
    """Samples from the world, unconditionally or given x, y, both, or the town."""

    def generate(self, n, name, known=None):
        self.log.append((n, known is not None))
        rng = stream(self.seed, name)
        cells = {} if known is None else known.rows.frame[list(known.labels)]
        if "town" in cells and "x" in cells:
            frame = world(n, rng, cells["x"].to_numpy()).assign(town=cells["town"])
        elif "town" in cells:
            frame = at_town(n, rng, cells["town"])
        else:
            values = {name: cells[name].to_numpy() for name in cells}
            frame = world(n, rng, **values)
        frame.insert(0, "id", [f"K{i:06d}" for i in range(n)])
        for name in cells:
            frame[name] = cells[name].to_numpy()
        table = self.codec.encode(frame)
        return EncodedRows(table.num, table.cat, frame)


TRUTH = world(2_000_000, np.random.default_rng(1))


@pytest.fixture(scope="module")
def codec():
    frame = world(20_000, np.random.default_rng(2))
    frame.insert(0, "id", [f"K{i:06d}" for i in range(len(frame))])
    return Codec.fit(frame, infer_schema(frame))


def make_world(codec, seed=0):
    settings = Settings(sampling_batch=5000)
    generator = World(None, codec, settings, torch.device("cpu"), seed)
    object.__setattr__(generator, "log", [])
    return generator


def sample(codec, where, n=3000, constraints=(), seed=0):
    generator = make_world(codec, seed)
    condition = None if where is None else read_where(where, codec.schema)
    frames = list(sample_where(generator, n, RowFilter(condition, constraints)))
    rows = pd.concat(frames, ignore_index=True)
    assert len(rows) == n
    if condition is not None:
        assert condition.holds(rows).all()
    return rows, frames[-1].attrs["where"], generator.log


def distance(a, b):
    """Kolmogorov distance for numbers, total variation for levels."""
    if a.dtype.kind == "f":
        return stats.ks_2samp(a, b).statistic
    shares = [s.value_counts(normalize=True) for s in (a, b)]
    return shares[0].sub(shares[1], fill_value=0).abs().sum() / 2


def tolerance(report):
    """The Kolmogorov distance that the accepted rows exceed once in 200 times."""
    accepted = max(report["rate"] * report["drawn"], 150)
    return 0.01 + 1.73 / accepted**0.5


@pytest.mark.parametrize(
    ("where", "truth"),
    [
        ("0.2 <= x <= 0.9", lambda f: f.x.between(0.2, 0.9)),
        ("x > -0.5", lambda f: f.x > -0.5),
        ("x > 1.5", lambda f: f.x > 1.5),
        ("x > 0.5 and y < 0.3", lambda f: (f.x > 0.5) & (f.y < 0.3)),
        # rare together, so met one after the other
        ("x > 1.9 and y < 0.2", lambda f: (f.x > 1.9) & (f.y < 0.2)),
        ("town in ['Pau', 'Brest']", lambda f: f.town != "Metz"),
        (
            "town in ['Metz', 'Brest'] and x > 0.7",
            lambda f: (f.town != "Pau") & (f.x > 0.7),
        ),
    ],
)
def test_rows_have_the_conditional_distribution(codec, where, truth):
    rows, report, log = sample(codec, where)
    real = TRUTH[truth(TRUTH)]
    assert report["rate"] == pytest.approx(len(real) / len(TRUTH), rel=0.35, abs=2e-4)
    for name in real:
        assert distance(rows[name], real[name]) < tolerance(report), name
    if report["rate"] > 0.03:
        # the cost, in rows, is less than twice that of unconditional rows
        assert sum(n for n, _ in log) < 2 * len(rows)


def test_resampled_numbers_are_new(codec):
    rows, report, _ = sample(codec, "x > 1.5")
    assert report["completed"] > 1000
    assert rows["x"].duplicated().mean() < 0.1


def test_an_exact_condition_needs_no_search(codec):
    rows, report, log = sample(codec, {"town": "Brest"}, n=700)
    assert (rows["town"] == "Brest").all()
    assert log == [(700, True)]
    assert report == {"rate": None, "drawn": 700, "completed": 0}
    assert distance(rows["x"], TRUTH[TRUTH.town == "Brest"]["x"]) < 0.08


def test_a_range_combined_with_an_exact_condition(codec):
    rows, report, log = sample(codec, "town == 'Metz' and x > 0.5")
    assert all(known for _, known in log)
    real = TRUTH[(TRUTH.town == "Metz") & (TRUTH.x > 0.5)]
    share = len(real) / (TRUTH.town == "Metz").sum()
    assert report["rate"] == pytest.approx(share, rel=0.2)
    for name in real:
        assert distance(rows[name], real[name]) < tolerance(report), name


def test_a_search_without_support_is_bounded(codec):
    generator = make_world(codec)
    condition = read_where("x > 2 and y < -2", codec.schema)
    with pytest.raises(ConditionError, match=r"none of .* rows satisfied .*widen"):
        list(sample_where(generator, 100, RowFilter(condition)))
    assert sum(n for n, _ in generator.log) <= 3 * MAX_SEARCH


def test_a_single_condition_without_support_is_an_error(codec):
    top = codec.schema["z"].high
    with pytest.raises(
        ConditionError, match=r"none of 20,000 rows .* on 'z'.*1 in 20,000"
    ):
        sample(codec, {"z": (top - 1e-9, top)})


def test_identifiers_are_unique_across_batches(codec):
    rows, _, _ = sample(codec, "x > 0.5")
    assert not rows["id"].duplicated().any()


def test_the_seed_decides(codec):
    one, _, _ = sample(codec, "x > 1.5", n=300, seed=3)
    two, _, _ = sample(codec, "x > 1.5", n=300, seed=3)
    other, _, _ = sample(codec, "x > 1.5", n=300, seed=4)
    pd.testing.assert_frame_equal(one, two)
    assert not set(one["y"]) & set(other["y"])


def fit_constraints(codec, constraints, holds):
    """Return constraints fitted on a table that satisfies them."""
    frame = TRUTH[holds(TRUTH)].head(5000).reset_index(drop=True)
    frame.insert(0, "id", "K")
    known = np.ones(frame.shape, bool)
    return learn_constraints(read_constraints(constraints, codec.schema), frame, known)


@pytest.mark.parametrize("where", [None, "x > 1"])
def test_rows_under_an_order_have_the_conditional_distribution(codec, where):
    constraints = fit_constraints(codec, ["x <= y"], lambda f: f.x <= f.y)
    rows, report, _ = sample(codec, where, constraints=constraints)
    assert (rows["x"] <= rows["y"]).all()
    real = TRUTH[(TRUTH.x <= TRUTH.y) & (TRUTH.x > (1 if where else -9))]
    assert report["rate"] == pytest.approx(len(real) / len(TRUTH), rel=0.2)
    for name in real:
        assert distance(rows[name], real[name]) < tolerance(report), name


def test_rows_under_a_python_constraint_have_the_conditional_distribution(codec):
    constraints = fit_constraints(
        codec, [lambda f: f["x"] + f["z"] > 0], lambda f: f.x + f.z > 0
    )
    rows, report, _ = sample(codec, "x > 0.5", constraints=constraints)
    assert (rows["x"] + rows["z"] > 0).all()
    real = TRUTH[(TRUTH.x > 0.5) & (TRUTH.x + TRUTH.z > 0)]
    for name in real:
        assert distance(rows[name], real[name]) < tolerance(report), name


def test_a_python_constraint_that_hardly_any_row_satisfies_is_an_error(codec):
    constraints = fit_constraints(codec, [lambda f: f["x"] > 4], lambda f: f.x > 4)
    with pytest.raises(
        ConditionError, match=r"only \d of .* rows satisfied the constraint <lambda>"
    ):
        sample(codec, None, n=100, constraints=constraints)
