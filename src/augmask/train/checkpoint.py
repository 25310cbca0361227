"""Checkpoints: a killed run resumes from its file and ends with the same result."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from augmask.container import ADVICE, read_container, write_container
from augmask.errors import ArtifactError, AugMaskWarning, DataError
from augmask.files import check_writable

KIND = "checkpoint"


class Checkpoint:
    """The file that a run saves its state to every now and then.

    Parameters
    ----------
    path : str or Path
    fingerprint : str
        Of data, settings and seed; the checkpoint of another run is refused.
    every : float
        Seconds between two saves.
    """

    def __init__(self, path: str | Path, fingerprint: str, every: float = 60.0) -> None:
        self.path = check_writable(path)
        self.fingerprint = fingerprint
        self.every = every
        self._last = time.monotonic()
        self._warned = False

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._last >= self.every

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write the run, completely or not at all; warn once if that fails."""
        # the facts are text of their own: losses may be infinite, which JSON is not
        metadata = {"fingerprint": self.fingerprint, "facts": json.dumps(facts)}
        self._last = time.monotonic()
        try:
            arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
            write_container(self.path, KIND, metadata, arrays)
        # TypeError: numpy has no bfloat16, which a custom backbone may use
        except (DataError, TypeError) as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{error}; training continues without a new checkpoint",
                    AugMaskWarning,
                    stacklevel=2,
                )

    def refusal(self, why: str) -> ArtifactError:
        """Return the error about a checkpoint that no run can resume from."""
        return ArtifactError(f"invalid {KIND} file {self.path}: {why}; {ADVICE[KIND]}")

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and facts of the last save; None if there is no file."""
        if not self.path.exists():
            return None
        metadata, arrays = read_container(self.path, KIND)
        if metadata.get("fingerprint") != self.fingerprint:
            raise ArtifactError(
                f"{self.path} belongs to a run with other data, settings or seed; "
                "remove it, or name another checkpoint"
            )
        try:
            facts = json.loads(metadata["facts"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self.refusal("it does not describe a run") from error
        return {name: torch.from_numpy(a) for name, a in arrays.items()}, facts


def check_state(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise `ValueError` unless the tensors of a checkpoint fit a run.

    Parameters
    ----------
    state : mapping of name to Tensor
        From the checkpoint.
    expected : mapping of name to Tensor
        The state of the run that is to resume.
    """
    for name in expected.keys() | state.keys():
        like = expected.get(name)
        # only a checkpoint has the best weights and the noise of other processes
        if name == "best":
            like = expected["weights"]
        elif name.startswith("noise/"):
            like = expected["noise"]
        value = state.get(name)
        if value is None or like is None:
            raise ValueError(f"{name!r} is missing or unexpected")
        if value.shape != like.shape or value.dtype != like.dtype:
            raise ValueError(f"{name!r} has the shape or type of another run")
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name!r} is not finite")
