"""The file format of models and checkpoints: arrays and JSON metadata in one file.

A container is a safetensors file. Its header holds the kind of the contents, a format
number, the metadata as JSON text, and a SHA-256 over metadata and tensors. Nothing in
it is ever executed. Reading checks everything before any of it is used, so a damaged,
foreign or newer file ends in an `ArtifactError` of one sentence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import load, save

from augmask.errors import ArtifactError, DataError, brief_repr
from augmask.files import as_path, atomic_write, is_regular_file

FORMAT = 5
MAX_HEADER = 100_000_000  # bytes; safetensors reads no longer one
METADATA = "__metadata__"  # where safetensors keeps text besides the tensors
ZIP = b"PK\x03\x04"  # models up to format 4 were zip archives

# What to do about a file that cannot be read, by the kind of its contents.
ADVICE = {
    "model": "fit the model again",
    "checkpoint": "name another file, or remove it to train from the start",
}


def checksum(header: Mapping[str, Any], tensors: bytes | memoryview) -> str:
    """Return the SHA-256 of a header, less its own checksum, and of all tensors."""
    fields = {k: v for k, v in header[METADATA].items() if k != "sha256"}
    text = json.dumps({**header, METADATA: fields}, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    digest.update(tensors)
    return digest.hexdigest()


def header_bytes(header: Mapping[str, Any]) -> bytes:
    """Return the only spelling of a header that is read."""
    head = json.dumps(header).encode()
    return head + b" " * (-len(head) % 8)  # tensors start at a multiple of 8 bytes


def write_container(
    path: str | Path,
    kind: str,
    metadata: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write metadata and arrays to one file, completely or not at all.

    The same contents give the same bytes.

    Parameters
    ----------
    path : str or Path
        A file that exists is replaced.
    kind : str
        What the file holds, such as "model"; `read_container` asks for it.
    metadata : mapping
        Anything that JSON can hold; NaN and infinity are refused.
    arrays : mapping of str to array
        Arrays of numbers or booleans.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "squares")
    >>> write_container(path, "example", {"power": 2}, {"x": np.arange(4) ** 2})
    >>> metadata, arrays = read_container(path, "example")
    >>> metadata, arrays["x"]
    ({'power': 2}, array([0, 1, 4, 9]))
    """
    fields = {
        "kind": kind,
        "format": str(FORMAT),
        "metadata": json.dumps(metadata, allow_nan=False),
    }
    plain = save({name: np.asarray(a, order="C") for name, a in arrays.items()})
    size = int.from_bytes(plain[:8], "little")
    tensors = memoryview(plain)[8 + size :]
    # safetensors writes its metadata in random order, so it is added here
    header = {METADATA: fields, **json.loads(plain[8 : 8 + size])}
    fields["sha256"] = checksum(header, tensors)
    head = header_bytes(header)
    if len(head) > MAX_HEADER:
        raise DataError(
            f"cannot write {path}: its metadata takes {len(head):,} bytes, and a file "
            f"can hold {MAX_HEADER:,}; use columns with fewer levels"
        )
    with atomic_write(path) as part, part.open("wb") as file:
        file.write(len(head).to_bytes(8, "little"))
        file.write(head)
        file.write(tensors)


@contextmanager
def _opened_file(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Open a regular file; a pipe or a device might have no end."""
    try:
        if path.is_dir():
            raise ArtifactError(f"cannot read {path}: it is a directory")
        if not is_regular_file(path):
            raise ArtifactError(f"cannot read {path}: it is not a regular file")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise ArtifactError(f"there is no {kind} file {path}") from error
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error


def _read_header(file: BinaryIO, total: int) -> tuple[bytes, dict[str, Any]]:
    """Return a file's first bytes, up to its tensors, and the header they hold.

    Only what the header says of itself is read: any file may be given, of any size.
    """
    start = file.read(8)
    size = int.from_bytes(start, "little")
    if not 0 < size <= min(total - 8, MAX_HEADER):
        if start.startswith(ZIP):
            raise ValueError("it is a zip archive, as models were before format 5")
        raise ValueError("it is not a safetensors file, or it is cut short")
    head = file.read(size)
    return start + head, _parse(head, "header")


def _check_length(header: Mapping[str, Any], length: int) -> None:
    """Raise unless the tensors of a header end where the file ends."""
    ends = [0]
    for name, entry in header.items():
        if name != METADATA:
            offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
            if not isinstance(offsets, list) or not all(
                type(offset) is int for offset in offsets
            ):
                raise ValueError("its header does not say where its tensors are")
            ends += offsets
    if max(ends) != length:
        raise ValueError("its tensors are not as long as its header says")


def _no_constant(word: str) -> Any:
    raise ValueError(f"JSON has no {word}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    contents = dict(pairs)
    if len(contents) < len(pairs):
        raise ValueError("a key occurs twice")
    return contents


def _parse(text: bytes | str, name: str) -> dict[str, Any]:
    """Return a JSON object; raise `ValueError` on anything else."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        contents = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_without_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {name} is not JSON") from error
    if not isinstance(contents, dict):
        raise ValueError(f"its {name} is not a JSON object")
    return contents


def _check_format(path: Path, text: str, advice: str) -> None:
    """Raise unless a file has the format that this version reads."""
    # a longer number is none of ours, and Python refuses to read very long ones
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 7):
        raise ValueError(f"it has no known format number, got {brief_repr(text)}")
    number = int(text)
    if number != FORMAT:
        newer = number > FORMAT
        raise ArtifactError(
            f"{path} has format {number}, and this version of augmask reads format "
            f"{FORMAT}; {'update augmask' if newer else advice}"
        )


def _checked_header(
    file: BinaryIO, path: Path, kind: str, advice: str
) -> tuple[bytes, dict[str, Any]]:
    """Return a file's first bytes and its header, of the kind that is expected."""
    total = path.stat().st_size
    head, header = _read_header(file, total)
    fields = header.get(METADATA)
    if not isinstance(fields, dict) or not all(
        isinstance(fields.get(name), str)
        for name in ("kind", "format", "metadata", "sha256")
    ):
        raise ValueError("augmask did not write it")
    if fields["kind"] != kind:
        raise ValueError(f"its contents are a {brief_repr(fields['kind'])}")
    _check_format(path, fields["format"], advice)
    _check_length(header, total - len(head))
    return head, header


def read_metadata(path: str | Path, kind: str) -> dict[str, Any]:
    """Return the metadata of a file without reading its arrays.

    Raises `ArtifactError` unless the file is of this kind and as long as it should be.
    """
    path = as_path(path)
    advice = ADVICE.get(kind, "write it again")
    try:
        with _opened_file(path, kind) as file:
            _, header = _checked_header(file, path, kind, advice)
        return _parse(header[METADATA]["metadata"], "metadata")
    except ArtifactError:
        raise
    except ValueError as error:
        raise ArtifactError(f"invalid {kind} file {path}: {error}; {advice}") from error


def read_container(
    path: str | Path, kind: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the metadata and the arrays of a file, after checking all of it.

    Parameters
    ----------
    path : str or Path
    kind : str
        What the file must hold; one of another kind is refused.

    Returns
    -------
    metadata : dict
    arrays : dict of str to array
        Writable copies.

    Raises
    ------
    ArtifactError
        If the file is absent, damaged, of another kind or of another format.
    """
    path = as_path(path)
    advice = ADVICE.get(kind, "write it again")
    try:
        with _opened_file(path, kind) as file:
            head, header = _checked_header(file, path, kind, advice)
            fields = header[METADATA]
            data = head + file.read()
        if head[8:] != header_bytes(header):
            raise ValueError("its header is not as augmask writes it")
        if fields["sha256"] != checksum(header, memoryview(data)[len(head) :]):
            raise ValueError("its contents do not match their checksum")
        return _parse(fields["metadata"], "metadata"), _load(data)
    except ArtifactError:
        raise
    except MemoryError as error:
        raise ArtifactError(
            f"cannot read {path}: it is larger than the memory of this machine"
        ) from error
    except ValueError as error:
        raise ArtifactError(f"invalid {kind} file {path}: {error}; {advice}") from error


def _load(data: bytes) -> dict[str, np.ndarray]:
    try:
        return load(data)
    # safetensors raises errors of its own, and numpy's for types it does not have
    except Exception as error:
        raise ValueError(f"its tensors cannot be read ({error})") from error
