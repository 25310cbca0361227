"""A run on disk: killed anywhere, it goes on from here with the same result."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from augmask.errors import ArtifactError, AugMaskWarning, DataError
from augmask.files import check_writable, written_whole

FORMAT = "augmask-checkpoint-4"


class Checkpoint:
    """Where a run saves itself now and then.

    Parameters
    ----------
    path : str or Path
    fingerprint : str
        Of data, settings and seed; a checkpoint of another run is refused.
    every : float
        Seconds between two saves.
    """

    def __init__(self, path: str | Path, fingerprint: str, every: float = 60.0) -> None:
        self.path = check_writable(path)
        self.fingerprint = fingerprint
        self.every = every
        self._last = time.monotonic()
        self._told = False

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._last >= self.every

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write the run, whole or not at all; what prevents it is told once."""
        header = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "facts": json.dumps(facts),
        }
        flat = {name: value.cpu().contiguous() for name, value in tensors.items()}
        header["sha256"] = checksum(flat, header)
        self._last = time.monotonic()
        try:
            with written_whole(self.path) as part:
                # save_file of safetensors hides what the system said, e.g. of a full
                # disk
                part.write_bytes(save(flat, metadata=header))
        except DataError as error:
            if not self._told:
                self._told = True
                warnings.warn(
                    f"{error}; training goes on without a new checkpoint",
                    AugMaskWarning,
                    stacklevel=2,
                )

    def refusal(self, why: str) -> ArtifactError:
        """Return the error about a checkpoint that cannot be gone on from."""
        return ArtifactError(
            f"{self.path} is not a checkpoint of augmask, or it is damaged: {why}; "
            "remove it to start the training anew"
        )

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was saved, or None when nothing was yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        # safetensors has errors of its own, and lets through those of what it calls
        except Exception as error:
            raise self.refusal("it cannot be read") from error
        if header.get("format") != FORMAT:
            raise ArtifactError(
                f"{self.path} is not a checkpoint of this version of augmask "
                f"(format {header.get('format')!r}); remove it to start anew"
            )
        if header.get("fingerprint") != self.fingerprint:
            raise ArtifactError(
                f"{self.path} belongs to a run with other data, settings or seed; "
                "remove it, or name another checkpoint"
            )
        sealed = header.pop("sha256", None)
        if sealed != checksum(tensors, header):
            raise self.refusal("its contents do not match their checksum")
        try:
            return tensors, json.loads(header["facts"])
        except (KeyError, ValueError, RecursionError) as error:
            raise self.refusal("it does not say what was done") from error


def check_state(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Raise `ValueError` unless the tensors of a checkpoint are those of a run.

    Parameters
    ----------
    found : mapping of name to Tensor
    own : mapping of name to Tensor
        The state of the run that is to go on.
    """
    wanted = {name: own.get(name) for name in own.keys() | found.keys()}
    for name, like in wanted.items():
        # the best weights so far, and the noise of other processes, come besides
        if name == "best":
            like = own["weights"]
        elif name.startswith("noise/"):
            like = own["noise"]
        value = found.get(name)
        if value is None or like is None:
            raise ValueError(f"{name!r} is missing or too much")
        if value.shape != like.shape or value.dtype != like.dtype:
            raise ValueError(f"{name!r} is not of this run")
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name!r} is not finite")


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Return a digest of all that a checkpoint says."""
    digest = hashlib.sha256(json.dumps(sorted(header.items())).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
