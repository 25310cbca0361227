"""What holds for every public function: an odd argument is one sentence or accepted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import augmask as am
from augmask.errors import AugMaskError

FRAME = pd.DataFrame({"kg": np.arange(30) / 7, "job": ["cook", "smith", "clerk"] * 10})
TINY = {"steps": 2, "batch_size": 16, "width": 8, "depth": 1, "sampling_steps": 3}

ODD: dict[str, Any] = {
    "long number": 10**5000,
    "nothing": pd.NA,
    "array": np.ones(2),
    "mapping": {"a": 1},
    "list of lists": [[1]],
    "object": object(),
    "type": int,
    "bytes": b"x",
    "not a number": float("nan"),
}


def model(**parameters: Any) -> am.AugMask:
    usual = {"augmenter": "ecdf", "preset": "fast", "device": "cpu", "options": TINY}
    return am.AugMask(**{**usual, **parameters})


@pytest.fixture(scope="module")
def fitted() -> am.AugMask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model().fit(FRAME)


CALLS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "AugMask": (
        lambda _, **odd: model(**odd).fit(FRAME),
        ("backbone", "augmenter", "supervise", "preset", "seed", "device", "ensemble"),
    ),
    "fit": (
        lambda _, **odd: model().fit(FRAME, **odd),
        ("constraints", "max_minutes", "checkpoint", "holdout", "progress"),
    ),
    "sample": (
        lambda fitted, **odd: fitted.sample(**{"n": 2, **odd}),
        ("n", "seed", "where", "missing", "output", "progress"),
    ),
    "sample_to": (
        lambda fitted, **odd: fitted.sample_to(**{"path": "x.csv", "n": 2, **odd}),
        ("path", "n", "seed", "missing"),
    ),
    "impute": (
        lambda fitted, **odd: fitted.impute(FRAME.mask(FRAME["kg"] > 3), **odd),
        ("n_draws", "seed", "progress"),
    ),
    "save": (lambda fitted, **odd: fitted.save(**odd), ("path",)),
    "load": (
        lambda _, **odd: am.load(**{"path": "absent.augmask", **odd}),
        ("path", "device", "backbone", "constraints"),
    ),
    "to_toml": (lambda fitted, **odd: fitted.schema_.to_toml(**odd), ("path",)),
    "ampute": (
        lambda _, **odd: am.ampute(FRAME, **odd),
        ("mechanism", "ratio", "seed", "mar"),
    ),
    "augment": (
        lambda _, **odd: am.augment(FRAME, **{"augmenter": "ecdf", **odd}),
        ("augmenter", "seed", "schema"),
    ),
    "evaluate": (
        lambda _, **odd: am.evaluate(FRAME, FRAME, **odd),
        ("target", "model", "schema", "seed", "subsample", "learner"),
    ),
    "fit_many": (
        lambda _, **odd: am.fit_many(**{"models": [model()], "tables": [FRAME], **odd}),
        ("models", "tables", "schema", "constraints", "max_minutes"),
    ),
    "infer_schema": (lambda _, **odd: am.infer_schema(FRAME, **odd), ("overrides",)),
    "inspect": (lambda _, **odd: am.inspect(FRAME, **odd), ("schema",)),
    "load_clinic": (lambda _, **odd: am.load_clinic(**{"n": 9, **odd}), ("n", "seed")),
    "pool": (
        lambda _, **odd: am.pool(**{"estimates": [1, 2], "variances": [1, 1], **odd}),
        ("estimates", "variances", "confidence"),
    ),
    "read_table": (
        lambda _, **odd: am.read_table(FRAME, **odd),
        ("na", "sep", "header", "encoding", "sheet"),
    ),
}
CASES = [(name, each) for name, (_, names) in CALLS.items() for each in names]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_an_odd_argument_is_refused_in_one_sentence_or_accepted(
    fitted, tmp_path, monkeypatch, name, argument, odd
):
    monkeypatch.chdir(tmp_path)
    call, _ = CALLS[name]
    if odd == "type" and argument in ("constraints", "progress"):
        pytest.skip("a function of the user's, whose errors are the user's")
    said = ""
    try:
        call(fitted, **{argument: ODD[odd]})
    except AugMaskError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 2_000


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "cells", [[[1], [2]], [10**5000, 1], [{"a": 1}, None], [b"a", b"b"], [1, "a"]]
)
def test_a_column_that_cannot_be_learned_is_a_data_error(fitted, cells):
    frame = pd.DataFrame({"kg": pd.Series(cells * 15, dtype=object), "job": ["a"] * 30})
    for call in (
        model().fit,
        fitted.impute,
        am.inspect,
        am.augment,
        lambda frame: am.evaluate(frame, frame),
        am.AugMaskImputer(preset="fast", augmenter="ecdf", options=TINY).fit,
    ):
        with pytest.raises(AugMaskError):
            call(frame)
