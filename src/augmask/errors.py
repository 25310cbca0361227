"""What can go wrong, as a small tree.

Every message follows one rule: state the rule, the value that broke it, the column,
and the fix. `exit_code` is what the command line returns for the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown word.

    Examples
    --------
    >>> did_you_mean("Agee", ["age", "sex"])
    "; did you mean 'age'?"
    >>> did_you_mean("zzz", ["age", "sex"])
    '; known: age, sex'
    """
    known = list(known)
    close = get_close_matches(word, known, n=1)
    close = close or get_close_matches(word.lower(), known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"; known: {listed}"


def shown(value: object, most: int = 60) -> str:
    """Return a value as it is shown in a message: short, whatever it is.

    Examples
    --------
    >>> shown(-3), shown("x" * 99, 10), shown(10**5000)
    ('-3', "'xxxxxx...", 'a number of 16610 bits')
    """
    if isinstance(value, int) and value.bit_length() > 100:
        # Python refuses to write very long numbers out
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:
        # such a number within a list
        return f"a {type(value).__name__} with a number of very many digits"
    return text if len(text) <= most else text[: most - 3] + "..."


class AugMaskWarning(UserWarning):
    """Something about a table that its owner should know; work goes on."""


class AugMaskError(Exception):
    """Base of everything that augmask raises on purpose."""

    exit_code = 3


class UsageError(AugMaskError, ValueError):
    """A parameter or option has a value that cannot be used."""

    exit_code = 2


class ConditionError(UsageError):
    """A condition on sampled rows cannot be read, or no row can satisfy it."""


class DataError(AugMaskError, ValueError):
    """A table cannot be read, learned from or written."""


class SchemaError(DataError):
    """A schema names a column, kind or setting that does not exist."""


class ArtifactError(DataError):
    """A model file is damaged, foreign or of a newer format."""


class NotFittedError(AugMaskError, AttributeError):
    """A method that needs a fitted model was called before `fit`."""

    exit_code = 2


class TrainingDiverged(AugMaskError, RuntimeError):
    """The loss stayed non-finite after several restarts from the last good state."""

    exit_code = 4
