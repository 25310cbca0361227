"""From a table to trainers: settings, members, budgets, and the identity of a run."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask, load, presets
from augmask.augmentation.boosted import LgbmS
from augmask.augmentation.marginal import Ecdf
from augmask.config import Settings
from augmask.diffusion.cdtd import CDTD
from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.prepare import FitSetup, TimeBudget, fingerprint, prepare_fit
from augmask.presets import FEW_ROWS, SMALL_ROWS, resolve_preset

NETWORK = {"width": 8, "depth": 1, "time_width": 8, "sampling_steps": 2}


def make_frame(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=n)})
    frame["z"] = np.where(x > 0, "a", "b")
    frame.loc[rng.random(n) < 0.2, "y"] = np.nan
    return frame


def prepared(n: int = 200, single: bool = False, **changes) -> FitSetup:
    parameters = {"augmenter": "ecdf", "options": NETWORK} | changes
    model = AugMask(device="cpu", **parameters)
    return prepare_fit(model, make_frame(n), single=single)


def fast() -> Settings:
    return resolve_preset("fast", "cpu", "cdtd", NETWORK, None)[1]


@pytest.fixture
def brief(monkeypatch):
    """Let small tables be learned in three steps of two members."""
    monkeypatch.setattr(presets, "STARTED_STEPS", ())
    monkeypatch.setattr(presets, "SMALL_STEPS", ())
    monkeypatch.setattr(presets, "MOST_SMALL_STEPS", 3)
    monkeypatch.setattr(presets, "SMALL_MEMBERS", 2)


# -- what is prepared ----------------------------------------------------------


def test_the_state_lacks_training_only():
    state = prepared(preset="fast").state
    assert state.history.empty
    assert (state.preset, state.augmenter, state.settings) == ("fast", "ecdf", fast())
    assert state.codec.schema.names == ("x", "y", "z")
    assert list(state.missing_model.columns_) == ["x", "y", "z"]
    assert state.constraints == ()
    assert state.parameters["options"] is NETWORK


def test_the_trainer_gets_the_completed_table_and_the_networks():
    setup = prepared(preset="fast")
    assert setup.table.observed.sum() == make_frame().notna().to_numpy().sum()
    assert setup.trainer.backbone is setup.state.backbone
    completions = setup.trainer.data.completions
    np.testing.assert_array_equal(completions.table.observed, setup.table.observed)
    assert completions.n_draws == 4
    # one observed cell in a hundred is held out
    assert 1 <= setup.trainer.data.held_out.sum() <= 0.02 * setup.table.observed.sum()


def test_preparing_twice_gives_the_same_and_another_seed_does_not():
    one, two, other = (prepared(preset="fast", seed=seed) for seed in (3, 3, 4))

    def weights(setup: FitSetup) -> np.ndarray:
        tensors = setup.state.backbone.state_dict().values()
        return np.concatenate([t.numpy().reshape(-1) for t in tensors])

    def fill(setup: FitSetup) -> np.ndarray:
        return setup.trainer.data.completions.num_fill

    for of in (weights, fill):
        np.testing.assert_array_equal(of(one), of(two))
        assert not np.array_equal(of(one), of(other))


def test_the_first_member_of_an_ensemble_starts_as_a_single_model():
    single, several = prepared(preset="fast"), prepared(preset="fast", ensemble=3)
    assert len(several.trainers) == 3
    starts = [trainer.flat.weights for trainer in several.trainers]
    assert starts[0].equal(single.trainer.flat.weights)
    assert not starts[0].equal(starts[1])
    assert several.trainers[0].data.completions is several.trainers[2].data.completions


def test_constraints_are_learned_from_the_table():
    model = AugMask(augmenter="ecdf", preset="fast", options=NETWORK, device="cpu")
    frame = make_frame().assign(w=lambda f: f["x"] + 1)
    state = prepare_fit(model, frame, constraints=["x <= w"]).state
    assert [constraint.text for constraint in state.constraints] == ["x <= w"]
    with pytest.raises(DataError, match="w <= x"):
        prepare_fit(model, frame, constraints=["w <= x"])


def test_the_model_is_not_changed():
    model = AugMask(augmenter="ecdf", options=NETWORK, device="cpu")
    before = dict(vars(model))
    prepare_fit(model, make_frame())
    assert vars(model) == before


# -- what `auto` does with small tables ----------------------------------------


def test_auto_trains_several_short_members_and_says_so(caplog):
    with caplog.at_level(logging.INFO, "augmask"):
        setup = prepared()
    assert len(setup.trainers) == presets.SMALL_MEMBERS
    assert setup.state.settings.steps == presets.STARTED_STEPS[0][1]
    assert not setup.trainer.data.held_out.any()
    reason = setup.state.training["chosen"]
    assert "200 rows with " in reason
    assert reason in caplog.text


@pytest.mark.parametrize(
    "changes",
    [{"preset": "fast"}, {"options": NETWORK | {"steps": 4_000}}, {"n": SMALL_ROWS}],
    ids=["a named preset", "steps", "a table that is not small"],
)
def test_nothing_else_is_adapted(changes):
    setup = prepared(**changes)
    assert setup.state.settings == fast()
    assert len(setup.trainers) == 1
    assert setup.state.training["chosen"] == ""


def test_an_explicit_ensemble_and_a_checkpoint_win(brief, tmp_path):
    assert len(prepared(ensemble=1).trainers) == 1
    assert len(prepared(ensemble=3).trainers) == 3
    assert len(prepared(single=True).trainers) == 1
    model = AugMask(augmenter="ecdf", options=NETWORK, device="cpu")
    model.fit(make_frame(), checkpoint=tmp_path / "run")
    assert model.ensemble_ == 1


def test_the_model_and_its_file_hold_the_reason(brief, tmp_path):
    model = AugMask(augmenter="ecdf", options=NETWORK, device="cpu")
    model.fit(make_frame())
    model.save(tmp_path / "m.augmask")
    again = load(tmp_path / "m.augmask", device="cpu")
    assert model.ensemble_ == again.ensemble_ == 2
    assert model.training_["chosen"] == again.training_["chosen"]
    assert "200 rows" in again.training_["chosen"]
    pd.testing.assert_frame_equal(model.sample(9), again.sample(9))


def test_a_table_of_very_few_rows_is_warned_about(brief):
    with pytest.warns(AugMaskWarning, match=f"a table of {FEW_ROWS - 1} rows"):
        prepared(FEW_ROWS - 1)
    # warnings are errors in tests
    prepared(FEW_ROWS)


def test_a_very_wide_table_is_not_started_from_and_that_is_said(brief, monkeypatch):
    assert prepared().state.settings.network["precondition"] == "joint"
    monkeypatch.setattr(presets, "MOST_LINEAR", 0)
    assert prepared().state.settings.network["precondition"] == "table"
    monkeypatch.setattr(presets, "MOST_STARTED", 1)
    with pytest.warns(AugMaskWarning, match="does not start from their correlations"):
        setup = prepared()
    assert setup.state.settings.network["precondition"] == "cell"


# -- time ----------------------------------------------------------------------


def test_a_budget_counts_from_its_start(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("augmask.prepare.time.monotonic", lambda: now[0])
    budget = TimeBudget(2)
    now[0] = 130.0
    assert budget.seconds_left() == 90
    now[0] = 220.0
    with pytest.raises(UsageError, match="max_minutes=2 was used up before training"):
        budget.seconds_left()
    assert TimeBudget(None).seconds_left() is None


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), "5", [1]])
def test_budgets_that_are_not_positive_numbers(minutes):
    with pytest.raises(UsageError, match="max_minutes must be above 0"):
        TimeBudget(minutes)


# -- the identity of a run -----------------------------------------------------


def test_equal_parts_have_equal_fingerprints(make_table):
    table = make_table()
    runs = [
        fingerprint([CDTD, LgbmS(eta=0.5), lambda layout: layout], Settings(), table)
        for _ in range(2)
    ]
    # another object of the same kind is the same run: no address may enter
    assert runs[0] == runs[1]


def test_anything_that_changes_the_result_changes_the_fingerprint(make_table):
    table = make_table()
    runs = [
        fingerprint([CDTD, LgbmS()], Settings(), table),
        fingerprint([CDTD, LgbmS(eta=0.5)], Settings(), table),
        fingerprint([CDTD, Ecdf()], Settings(), table),
        fingerprint(["cdtd", LgbmS()], Settings(), table),
        fingerprint([CDTD, LgbmS()], Settings(steps=7), table),
        fingerprint([CDTD, LgbmS()], Settings(), make_table(seed=1)),
        fingerprint([CDTD, LgbmS(), 1], Settings(), table),
    ]
    assert len(set(runs)) == len(runs)
