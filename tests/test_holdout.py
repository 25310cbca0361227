"""The rows that `fit` holds out: nothing is learned from them, and `evaluate` finds
them again."""

from __future__ import annotations

import json
import logging

import numpy as np
import pandas as pd
import pytest

import augmask as am
from augmask.container import read_container, write_container
from augmask.errors import ArtifactError, UsageError
from augmask.rng import stream
from augmask.table.holdout import Holdout

N = 2_000
STEPS = {"steps": 3, "width": 8, "depth": 1}


def shop(n=N, seed=0, missing=0.1):
    rng = np.random.default_rng(seed)
    pay = rng.normal(50, 10, n).round(2)
    frame = pd.DataFrame(
        {
            "pay": pay,
            "tax": (pay * 0.2 + rng.normal(size=n)).round(2),
            "kind": np.where(pay > 50, "gold", "tin"),
        }
    )
    return frame.mask(rng.random(frame.shape) < missing) if missing else frame


def model(**options):
    return am.AugMask(augmenter="ecdf", preset="fast", options=STEPS, **options)


@pytest.fixture(scope="module")
def planted():
    """Return a table in which only held-out rows have a level and an extreme."""
    frame = shop()
    held_out = Holdout.of(frame, 100).chosen(0)
    frame.loc[held_out[:20], "kind"] = "Zaphod"
    frame.loc[held_out[20:40], "pay"] = 98765.43
    return frame


@pytest.fixture(scope="module")
def fitted(planted, tmp_path_factory):
    path = tmp_path_factory.mktemp("holdout") / "m.augmask"
    model().fit(planted).save(path)
    return path


def test_nothing_is_learned_from_held_out_rows(planted, fitted):
    loaded = am.load(fitted)
    facts = loaded.training_["holdout"]
    assert (facts["rows"], facts["held_out"], facts["share"]) == (N, 100, 0.05)
    assert b"Zaphod" not in fitted.read_bytes()
    rows = loaded.sample(500)
    assert rows["pay"].max() < 1000
    manifest, arrays = read_container(fitted, "model")
    assert "Zaphod" not in json.dumps(manifest)
    assert max(float(np.nanmax(a)) for a in arrays.values() if a.size) < 98765
    # Nor is there an array with as many rows as were held out.
    assert not [k for k, a in arrays.items() if a.shape[:1] in ((N,), (100,))]


def test_the_same_table_measures_privacy_and_utility(planted, fitted):
    loaded = am.load(fitted)
    scores = am.evaluate(
        planted, loaded.sample(500), model=loaded, target="kind", n_jobs=1
    )
    assert scores.facts["rows"] == {"real": 1900, "synthetic": 500, "test": 100}
    assert {"dcr_share_observed", "mia_auc_observed", "mle"} <= scores.entries.keys()
    assert any("the 100 of 2,000 rows" in note for note in scores.facts["notes"])
    assert scores.facts["augmenter"] == "ecdf"
    # 100 rows are no reference for 1,900.
    assert scores.facts["reference"].startswith("two random halves")


@pytest.mark.parametrize("change", ["other values", "fewer rows"])
def test_another_table_is_not_measured(change, planted, fitted):
    other = shop(seed=5) if change == "other values" else planted[:-10]
    loaded = am.load(fitted)
    scores = am.evaluate(
        other, shop(300, 1, 0), model=loaded, target="kind", augmenter=None, n_jobs=1
    )
    assert "test" not in scores.facts["rows"]
    assert not {"dcr_share_observed", "mle"} & scores.entries.keys()
    notes = " ".join(scores.facts["notes"])
    assert "another table than the model was fitted to" in notes


def test_copies_of_the_training_rows_are_found(planted, fitted):
    loaded = am.load(fitted)
    held_out = Holdout.from_dict(loaded.training_["holdout"])
    learned, _ = held_out.split(planted, 0)
    copies = learned.dropna(ignore_index=True)
    scores = am.evaluate(planted, copies, model=loaded, augmenter=None, n_jobs=1)
    assert "dcr_share_observed" in scores.facts["flagged"]
    assert scores.verdict.startswith("Poor: ")
    assert "copies of training rows" in scores.verdict


def test_test_rows_that_you_pass_win(planted, fitted):
    scores = am.evaluate(
        *(planted, shop(300, 1, 0)),
        model=am.load(fitted),
        test=shop(400, 2),
        augmenter=None,
        n_jobs=1,
    )
    assert scores.facts["rows"] == {"real": N, "synthetic": 300, "test": 400}


def test_who_holds_no_rows_out(tmp_path):
    frame = shop()
    assert model().fit(frame[:500]).training_["holdout"] is None
    assert model().fit(frame, holdout=0).training_["holdout"] is None
    paper = am.AugMask(augmenter="ecdf", preset="paper", options=STEPS)
    assert paper.fit(frame).training_["holdout"] is None
    together = am.fit_many([model(), model(seed=1)], [frame, frame])
    assert [m.training_["holdout"] for m in together] == [None, None]
    alone = model().fit(frame[:500])
    scores = am.evaluate(
        frame[:500], shop(200, 1, 0), model=alone, augmenter=None, n_jobs=1
    )
    assert any("learned from all rows" in note for note in scores.facts["notes"])


def test_holding_out_is_told(caplog):
    with caplog.at_level(logging.INFO, "augmask"):
        model().fit(shop())
    assert "100 of 2,000 rows are held out" in caplog.text
    with pytest.raises(UsageError, match="holdout must be"):
        model().fit(shop(100), holdout=0.7)


def test_the_seed_moves_the_rows_and_a_share_may_be_given():
    frame = shop(300)
    first, second = (model(seed=s).fit(frame, holdout=0.1) for s in (0, 1))
    kept = [Holdout.from_dict(m.training_["holdout"]) for m in (first, second)]
    assert kept[0] == kept[1]
    assert (kept[0].chosen(0) != kept[1].chosen(1)).any()


def test_private_extremes_look_at_training_rows_only():
    frame = shop(missing=0.0)
    held_out = Holdout.of(frame, 100).chosen(0)
    # Five rows have the level, but only four are learned from.
    place = stream(0, "elsewhere").choice(
        np.setdiff1d(np.arange(N), held_out), 4, replace=False
    )
    frame.loc[[*place, held_out[0]], "kind"] = "Zaphod"
    private = model().fit(frame, private_extremes=True)
    assert "Zaphod" not in private.schema_["kind"].all_levels


def test_a_checkpoint_belongs_to_its_held_out_rows(tmp_path, monkeypatch):
    from augmask.train.checkpoint import Checkpoint

    frame, path = shop(), tmp_path / "c"
    monkeypatch.setattr(Checkpoint, "due", property(lambda _: True))
    whole = model().fit(frame, checkpoint=path)
    assert path.exists()
    again = model().fit(frame, checkpoint=path)
    assert again.sample(20, seed=1).equals(whole.sample(20, seed=1))
    with pytest.raises(ArtifactError, match="other data, settings or seed"):
        model().fit(frame, checkpoint=path, holdout=0)


def test_a_file_with_impossible_facts_is_refused(fitted, tmp_path):
    manifest, arrays = read_container(fitted, "model")
    manifest.pop("checksums", None)
    manifest["training"]["holdout"]["rows"] = -5
    write_container(tmp_path / "bad.augmask", "model", manifest, arrays)
    with pytest.raises(ArtifactError, match="its holdout is"):
        am.load(tmp_path / "bad.augmask")
