"""Tables of many files: a sample of their rows, and standard errors of the scores."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import augmask as am
from augmask.errors import DataError
from augmask.evaluation import evaluate as module
from augmask.evaluation import samples
from augmask.evaluation.results import Entry
from augmask.evaluation.samples import SUBSAMPLES, Samples, with_errors
from augmask.evaluation.tables import read_tables
from augmask.table import partitions
from augmask.table.holdout import Holdout, partitions_fingerprint
from augmask.table.partitions import partitioned_table

N = 1_500


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 12, n)
    sex = np.where(rng.random(n) < 1 / (1 + np.exp((age - 45) / 9)), "f", "m")
    return pd.DataFrame({"age": age, "pay": age + rng.normal(0, 9, n), "sex": sex})


def write(frame: pd.DataFrame, folder: Path, files: int = 3) -> Path:
    folder.mkdir()
    for i in range(files):
        frame[i::files].to_parquet(folder / f"{i}.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def lakes(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("lakes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "PART_ROWS", 500)
        return tuple(
            write(people(N, seed), folder / name)
            for seed, name in enumerate(["real", "synthetic"])
        )


@pytest.fixture(scope="module")
def scored(lakes):
    return am.evaluate(*lakes, subsample=1_000)


def test_the_numbers_are_those_of_the_sampled_rows(lakes, scored):
    reader = Samples(1_000, seed=0)
    rows = [
        reader.open(folder, label)
        for folder, label in zip(lakes, ("real", "synthetic"), strict=True)
    ]
    assert [len(table) for table in rows] == [1_000, 1_000]
    plain = am.evaluate(*rows)
    assert {key: plain[key] for key in plain.entries} == {
        key: scored[key] for key in scored.entries
    }
    assert all(entry.error is None for entry in plain.entries.values())
    assert "error" not in plain.to_frame()
    assert "±" not in str(plain)
    assert not any("error" in plain.to_dict()[key] for key in plain.entries)
    assert "sampled" not in plain.facts


def test_errors_are_stated_wherever_scores_are(scored, tmp_path):
    errors = {key: entry.error for key, entry in scored.entries.items()}
    assert all(0 < error < 0.3 for error in errors.values())
    assert scored.to_frame()["error"].to_dict() == errors
    assert json.loads(scored.to_json())["shape"]["error"] == errors["shape"]
    assert scored.facts["sampled"] == {"real": N, "synthetic": N}
    notes = " ".join(scored.facts["notes"])
    assert "stratified sample, 1,000 of 1,500 rows of the real table" in notes
    assert "± error" in str(scored)
    assert f"{errors['shape']:.4f}" in str(scored)
    assert f"± {errors['shape']:.4f}" in scored._repr_html_()
    scored.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"± {errors['shape']:.4f}" in page
    assert "sampled from 1,500" in page


def test_the_error_of_a_mean_is_the_known_one():
    frame = people(4_000, seed=3)
    tables = read_tables(frame, frame)

    def score(part):
        mean = float(part.real["age"].mean())
        entry = Entry(mean, None, None, "fidelity", "higher", "Mean", "")
        return {"mean": entry, **({"odd": entry} if part.real["age"][0] > 45 else {})}

    entry = Entry(0.0, None, None, "fidelity", "higher", "Mean", "")
    entries = with_errors({"mean": entry, "odd": entry}, tables, score)
    # ten values tell a standard deviation to a quarter
    known = frame["age"].std() / np.sqrt(len(frame))
    assert entries["mean"].error == pytest.approx(known, rel=0.6)
    assert entries["odd"].error is None


def test_small_tables_have_no_errors():
    n = samples.FEWEST_ROWS * SUBSAMPLES - 1
    few = read_tables(people(n, 0), people(n, 1))
    assert samples.subsamples(few) == []


def model_of(table: partitions.PartitionedTable, held_out: int, seed: int = 7):
    """Return what `evaluate` asks a model of."""
    facts = Holdout(
        held_out / len(table), len(table), held_out, partitions_fingerprint(table)
    )
    return SimpleNamespace(
        training_={"holdout": facts.to_dict()},
        seed=seed,
        schema_=am.infer_schema(people(100, 0)),
        augmenter_="ecdf",
        backbone="cdtd",
        preset_="fast",
        settings_=SimpleNamespace(steps=3),
        ensemble_=1,
    )


def test_held_out_rows_are_found_and_left_out(lakes):
    table = partitioned_table(lakes[0])
    model = model_of(table, 100)
    whole = table.read()
    chosen = Holdout.from_dict(model.training_["holdout"]).chosen(7)
    reader = Samples(800, seed=0)
    learned, test, note = module._held_out_rows(lakes[0], model, reader)
    assert test.to_pandas().equals(whole.iloc[chosen].reset_index(drop=True))
    assert 700 < len(learned) < 800
    assert not set(learned["age"].to_pylist()) & set(whole["age"][chosen])
    assert reader.sizes == {"real": (len(learned), N)}
    assert "the 100 of 1,500 rows that `fit` held out" in note

    scores = am.evaluate(*lakes, model=model, subsample=800, target="sex")
    assert scores.facts["held_out"]
    assert scores.facts["rows"]["test"] == 100
    assert {"dcr_share", "mle"} <= set(scores.entries)
    # a hundred test rows are too few to be cut in ten
    assert scores.entries["mle"].error is None
    assert scores.entries["shape"].error is not None


def test_another_table_has_no_held_out_rows(lakes):
    model = model_of(partitioned_table(lakes[1]), 100)
    real, test, note = module._held_out_rows(lakes[0], model, Samples(800, seed=0))
    assert (len(real), test) == (800, None)
    assert "another table than the model was fitted to" in note


def test_one_side_may_be_in_memory(lakes):
    scores = am.evaluate(people(600, 2), str(lakes[1] / "*.parquet"), subsample=600)
    assert scores.facts["sampled"] == {"synthetic": N}
    assert scores.entries["shape"].error is not None


def test_an_unreadable_table_is_named(lakes, tmp_path):
    with pytest.raises(DataError, match="the synthetic table: no Parquet file in"):
        am.evaluate(lakes[0], tmp_path)
