"""The exceptions and warnings of augmask, and helpers for their messages.

A message names what is wrong, the value and the column, and what to do about it, in one
sentence. `exit_code` is what the command line returns for an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str], every: bool = True) -> str:
    """Return the end of a message about an unknown word.

    Parameters
    ----------
    word : str
    known : iterable of str
    every : bool
        Whether to list the known words if none of them is similar.

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
    if not every:
        return ""
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"; known: {listed}"


def choices(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about a word that is none of a few.

    Examples
    --------
    >>> choices("papr", ["paper", "fast"])
    "; did you mean 'paper'? known: paper, fast"
    >>> choices("zzz", ["paper", "fast"])
    '; known: paper, fast'
    """
    known = list(known)
    hint = did_you_mean(word, known, every=False)
    listed = f"known: {', '.join(known)}"
    return f"{hint} {listed}" if hint else f"; {listed}"


def brief_repr(value: object, most: int = 60) -> str:
    """Return a repr of at most `most` characters, for messages.

    Examples
    --------
    >>> brief_repr(-3), brief_repr("x" * 99, 10), brief_repr(10**5000)
    ('-3', "'xxxxxx...", 'a number of 16610 bits')
    """
    if isinstance(value, int) and value.bit_length() > 100:
        # Python refuses to write out very long numbers
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:
        # a very long number within a list
        return f"a {type(value).__name__} with a number of very many digits"
    if "\n" in text:
        # a frame or an array, in a message of one line
        text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def not_fitted(estimator: object) -> Exception:
    """Return scikit-learn's `NotFittedError` about an object without a `fit` so far.

    scikit-learn is imported here because importing augmask must not take that long.

    Examples
    --------
    >>> class Model: ...
    >>> raise not_fitted(Model())
    Traceback (most recent call last):
    sklearn.exceptions.NotFittedError: this Model is not fitted yet; call fit first
    """
    from sklearn.exceptions import NotFittedError

    name = type(estimator).__name__
    error: Exception = NotFittedError(f"this {name} is not fitted yet; call fit first")
    return error


class AugMaskWarning(UserWarning):
    """Something about a table that its owner should know; the work continues."""


class AugMaskError(Exception):
    """Base class of the errors that augmask raises on purpose."""

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
    """A model file or checkpoint is damaged, foreign or of another format."""


class TrainingDiverged(AugMaskError, RuntimeError):
    """The loss stayed non-finite after several restarts from the last good state."""

    exit_code = 4
