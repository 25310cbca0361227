from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask, load
from augmask.container import read_container
from augmask.table.infer import infer_schema
from augmask.table.private import FEWEST, suppress_rare_values

N = 200
SECRETS = {
    "pay": 987654,
    "kg": 311.7,
    "job": "astronaut",
    "town": "Nowhere-on-Sea",
    "born": pd.Timestamp("1903-07-19"),
    "seen": pd.Timestamp("2199-02-03 04:05:06", tz="Europe/Paris"),
    "code": "98765",
}


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "pay": rng.integers(1000, 5000, N),
            "kg": rng.normal(70, 9, N).round(1),
            "job": rng.choice(["cook", "smith"], N),
            "town": pd.Categorical(rng.choice(["Ulm", "Bonn"], N)),
            "born": pd.Timestamp("1960-01-01")
            + pd.to_timedelta(rng.integers(0, 9000, N), "D"),
            "seen": pd.date_range("2024-01-01", periods=N, freq="h", tz="Europe/Paris"),
            "code": [f"{v:05d}" for v in rng.integers(10, 14, N)],
            "key": [f"K{i + 40000:07d}" for i in range(N)],
        }
    )
    frame["town"] = frame["town"].cat.add_categories([SECRETS["town"]])
    for name, value in SECRETS.items():
        frame.loc[7, name] = value
    frame.loc[9, "job"] = None
    return frame


def test_values_of_few_rows_are_removed_and_the_rest_stays():
    frame = make_frame()
    result = suppress_rare_values(frame, infer_schema(frame))
    assert result.columns.tolist() == frame.columns.tolist()
    for name, value in SECRETS.items():
        assert not (result[name] == value).any(), name
        assert result[name].dtype.kind == frame[name].dtype.kind
        one, two = result[name].astype(object), frame[name].astype(object)
        same = (one == two) | (one.isna() & two.isna())
        assert same.sum() >= N - 2 * FEWEST, name
    assert result["pay"].max() < SECRETS["pay"]
    assert result["pay"].notna().all()
    # Days stay days.
    assert (result["born"].dt.normalize() == result["born"]).all()


@pytest.mark.parametrize("private", [False, True])
def test_a_model_file_does_not_disclose_rare_values(tmp_path, private):
    frame = make_frame()
    options = {"steps": 2, "width": 8, "depth": 1, "sampling_steps": 3}
    model = AugMask(augmenter="ecdf", preset="fast", options=options, device="cpu")
    with pytest.warns(match="identifiers"):
        model.fit(frame, private_extremes=private)
    model.save(tmp_path / "m.augmask")
    text = json.dumps(read_container(tmp_path / "m.augmask", "model")[0])
    secrets = [str(SECRETS[name]) for name in ("pay", "kg", "job", "town")]
    secrets += ["98765", "40200", str((SECRETS["born"] - pd.Timestamp(0)).days)]
    assert [secret in text for secret in secrets] == [not private] * len(secrets)
    rows = load(tmp_path / "m.augmask", device="cpu").sample(50)
    assert rows.notna().all(axis=None)
