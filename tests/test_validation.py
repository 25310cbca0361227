"""What a setting may be, read from text and checked."""

from __future__ import annotations

from typing import Literal, Optional

import numpy as np
import pytest

from augmask.errors import UsageError
from augmask.validation import ValueSpec, value_kind

SIZE = ValueSpec(int, lowest=1, highest=100)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
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
        # nothing is known of it
        (ValueSpec(), "12", 12),
        (ValueSpec(), "0.5", 0.5),
        (ValueSpec(), "False", False),
        (ValueSpec(), "word", "word"),
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
def test_what_cannot_be_is_one_sentence(kind, text):
    with pytest.raises(UsageError, match=r"^it must be .*, got ") as told:
        kind.checked("it", kind.read(text))
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("kind", "value", "plain"),
    [
        (SIZE, np.int64(3), int),
        (ValueSpec(float), 3, float),
        (ValueSpec(float), np.float32(3), float),
        (ValueSpec(bool), np.True_, bool),
        (ValueSpec(), np.int8(3), int),
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
        pytest.param(ValueSpec(float), 10**400, id="overflow"),
        (ValueSpec(bool), 1),
        (ValueSpec(bool), "false"),
        (ValueSpec(str), 1),
        (ValueSpec(None, (1, 2)), True),
        # a model file cannot hold these
        (ValueSpec(), object()),
        (ValueSpec(), [float("inf")]),
    ],
)
def test_values_of_python_are_not_guessed_at(kind, value):
    with pytest.raises(UsageError, match=r"^it must be .*, got "):
        kind.checked("it", value)


@pytest.mark.parametrize(
    ("annotation", "kind"),
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
def test_annotations_say_what_a_value_may_be(annotation, kind):
    assert value_kind(annotation) == kind
