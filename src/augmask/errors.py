"""What can go wrong, as a small tree.

Every message follows one rule: state the rule, the value that broke it, the column,
and the fix. `exit_code` is what the command line returns for the error.
"""

from __future__ import annotations


class AugMaskWarning(UserWarning):
    """Something about a table that its owner should know; work goes on."""


class AugMaskError(Exception):
    """Base of everything that augmask raises on purpose."""

    exit_code = 3


class UsageError(AugMaskError, ValueError):
    """A parameter or option has a value that cannot be used."""

    exit_code = 2


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
