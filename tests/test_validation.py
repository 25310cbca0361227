"""Specifications: text is read and values are checked in one sentence."""

from __future__ import annotations

from numbers import Real
from typing import Literal, Optional

import numpy as np
import pytest

from augmask.errors import SchemaError, UsageError
from augmask.validation import (
    AnyOf,
    ListSpec,
    RecordSpec,
    Refined,
    ValueSpec,
    spec_for,
)

SIZE = ValueSpec(int, lowest=1, highest=100)


@pytest.mark.parametrize(
    ("spec", "text", "value"),
    [
        (ValueSpec(bool), "false", False),
        (ValueSpec(bool), "TRUE", True),
        (ValueSpec(bool), "off", False),
        (ValueSpec(bool), "yes", True),
        (SIZE, "32", 32),
        (ValueSpec(float), "1", 1.0),
        (ValueSpec(float), "1e-3", 1e-3),
        (ValueSpec(float, optional=True), "none", None),
        (ValueSpec(float, optional=True), "0", 0.0),
        (ValueSpec(str), "12", "12"),
        (ValueSpec(None, ("a", 2)), "2", 2),
        # Any type.
        (ValueSpec(), "12", 12),
        (ValueSpec(), "0.5", 0.5),
        (ValueSpec(), "False", False),
        (ValueSpec(), "word", "word"),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(spec, text, value):
    result = spec.checked("it", spec.read(text))
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (SIZE, "-1"),
        (SIZE, "0"),
        (SIZE, "101"),
        (SIZE, "abc"),
        (SIZE, "nan"),
        (SIZE, "1e99"),
        (SIZE, "2.5"),
        (SIZE, "true"),
        (SIZE, "9" * 9_000),
        (ValueSpec(float), "inf"),
        (ValueSpec(float), "nan"),
        (ValueSpec(float), "none"),
        (ValueSpec(float, above=0), "0"),
        (ValueSpec(float, below=1), "1"),
        (ValueSpec(bool), "maybe"),
        (ValueSpec(bool), "2"),
        (ValueSpec(None, ("a", "b")), "c"),
        (ValueSpec(), "inf"),
    ],
)
def test_invalid_text_raises_one_sentence(spec, text):
    with pytest.raises(UsageError, match=r"^it must be .*, got ") as caught:
        spec.checked("it", spec.read(text))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("spec", "value", "plain"),
    [
        (SIZE, np.int64(3), int),
        (ValueSpec(float), 3, float),
        (ValueSpec(float), np.float32(3), float),
        (ValueSpec(bool), np.True_, bool),
        (ValueSpec(), np.int8(3), int),
    ],
)
def test_values_become_plain_python(spec, value, plain):
    result = spec.checked("it", value)
    assert result == value
    assert type(result) is plain


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (SIZE, True),
        (SIZE, "3"),
        (SIZE, None),
        pytest.param(SIZE, 10**9_000, id="digits"),
        pytest.param(ValueSpec(float), 10**400, id="overflow"),
        (ValueSpec(bool), 1),
        (ValueSpec(bool), "false"),
        (ValueSpec(str), 1),
        (ValueSpec(None, (1, 2)), True),
        # A model file cannot store these.
        (ValueSpec(), object()),
        (ValueSpec(), [float("inf")]),
    ],
)
def test_python_values_are_not_converted_between_types(spec, value):
    with pytest.raises(UsageError, match=r"^it must be .*, got "):
        spec.checked("it", value)


@pytest.mark.parametrize(
    ("annotation", "spec"),
    [
        (int, ValueSpec(int)),
        (bool, ValueSpec(bool)),
        (float | None, ValueSpec(float, optional=True)),
        (Optional[str], ValueSpec(str, optional=True)),  # noqa: UP045
        (Literal["a", "b"], ValueSpec(None, ("a", "b"))),
        (Literal["a"] | None, ValueSpec(None, ("a",), optional=True)),
        (int | str, ValueSpec()),
        (list[int], ValueSpec()),
        (None, ValueSpec()),
    ],
)
def test_annotations_imply_a_specification(annotation, spec):
    assert spec_for(annotation) == spec


SCALAR = AnyOf(ValueSpec(str), ValueSpec(Real), ValueSpec(bool))
PAIR = ListSpec((ValueSpec(str), ValueSpec(int, lowest=1)))
RECORD = RecordSpec(
    {"name": ValueSpec(str), "pairs": ListSpec(PAIR), "share": ValueSpec(float)},
    required=["name"],
    noun="field",
)


@pytest.mark.parametrize(
    ("spec", "value", "plain"),
    [
        (SCALAR, True, True),
        (SCALAR, np.int64(3), 3),
        (SCALAR, np.float32(0.5), 0.5),
        (SCALAR, "x", "x"),
        (ListSpec(SCALAR), (1, "a", False), [1, "a", False]),
        (ListSpec(SCALAR), [], []),
        (ListSpec(SCALAR, single=True), "?", ["?"]),
        (ListSpec(SCALAR, single=True), [-9, "?"], [-9, "?"]),
        (PAIR, ["a", np.int8(2)], ["a", 2]),
        (RECORD, {"name": "a"}, {"name": "a"}),
        (RECORD, {"name": "a", "share": 1}, {"name": "a", "share": 1.0}),
        (RecordSpec({}, optional=True), None, None),
        (Refined(ValueSpec(int, optional=True), bool, "not zero"), None, None),
    ],
)
def test_lists_and_records_become_plain_python(spec, value, plain):
    result = spec.checked("it", value)
    assert result == plain
    assert repr(result) == repr(plain)


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (SCALAR, None, "it must be text, a finite number or true or false, got None"),
        (
            SCALAR,
            float("nan"),
            "it must be text, a finite number or true or false",
        ),
        (SCALAR, 10**400, "it must be text, .*, got a number of 1329 bits"),
        (
            ListSpec(SCALAR),
            "abc",
            "it must be a list of items, each .*, got 'abc'",
        ),
        (ListSpec(SCALAR), {"a": 1}, "it must be a list"),
        (ListSpec(SCALAR, single=True), {"a": 1}, "it must be a list"),
        (ListSpec(SCALAR, shortest=2), [1], "it must be a list of at least 2 items"),
        (
            ListSpec(SCALAR, distinct=True),
            [1, 1],
            "must be a list of different items",
        ),
        (PAIR, ["a"], "it must be a list of 2 items, got"),
        (PAIR, ["a", 0], r"it: \[1\] must be a whole number of at least 1, got 0"),
        (RECORD, 3, "it must be a table with the fields name, pairs, share, got 3"),
        (RECORD, {}, "it must have the field 'name'"),
        (RECORD, {"nam": 1}, "it has the unknown field 'nam'; did you mean 'name'"),
        (RECORD, {"name": 1}, "it: name must be text, got 1"),
        (
            RECORD,
            {"name": "a", "pairs": [["a", 1], ["b", "c"]]},
            r"it: pairs\[1\]\[1\] must be a whole number of at least 1, got 'c'",
        ),
        (ValueSpec(None, ("low", "high")), "hihg", "got 'hihg'; did you mean 'high'"),
        (ValueSpec(None, ("low", "high")), "HIGH", "got 'HIGH'; did you mean 'high'"),
        (Refined(ValueSpec(int), bool, "not zero"), 0, "it must be not zero, got 0"),
    ],
)
def test_invalid_lists_and_records_raise_one_sentence(spec, value, message):
    with pytest.raises(SchemaError, match=message):
        spec.checked("it", value, SchemaError)


def test_a_choice_may_be_a_text_of_numpy():
    chosen = ValueSpec(str, ("low", "high")).checked("it", np.str_("low"))
    assert chosen == "low"
    assert type(chosen) is str
