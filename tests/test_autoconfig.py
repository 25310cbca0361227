"""`auto` goes by the size of the table, says so, and leaves alone what the user set."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

import augmask.autoconfig as autoconfig
from augmask import AugMask, load
from augmask.autoconfig import FEW_ROWS, SMALL_ROWS, Choice, Size, choose
from augmask.config import Settings
from augmask.diffusion import BACKBONES
from augmask.errors import AugMaskWarning
from augmask.prepare import prepare_fit
from augmask.presets import resolve_preset
from augmask.progress import silent

NETWORK = {"width": 8, "depth": 1, "time_width": 8, "sampling_steps": 2}


def size(rows: int, observed: int | None = None, backbone: str | None = "cdtd") -> Size:
    return Size(rows, 5, 5 * rows if observed is None else observed, 4, "cpu", backbone)


def make_frame(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=n)})
    frame["z"] = np.where(x > 0, "a", "b")
    frame.loc[rng.random(n) < 0.2, "y"] = np.nan
    return frame


def ready(n: int = 200, alone: bool = False, **changes):
    model = AugMask(augmenter="ecdf", device="cpu", **changes)
    return prepare_fit(model, make_frame(n), None, None, silent, alone=alone)


@pytest.fixture
def brief(monkeypatch):
    """Let small tables be learned in three steps of two members."""
    monkeypatch.setattr(autoconfig, "STARTED_STEPS", ())
    monkeypatch.setattr(autoconfig, "SMALL_STEPS", ())
    monkeypatch.setattr(autoconfig, "MOST_SMALL_STEPS", 3)
    monkeypatch.setattr(autoconfig, "SMALL_MEMBERS", 2)


def test_steps_grow_with_the_observed_cells_and_end_where_tables_are_not_small():
    steps = [
        choose(size(500, observed)).settings["steps"]
        for observed in (100, 3_000, 5_000, 20_000)
    ]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    assert choose(size(SMALL_ROWS - 1)).ensemble == autoconfig.SMALL_MEMBERS
    assert choose(size(SMALL_ROWS)) == Choice()


def test_all_members_together_take_no_more_rows_than_the_preset_alone():
    _, fast, _ = resolve_preset("fast", "cpu", "cdtd")
    choice = choose(size(SMALL_ROWS - 1, observed=10**6))
    assert choice.ensemble is not None
    rows = choice.ensemble * choice.settings["steps"] * choice.settings["batch_size"]
    assert rows <= fast.steps * fast.batch


def test_what_the_user_set_stays():
    choice = choose(size(200), taken=("batch_size",))
    assert "batch_size" not in choice.settings
    assert "holdout" in choice.settings
    # the steps are the budget: no further members are trained with it
    assert choose(size(200), taken=("steps",)) == Choice()


def test_a_later_rule_wins_and_every_reason_is_told():
    def first(_):
        return Choice({"batch_size": 1, "lr": 0.1}, 2, "ecdf", ("one",), ("careful",))

    def second(_):
        return Choice({"batch_size": 2}, augmenter="mean", reasons=("two",))

    def silent_rule(_):
        return None

    found = choose(size(9), rules=(first, silent_rule, second))
    assert found.settings == {"batch_size": 2, "lr": 0.1}
    assert (found.ensemble, found.augmenter) == (2, "mean")
    assert found.told == "one; two"
    assert found.warnings == ("careful",)


@pytest.mark.parametrize("backbone", [*BACKBONES, None])
def test_what_is_chosen_can_be_set_for_every_backbone(backbone):
    chosen = choose(size(200, backbone=backbone)).settings
    assert chosen
    # no keyword of one backbone, which another would refuse
    Settings().replace(chosen, ())


def test_who_starts_from_the_table_takes_fewer_steps():
    short = choose(size(200)).settings
    assert short["steps"] == autoconfig.STARTED_STEPS[0][1]
    assert short["warmup"] < short["steps"]
    on_a_gpu = Size(200, 5, 1_000, 4, "cuda", "cdtd")
    for other in (size(200, backbone="tabddpm"), on_a_gpu):
        assert choose(other).settings["steps"] > short["steps"]


def test_the_size_is_that_of_the_encoded_table():
    made = ready(200, preset="fast", options=NETWORK)
    found = Size.of(made.table, "cpu", "cdtd")
    assert (found.rows, found.columns, found.levels) == (200, 3, 2)
    assert found.observed == make_frame(200).notna().to_numpy().sum()


def test_auto_trains_several_short_members_and_says_so(caplog):
    with caplog.at_level(logging.INFO, "augmask"):
        made = ready(200, options=NETWORK)
    assert len(made.trainers) == autoconfig.SMALL_MEMBERS
    assert made.settings.steps == autoconfig.STARTED_STEPS[0][1]
    assert not made.trainer.data.hidden.any()
    assert "200 rows" in made.choice.told
    assert made.choice.told in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "fast", "options": NETWORK},
        {"options": NETWORK | {"steps": 4_000}},
    ],
    ids=["a preset by name", "steps"],
)
def test_nothing_is_chosen_for_who_has_chosen(changes):
    made = ready(200, **changes)
    _, expected, _ = resolve_preset("fast", "cpu", "cdtd", NETWORK, None)
    assert made.settings == expected
    assert (len(made.trainers), made.choice) == (1, Choice())


def test_tables_that_are_not_small_are_learned_as_before():
    made = ready(SMALL_ROWS, options=NETWORK)
    _, expected, _ = resolve_preset("fast", "cpu", "cdtd", NETWORK, None)
    assert made.settings == expected
    assert len(made.trainers) == 1


def test_an_asked_for_number_of_members_and_a_checkpoint_win(brief, tmp_path):
    assert len(ready(200, options=NETWORK, ensemble=1).trainers) == 1
    assert len(ready(200, options=NETWORK, ensemble=3).trainers) == 3
    assert len(ready(200, options=NETWORK, alone=True).trainers) == 1
    model = AugMask(augmenter="ecdf", options=NETWORK, device="cpu")
    model.fit(make_frame(200), checkpoint=tmp_path / "run")
    assert model.ensemble_ == 1


def test_a_rule_may_choose_the_augmenter_unless_it_is_named(monkeypatch):
    rule = (lambda _: Choice(augmenter="ecdf"),)
    monkeypatch.setattr(autoconfig.choose, "__defaults__", ((), rule))
    for named, used in (("auto", "ecdf"), ("mean", "mean")):
        model = AugMask(augmenter=named, options=NETWORK, device="cpu")
        made = prepare_fit(model, make_frame(200), None, None, silent)
        assert made.augmenter == used


def test_the_model_and_its_file_tell_what_was_chosen(brief, tmp_path):
    model = AugMask(augmenter="ecdf", options=NETWORK, device="cpu")
    model.fit(make_frame(200))
    model.save(tmp_path / "m.augmask")
    again = load(tmp_path / "m.augmask", device="cpu")
    assert model.ensemble_ == again.ensemble_ == 2
    assert model.training_["chosen"] == again.training_["chosen"]
    assert "200 rows" in again.training_["chosen"]
    pd.testing.assert_frame_equal(model.sample(9), again.sample(9))


def test_a_table_of_very_few_rows_is_warned_about(brief):
    with pytest.warns(AugMaskWarning, match=f"a table of {FEW_ROWS - 1} rows"):
        ready(FEW_ROWS - 1, options=NETWORK)
    # warnings are errors in tests
    ready(FEW_ROWS, options=NETWORK)
