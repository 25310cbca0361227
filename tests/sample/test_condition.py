"""Conditions meet a source whose conditional laws are known exactly."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from augmask.config import Settings
from augmask.errors import ConditionError
from augmask.rng import stream
from augmask.sample.condition import MOST, Demand, satisfying
from augmask.sample.constraints import learn_constraints, read_constraints
from augmask.sample.source import Drawn, Source
from augmask.table.encode import Codec
from augmask.table.infer import infer_schema
from augmask.table.where import read_where


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
    """Rows with given towns, by rejection."""
    rows = world(60 * n + 1000, rng)
    found = rows.groupby("town", observed=True).indices
    at = np.array([rng.choice(found[town]) for town in towns])
    return rows.iloc[at].reset_index(drop=True)


class World(Source):
    """Draws from the world, given x, y, both, or the town."""

    def draw(self, n, name, given=None):
        self.log.append((n, given is not None))
        rng = stream(self.seed, name)
        cells = {} if given is None else given.rows.frame[list(given.labels)]
        if "town" in cells and "x" in cells:
            frame = world(n, rng, cells["x"].to_numpy()).assign(town=cells["town"])
        elif "town" in cells:
            frame = at_town(n, rng, cells["town"])
        else:
            known = {name: cells[name].to_numpy() for name in cells}
            frame = world(n, rng, **known)
        frame.insert(0, "id", [f"K{i:06d}" for i in range(n)])
        for name in cells:
            frame[name] = cells[name].to_numpy()
        table = self.codec.encode(frame)
        return Drawn(table.num, table.cat, frame)


TRUTH = world(2_000_000, np.random.default_rng(1))


@pytest.fixture(scope="module")
def codec():
    frame = world(20_000, np.random.default_rng(2))
    frame.insert(0, "id", [f"K{i:06d}" for i in range(len(frame))])
    return Codec.fit(frame, infer_schema(frame))


def source(codec, seed=0):
    made = World(None, codec, Settings(sampling_batch=5000), torch.device("cpu"), seed)
    object.__setattr__(made, "log", [])
    return made


def ask(codec, where, n=3000, constraints=(), seed=0):
    made = source(codec, seed)
    wanted = None if where is None else read_where(where, codec.schema)
    frames = list(satisfying(made, n, Demand(wanted, constraints)))
    rows = pd.concat(frames, ignore_index=True)
    assert len(rows) == n
    if wanted is not None:
        assert wanted.holds(rows).all()
    return rows, frames[-1].attrs["where"], made.log


def distance(a, b):
    """Kolmogorov's for numbers, total variation for levels."""
    if a.dtype.kind == "f":
        return stats.ks_2samp(a, b).statistic
    shares = [s.value_counts(normalize=True) for s in (a, b)]
    return shares[0].sub(shares[1], fill_value=0).abs().sum() / 2


def uncertain(facts):
    """What the rows that a pilot kept leave uncertain: Kolmogorov's 1 in 200."""
    kept = max(facts["rate"] * facts["drawn"], 150)
    return 0.01 + 1.73 / kept**0.5


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
def test_rows_have_the_law_of_those_that_satisfy(codec, where, truth):
    rows, facts, log = ask(codec, where)
    real = TRUTH[truth(TRUTH)]
    assert facts["rate"] == pytest.approx(len(real) / len(TRUTH), rel=0.35, abs=2e-4)
    for name in real:
        assert distance(rows[name], real[name]) < uncertain(facts), name
    if facts["rate"] > 0.03:
        # work, in rows, against what the plain rows would have taken
        assert sum(n for n, _ in log) < 2 * len(rows)


def test_numbers_that_are_completed_around_are_new_ones(codec):
    rows, facts, _ = ask(codec, "x > 1.5")
    assert facts["completed"] > 1000
    assert rows["x"].duplicated().mean() < 0.1


def test_a_given_cell_needs_no_pilot(codec):
    rows, facts, log = ask(codec, {"town": "Brest"}, n=700)
    assert (rows["town"] == "Brest").all()
    assert log == [(700, True)]
    assert facts == {"rate": None, "drawn": 700, "completed": 0}
    assert distance(rows["x"], TRUTH[TRUTH.town == "Brest"]["x"]) < 0.08


def test_a_range_among_rows_with_a_given_cell(codec):
    rows, facts, log = ask(codec, "town == 'Metz' and x > 0.5")
    assert all(given for _, given in log)
    real = TRUTH[(TRUTH.town == "Metz") & (TRUTH.x > 0.5)]
    share = len(real) / (TRUTH.town == "Metz").sum()
    assert facts["rate"] == pytest.approx(share, rel=0.2)
    for name in real:
        assert distance(rows[name], real[name]) < uncertain(facts), name


def test_what_has_no_support_ends_after_a_bounded_number_of_rows(codec):
    made = source(codec)
    wanted = read_where("x > 2 and y < -2", codec.schema)
    with pytest.raises(ConditionError, match=r"none of .* rows satisfied .*widen"):
        list(satisfying(made, 100, Demand(wanted)))
    assert sum(n for n, _ in made.log) <= 3 * MOST


def test_a_single_condition_that_no_row_meets(codec):
    top = codec.schema["z"].high
    with pytest.raises(
        ConditionError, match=r"none of 20,000 rows .* on 'z'.*1 in 20,000"
    ):
        ask(codec, {"z": (top - 1e-9, top)})


def test_identifiers_go_on_through_the_rows(codec):
    rows, _, _ = ask(codec, "x > 0.5")
    assert not rows["id"].duplicated().any()


def test_the_seed_decides(codec):
    one, _, _ = ask(codec, "x > 1.5", n=300, seed=3)
    two, _, _ = ask(codec, "x > 1.5", n=300, seed=3)
    other, _, _ = ask(codec, "x > 1.5", n=300, seed=4)
    pd.testing.assert_frame_equal(one, two)
    assert not set(one["y"]) & set(other["y"])


def rules_of(codec, constraints, keeps):
    """Return rules learned from a table in which they hold."""
    frame = TRUTH[keeps(TRUTH)].head(5000).reset_index(drop=True)
    frame.insert(0, "id", "K")
    known = np.ones(frame.shape, bool)
    return learn_constraints(read_constraints(constraints, codec.schema), frame, known)


@pytest.mark.parametrize("where", [None, "x > 1"])
def test_an_order_is_kept_by_every_row_and_the_law_is_that_of_rows_that_keep_it(
    codec, where
):
    constraints = rules_of(codec, ["x <= y"], lambda f: f.x <= f.y)
    rows, facts, _ = ask(codec, where, constraints=constraints)
    assert (rows["x"] <= rows["y"]).all()
    real = TRUTH[(TRUTH.x <= TRUTH.y) & (TRUTH.x > (1 if where else -9))]
    assert facts["rate"] == pytest.approx(len(real) / len(TRUTH), rel=0.2)
    for name in real:
        assert distance(rows[name], real[name]) < uncertain(facts), name


def test_a_function_of_ones_own_is_kept_by_every_row(codec):
    constraints = rules_of(
        codec, [lambda f: f["x"] + f["z"] > 0], lambda f: f.x + f.z > 0
    )
    rows, facts, _ = ask(codec, "x > 0.5", constraints=constraints)
    assert (rows["x"] + rows["z"] > 0).all()
    real = TRUTH[(TRUTH.x > 0.5) & (TRUTH.x + TRUTH.z > 0)]
    for name in real:
        assert distance(rows[name], real[name]) < uncertain(facts), name


def test_a_function_that_hardly_any_row_satisfies_is_an_error(codec):
    constraints = rules_of(codec, [lambda f: f["x"] > 4], lambda f: f.x > 4)
    with pytest.raises(
        ConditionError, match=r"\d of .* rows satisfied the rule <lambda>"
    ):
        ask(codec, None, n=100, constraints=constraints)
