"""The `.augmask` file: a zip of manifest.json, tensors.safetensors and checksums.json.

Nothing in it is ever executed: JSON and plain arrays only. Everything is checked before
any of it is used, so a damaged, foreign or newer file ends in one sentence.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from augmask.errors import ArtifactError
from augmask.files import as_path, is_plain, written_whole
from augmask.versions import library_versions

FORMAT = 4
MANIFEST, TENSORS, CHECKSUMS = "manifest.json", "tensors.safetensors", "checksums.json"
LIBRARIES = ("augmask", "torch", "numpy", "pandas", "lightgbm", "scikit-learn")


def write_artifact(
    path: str | Path, manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model file, whole or not at all.

    Parameters
    ----------
    path : str or Path
    manifest : mapping
        JSON-safe facts; format number and library versions are added.
    arrays : mapping of name to array
    """
    head = {"format": FORMAT, "libraries": library_versions(*LIBRARIES), **manifest}
    members = {
        MANIFEST: json.dumps(head, indent=1, allow_nan=False).encode(),
        TENSORS: save_tensors({k: np.asarray(v, order="C") for k, v in arrays.items()}),
    }
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    members[CHECKSUMS] = json.dumps(sums).encode()
    with written_whole(path) as part, zipfile.ZipFile(part, "w") as archive:
        for name, data in members.items():
            # a fixed date: same model, same bytes
            archive.writestr(zipfile.ZipInfo(name), data)


def _damaged(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {what}; copy or fit it again")


def _no_constant(word: str) -> Any:
    raise ValueError(f"JSON has no {word}")


def _read_members(path: Path) -> dict[str, bytes]:
    try:
        if not is_plain(path) and not path.is_dir():
            raise ArtifactError(f"a model must be a plain file, {path} is none")
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if sorted(names) != sorted((MANIFEST, TENSORS, CHECKSUMS)):
                raise ArtifactError(
                    f"{path} is not a model of augmask: it holds {names[:5]}"
                )
            if any(i.compress_type != zipfile.ZIP_STORED for i in archive.infolist()):
                raise ArtifactError(
                    f"{path} was packed by another program, which models never are; "
                    "copy or fit it again"
                )
            size = path.stat().st_size
            if any(
                i.file_size > min(size, i.compress_size) for i in archive.infolist()
            ):
                raise _damaged(path, "its parts are larger than the file")
            return {name: archive.read(name) for name in names}
    except FileNotFoundError as error:
        raise ArtifactError(f"there is no model file {path}") from error
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    except ArtifactError:
        raise
    # zipfile trusts lengths and names in the file, so damage surfaces in many ways
    except Exception as error:
        raise ArtifactError(
            f"{path} is not a model of augmask, or it is damaged: {error}; "
            "copy or fit it again"
        ) from error


def _parse(path: Path, data: bytes, what: str) -> dict[str, Any]:
    try:
        parsed = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its {what} is not JSON") from error
    if not isinstance(parsed, dict):
        raise _damaged(path, f"its {what} is not an object")
    return parsed


def read_artifact(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the manifest and the arrays of a model file, after checking both."""
    path = as_path(path)
    members = _read_members(path)
    manifest = _parse(path, members[MANIFEST], "manifest")
    found = manifest.get("format")
    if type(found) is int and found > FORMAT:
        raise ArtifactError(
            f"{path} has format {found}, this augmask reads {FORMAT} only; "
            "update augmask to load it"
        )
    if type(found) is int and 0 < found < FORMAT:
        raise ArtifactError(
            f"{path} has format {found}, this augmask reads {FORMAT} only; fit the "
            "model again"
        )
    if type(found) is not int or found < 1:
        raise ArtifactError(f"{path} has no known format number, got {found!r}")
    sums = _parse(path, members[CHECKSUMS], "list of checksums")
    for name in (MANIFEST, TENSORS):
        if sums.get(name) != hashlib.sha256(members[name]).hexdigest():
            raise _damaged(path, f"{name} does not match its checksum")
    try:
        return manifest, load_tensors(members[TENSORS])
    # safetensors' own errors, and what numpy says of types it does not have
    except Exception as error:
        raise _damaged(path, f"its tensors cannot be read ({error})") from error
