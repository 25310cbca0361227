"""Model files that were tampered with and sealed again: their checksums are right."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

Parts = dict[str, bytes]


def read_parts(path: str | Path) -> Parts:
    """Return the members of a model file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_parts(path: str | Path, parts: Parts, seal: bool = True) -> None:
    """Write members as a model file; `seal` makes the checksums right."""
    if seal:
        sums = {
            name: hashlib.sha256(data).hexdigest()
            for name, data in parts.items()
            if name != "checksums.json"
        }
        parts = parts | {"checksums.json": json.dumps(sums).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def with_manifest(parts: Parts, change: Callable[[Any], object]) -> Parts:
    """Return members with a changed manifest."""
    document = json.loads(parts["manifest.json"])
    change(document)
    return parts | {"manifest.json": json.dumps(document).encode()}


def with_arrays(parts: Parts, change: Callable[[dict[str, np.ndarray]], object]):
    """Return members with changed arrays."""
    arrays = load(parts["tensors.safetensors"])
    change(arrays)
    return parts | {"tensors.safetensors": save(arrays)}
