"""What a setting may be, read from text and checked."""

from __future__ import annotations

from typing import Literal, Optional

import numpy as np
import pytest

from augmask.errors import UsageError
from augmask.values import ValueKind, value_kind

SIZE = ValueKind(int, lowest=1, highest=100)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ValueKind(bool), "false", False),
        (ValueKind(bool), "TRUE", True),
        (ValueKind(bool), "off", False),
        (ValueKind(bool), "yes", True),
        (SIZE, "32", 32),
        (ValueKind(float), "1", 1.0),
        (ValueKind(float), "1e-3", 1e-3),
        (ValueKind(float, optional=True), "none", None),
        (ValueKind(float, optional=True), "0", 0.0),
        (ValueKind(str), "12", "12"),
        (ValueKind(None, ("a", 2)), "2", 2),
        # nothing is known of it
        (ValueKind(), "12", 12),
        (ValueKind(), "0.5", 0.5),
        (ValueKind(), "False", False),
        (ValueKind(), "word", "word"),
    ],
)
def test_text_is_read_as_what_the_setting_is(kind, text, value):
    found = kind.checked("it", kind.read(text))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
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
        (ValueKind(float), "inf"),
        (ValueKind(float), "nan"),
        (ValueKind(float), "none"),
        (ValueKind(float, above=0), "0"),
        (ValueKind(float, below=1), "1"),
        (ValueKind(bool), "maybe"),
        (ValueKind(bool), "2"),
        (ValueKind(None, ("a", "b")), "c"),
        (ValueKind(), "inf"),
    ],
)
def test_what_cannot_be_is_one_sentence(kind, text):
    with pytest.raises(UsageError, match=r"^it must be .*, got ") as told:
        kind.checked("it", kind.read(text))
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("kind", "value", "plain"),
    [
        (SIZE, np.int64(3), int),
        (ValueKind(float), 3, float),
        (ValueKind(float), np.float32(3), float),
        (ValueKind(bool), np.True_, bool),
        (ValueKind(), np.int8(3), int),
    ],
)
def test_values_become_plain(kind, value, plain):
    found = kind.checked("it", value)
    assert found == value
    assert type(found) is plain


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (SIZE, True),
        (SIZE, "3"),
        (SIZE, None),
        pytest.param(SIZE, 10**9_000, id="digits"),
        pytest.param(ValueKind(float), 10**400, id="overflow"),
        (ValueKind(bool), 1),
        (ValueKind(bool), "false"),
        (ValueKind(str), 1),
        (ValueKind(None, (1, 2)), True),
        # a model file cannot hold these
        (ValueKind(), object()),
        (ValueKind(), [float("inf")]),
    ],
)
def test_values_of_python_are_not_guessed_at(kind, value):
    with pytest.raises(UsageError, match=r"^it must be .*, got "):
        kind.checked("it", value)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (int, ValueKind(int)),
        (bool, ValueKind(bool)),
        (float | None, ValueKind(float, optional=True)),
        (Optional[str], ValueKind(str, optional=True)),  # noqa: UP045
        (Literal["a", "b"], ValueKind(None, ("a", "b"))),
        (Literal["a"] | None, ValueKind(None, ("a",), optional=True)),
        (int | str, ValueKind()),
        (list[int], ValueKind()),
        (None, ValueKind()),
    ],
)
def test_annotations_say_what_a_value_may_be(annotation, kind):
    assert value_kind(annotation) == kind
