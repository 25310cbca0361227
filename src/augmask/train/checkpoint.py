"""A run on disk: killed anywhere, it goes on from here with the same result."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from augmask.errors import ArtifactError
from augmask.files import check_writable, written_whole

FORMAT = "augmask-checkpoint-3"


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

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._last >= self.every

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write the run, whole or not at all."""
        header = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "facts": json.dumps(facts),
        }
        flat = {name: value.cpu().contiguous() for name, value in tensors.items()}
        with written_whole(self.path) as part:
            # save_file of safetensors hides what the system said, e.g. of a full disk
            part.write_bytes(save(flat, metadata=header))
        self._last = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was saved, or None when nothing was yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, struct.error, OSError) as error:
            raise ArtifactError(
                f"{self.path} is not a checkpoint of augmask, or it is damaged; "
                "remove it to start the training anew"
            ) from error
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
        return tensors, json.loads(header["facts"])
