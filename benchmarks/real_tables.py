"""Real tables of AUGMASK_DATA as the scripts here use them: reading and splitting.

`augmask bench` has a split of its own; the committed scores of the scripts depend on
this one, which is scikit-learn's.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pandas as pd


def split(
    frame: pd.DataFrame, target: str | None, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return 60 % train and 20 % test rows, stratified by `target` if given."""
    from sklearn.model_selection import train_test_split

    by = frame[target] if target else None
    train, rest = train_test_split(
        frame, train_size=0.6, random_state=seed, stratify=by
    )
    by = rest[target] if target else None
    _, test = train_test_split(rest, train_size=0.5, random_state=seed, stratify=by)
    return train.reset_index(drop=True), test.reset_index(drop=True)


def load(name: str) -> tuple[pd.DataFrame, dict]:
    """Return a complete table and the roles of its columns."""
    folder = Path(os.environ["AUGMASK_DATA"])
    role = tomllib.loads((folder / "roles.toml").read_text())[name]
    frame = pd.read_csv(folder / role.get("file", f"{name}.csv.gz"))
    frame = frame.drop(columns=role.get("drop", [])).dropna().reset_index(drop=True)
    numeric = role["numeric"]
    integers = [c for c in numeric if (frame[c] == frame[c].round()).all()]
    role["kinds"] = {
        c: "category" if c not in numeric else "integer" if c in integers else "float"
        for c in frame
    }
    return frame, role
