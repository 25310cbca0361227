"""Model files: what one claims is checked against what it holds before it is built."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.sealed import Parts, read_parts, with_arrays, with_metadata, write_parts

from augmask import AugMask, load
from augmask.errors import ArtifactError, UsageError

TINY = {"steps": 2, "width": 8, "depth": 1, "time_width": 8, "sampling_steps": 4}
N = 60


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "kg": rng.normal(70, 9, N).round(1),
            "age": rng.integers(20, 90, N).astype(float),
            "job": rng.choice(["smith", "cook", "clerk"], N),
            "smokes": rng.choice([True, False], N).astype(object),
            "day": pd.date_range("2020", periods=N, tz="Europe/Paris"),
        }
    ).mask(rng.random((N, 5)) < 0.2)
    frame["grade"] = pd.Categorical(rng.choice(["a", "b"], N), ["a", "b", "c"])
    frame.insert(0, "key", [f"k{i:05d}" for i in range(N)])
    frame["code"] = rng.permutation([f"{a}{b:02d}x" for a in "pqr" for b in range(20)])
    frame["land"] = "DE"
    return frame


@pytest.fixture(scope="module", params=["cdtd", "tabdiff", "tabddpm"])
def parts(request, tmp_path_factory) -> Parts:
    path = tmp_path_factory.mktemp(request.param) / "m.augmask"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(
            request.param, "ecdf", preset="fast", options=TINY, device="cpu"
        )
        model.fit(make_frame()).save(path)
    return read_parts(path)


def refused(path: Path) -> str:
    """Load a file that must be refused, fast and in little memory; return why."""
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(ArtifactError) as error:
        load(path, device="cpu")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert time.process_time() - began < 5
    return str(error.value)


def column(manifest, name):
    return next(c for c in manifest["schema"]["columns"] if c["label"] == name)


def put(*keys, value):
    """Return a change of one value deep in a manifest."""

    def change(manifest):
        for key in keys[:-1]:
            if isinstance(key, tuple):
                manifest = column(manifest, key[1])
            else:
                manifest = manifest[key]
        manifest[keys[-1]] = value

    return change


CLAIMS = {
    "width": put("settings", "network", "width", value=10**9),
    "depth": put("settings", "network", "depth", value=10**6),
    "time width": put("settings", "network", "time_width", value=10**9),
    "no network": put("settings", "network", value=[["width", 3]]),
    "nan in the network": put("settings", "network", "anchor", value=[[[]]]),
    "ensemble": put("parameters", "ensemble", value=10**5),
    "members": put("training", "members", value=10**5),
    "half an ensemble": put("parameters", "ensemble", value=1.5),
    "ensemble as text": put("parameters", "ensemble", value="1"),
    "reserved": put("layout", "reserved", value=10**9),
    "steps of the sampler": put("settings", "sampling_steps", value=10**9),
    "solver": put("settings", "solver", value="unknown"),
    "identifier width": put(("column", "key"), "form", "width", value=10**9),
    "identifier number": put(("column", "key"), "form", "next", value=10**4000),
    "identifier slots": put(
        ("column", "code"), "form", "slots", value=["ab" * 9] * 10**5
    ),
    "time zone": put(("column", "day"), "tz", value="Europe/Atlantis"),
    "time zone in the dtype": put(
        ("column", "day"), "dtype", value="datetime64[ns, Mars]"
    ),
    "dtype of dates": put(("column", "day"), "dtype", value="float64"),
    "dtype of text": put(("column", "job"), "dtype", value="float64"),
    "dtype of numbers": put(("column", "kg"), "dtype", value="datetime64[ns]"),
    "dtype of keys": put(("column", "key"), "dtype", value="int64"),
    "dtype of a constant": put(("column", "land"), "dtype", value="timedelta64[s]"),
    "bounds": put(("column", "age"), "high", value=10**400),
    "levels": put(("column", "job"), "levels", value=["smith", 3, True]),
    "constraints of one word": put("constraints", value="own"),
    "constraints of a number": put("constraints", value=5),
    "no constraints": lambda manifest: manifest.pop("constraints"),
    "order of nothing": put("constraints", value=[{"order": "kg <= job"}]),
    "combination of lists": put(
        "constraints", value=[{"combination": ["job", "grade"], "levels": [[[]], [[]]]}]
    ),
    "missing of nothing": put("missing_model", "factors", value=[{"columns": [0]}]),
    "missing in too many columns": put("missing_model", "levels", value=[[{}]] * 9),
    "augmenter": put("parameters", "augmenter", value=["lgbm-s"]),
    "supervise": put("parameters", "supervise", value={}),
    "seed": put("parameters", "seed", value=-3),
    "backbone": put("parameters", "backbone", value=7),
    "training": put("training", value=["steps"]),
    "preset": put("preset", value=[1]),
    "preset of the parameters": put("parameters", "preset", value=None),
    "a parameter more": put("parameters", "epochs", value=3),
    "a parameter less": lambda manifest: manifest["parameters"].pop("supervise"),
}


@pytest.mark.parametrize("change", CLAIMS.values(), ids=CLAIMS.keys())
def test_claims_that_the_file_does_not_bear_out_are_refused(parts, change, tmp_path):
    path = tmp_path / "m.augmask"
    write_parts(path, with_metadata(parts, change))
    assert "invalid model file" in refused(path)


def test_the_claims_are_about_columns_of_these_kinds(parts):
    kinds = {c["label"]: c["kind"] for c in parts.metadata["schema"]["columns"]}
    assert kinds["key"] == kinds["code"] == "identifier"
    assert (kinds["land"], kinds["age"]) == ("constant", "integer")


def first(arrays, start):
    return next(name for name in arrays if name.startswith(start))


def cast(start, dtype):
    def change(arrays):
        name = first(arrays, start)
        arrays[name] = arrays[name].astype(dtype)

    return change


def replaced(start, array):
    return lambda arrays: arrays.update({first(arrays, start): array})


ARRAYS = {
    "weights of doubles": cast("weights/", np.float64),
    "weights of codes": cast("weights/", np.int32),
    "weights of halves": cast("weights/", np.float16),
    "a weight more": lambda arrays: arrays.update({"weights/more": np.zeros(3)}),
    "a weight of another shape": replaced("weights/", np.zeros((3, 1), np.float32)),
    "a scaling of texts": replaced("codec/", np.zeros((2, 2), np.uint8)),
    "histories of two lengths": replaced("history/", np.zeros(1000)),
    "a history of a matrix": replaced("history/", np.zeros((2, 2))),
    "edges that are no row": replaced("missing_model/edges", np.zeros((2, 2))),
    "edges that fall": replaced("missing_model/edges", np.array([3.0, np.nan, 1.0])),
    "no history": lambda arrays: [
        arrays.pop(name) for name in list(arrays) if name.startswith("history/")
    ],
}


@pytest.mark.parametrize("change", ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays_that_no_model_has_are_refused(parts, change, tmp_path):
    path = tmp_path / "m.augmask"
    write_parts(path, with_arrays(parts, change))
    assert "invalid model file" in refused(path)


def test_weights_that_overflow_are_refused_by_sample(parts, tmp_path):
    path = tmp_path / "m.augmask"

    def burst(arrays):
        for name, array in arrays.items():
            if name.startswith("weights/") and array.dtype == np.float32:
                arrays[name] = np.full_like(array, 3e38)

    write_parts(path, with_arrays(parts, burst))
    model = load(path, device="cpu")
    with pytest.raises(ArtifactError, match="not finite"):
        model.sample(3)


def test_an_unchanged_file_loads(parts, tmp_path):
    path = tmp_path / "m.augmask"
    write_parts(path, parts)
    assert len(load(path, device="cpu").sample(3)) == 3


def test_a_file_of_another_fit_is_told_apart_by_its_manifest(parts):
    manifest = parts.metadata
    assert manifest["libraries"].keys() >= {"python", "augmask", "torch"}
    assert manifest.keys() >= {"missing_model", "constraints", "schema", "settings"}
    groups = {name.partition("/")[0] for name in parts.arrays}
    assert groups == {"weights", "codec", "history", "missing_model"}


@pytest.mark.parametrize("constraints", [1.5, None, True, "kg > 1", [5], {"a": 1}])
def test_constraints_that_are_no_functions_are_a_usage_error(
    parts, tmp_path, constraints
):
    path = tmp_path / "m.augmask"
    write_parts(path, parts)
    with pytest.raises(UsageError, match="must be a list of Python functions"):
        load(path, constraints=constraints)
