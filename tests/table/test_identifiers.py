from __future__ import annotations

import json
import re
import uuid

import numpy as np
import pandas as pd
import pytest

from augmask.errors import SchemaError
from augmask.table.cells import read_cells
from augmask.table.identifiers import FORM_SPEC, fresh_values, identifier_form

RNG = np.random.default_rng(1)
OBSERVED = {
    "uuid": [str(uuid.UUID(bytes=RNG.bytes(16), version=4)) for _ in range(500)],
    "plate": [f"{'ABC'[i % 3]}X-{i * 37 % 1000:03d}" for i in range(900)],
    "full": [f"{i % 10}{chr(97 + i // 10)}" for i in range(100)],
    "padded": [f"P{i:05d}" for i in RNG.permutation(800)],
    "plain": [f"user{i}" for i in range(95, 130)],
    "names": ["Ann Lee", "Bo", "Christopher Smythe"]
    + [f"N{'x' * i}" for i in range(30)],
    "numbers": RNG.permutation(5000)[:300],
    "last numbers": np.array([2**63 - 1, 5, 2**62]),
}
SHAPE = {
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "plate": r"[ABC]X-\d{3}(-\d+)?",
    "full": r"\d[a-z](-\d+)?",
    "padded": r"P\d{5}",
    "plain": r"user\d+",
    "names": r"names \d{6}",
    "numbers": r"\d+",
    "last numbers": r"-?\d+",
}


@pytest.mark.parametrize("name", OBSERVED)
def test_new_values_are_unique_unobserved_and_of_the_same_form(name):
    values = pd.Series(OBSERVED[name])
    form = json.loads(json.dumps(identifier_form(read_cells(values, name), name)))
    assert FORM_SPEC.checked("form", form) == form
    n = 20_000
    new = fresh_values(form, 0, n)
    assert len(set(new.tolist())) == n
    assert not set(new.tolist()) & set(values.tolist())
    assert all(re.fullmatch(SHAPE[name], str(value)) for value in new)
    batches = [fresh_values(form, start, 5000) for start in range(0, n, 5000)]
    assert np.concatenate(batches).tolist() == new.tolist()


def test_numbers_continue_after_the_largest():
    step = identifier_form(read_cells(pd.Series(range(0, 100, 4)), "n"), "n")
    assert fresh_values(step, 0, 2).tolist() == [100, 104]
    loose = identifier_form(read_cells(pd.Series([3, 9, 4]), "n"), "n")
    assert fresh_values(loose, 0, 2).tolist() == [10, 11]


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"make": "magic"},
        {"make": "number", "next": 1},
        {"make": "number", "next": 2**70, "step": 1},
        {"make": "counter", "prefix": "", "suffix": "", "next": 1, "width": 10**9},
        {"make": "counter", "prefix": "", "suffix": "", "next": 10**1001, "width": 0},
        {"make": "placeholder", "prefix": 3},
        {
            "make": "template",
            "slots": [""],
            "first": "0",
            "step": "1",
            "fresh": "1",
            "lap": 0,
        },
        {
            "make": "template",
            "slots": ["ab"],
            "first": "0",
            "step": "1",
            "fresh": "0",
            "lap": 0,
        },
    ],
)
def test_damaged_forms_are_refused(form):
    with pytest.raises(SchemaError, match=r"^form must be a known form of identifiers"):
        FORM_SPEC.checked("form", form, SchemaError)
