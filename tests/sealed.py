"""Containers that were tampered with and sealed again: their checksums are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from augmask.container import METADATA, checksum, header_bytes


class Parts(NamedTuple):
    """The two halves of a container.

    Parameters
    ----------
    fields : dict
        The text fields of the header: kind, format, metadata and sha256.
    tensors : bytes
        A safetensors file without those fields.
    """

    fields: dict[str, Any]
    tensors: bytes

    @property
    def metadata(self) -> Any:
        return json.loads(self.fields["metadata"])

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return load(self.tensors)


def _packed(header: bytes, body: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + body


def _split(data: bytes) -> tuple[bytes, bytes]:
    end = 8 + int.from_bytes(data[:8], "little")
    return data[8:end], data[end:]


def read_parts(path: str | Path) -> Parts:
    """Return the parts of a container."""
    text, body = _split(Path(path).read_bytes())
    header = json.loads(text)
    fields = header.pop(METADATA)
    return Parts(fields, _packed(json.dumps(header).encode(), body))


def write_parts(path: str | Path, parts: Parts, seal: bool = True) -> None:
    """Write parts as a container; `seal` makes the checksum right.

    A header of the tensors that is not a JSON object cannot be sealed, and is written
    as it is.
    """
    text, body = _split(parts.tensors)
    try:
        header = json.loads(text)
        header = {METADATA: dict(parts.fields), **header}
        if seal:
            header[METADATA]["sha256"] = checksum(header, body)
        text = header_bytes(header)
    except (TypeError, ValueError, AttributeError):
        pass
    Path(path).write_bytes(_packed(text, body))


def with_metadata_text(parts: Parts, text: str) -> Parts:
    """Return parts with other text in the place of the metadata."""
    return parts._replace(fields=parts.fields | {"metadata": text})


def with_metadata(parts: Parts, change: Callable[[Any], object]) -> Parts:
    """Return parts whose metadata `change` has changed in place."""
    document = parts.metadata
    change(document)
    return with_metadata_text(parts, json.dumps(document))


def with_arrays(
    parts: Parts, change: Callable[[dict[str, np.ndarray]], object]
) -> Parts:
    """Return parts whose arrays `change` has changed in place."""
    arrays = parts.arrays
    change(arrays)
    return parts._replace(tensors=save(arrays))
