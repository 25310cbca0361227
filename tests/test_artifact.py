from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

import augmask.artifact
from augmask.artifact import FORMAT, read_artifact, write_artifact
from augmask.errors import ArtifactError

ARRAYS = {
    "floats": np.linspace(0, 1, 5, dtype=np.float32),
    "codes": np.arange(6, dtype=np.int64).reshape(2, 3),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3)),
    # a view with strides: only its own cells may be stored
    "columns": np.arange(12.0).reshape(3, 4)[:, 1:3],
    "single": np.float64(7.5).reshape(()),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.augmask"
    write_artifact(path, {"name": "Größe", "list": [1, None]}, ARRAYS)
    return path


def test_everything_comes_back(path):
    manifest, arrays = read_artifact(path)
    assert manifest["name"] == "Größe"
    assert manifest["list"] == [1, None]
    assert manifest["format"] == FORMAT
    assert {"python", "augmask", "torch"} <= manifest["libraries"].keys()
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert np.array_equal(arrays[name], array)


def test_same_contents_same_bytes(path, tmp_path):
    again = tmp_path / "again.augmask"
    write_artifact(again, {"name": "Größe", "list": [1, None]}, ARRAYS)
    assert again.read_bytes() == path.read_bytes()


def test_what_json_cannot_hold_is_refused_before_writing(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_artifact(path, {"loss": float("nan")}, {})
    assert path.read_bytes() == before


def test_every_truncation_is_noticed(path):
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError):
            read_artifact(path)


def test_no_flipped_bit_changes_what_is_read(path):
    """Any damage ends in our own error, or hits a byte that means nothing."""
    whole = path.read_bytes()
    manifest, arrays = read_artifact(path)
    harmless = 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:
            read, found = read_artifact(path)
        except ArtifactError:
            continue
        harmless += 1
        assert read == manifest
        assert found.keys() == arrays.keys()
        assert all(np.array_equal(found[k], arrays[k]) for k in arrays)
    # dates, permissions and versions in the zip's own headers
    assert harmless < 0.2 * len(whole)


def test_a_newer_format_is_said_to_be_one(path, monkeypatch):
    monkeypatch.setattr(augmask.artifact, "FORMAT", FORMAT + 1)
    write_artifact(path, {}, {})
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match=f"format {FORMAT + 1}.*update augmask"):
        read_artifact(path)


def test_an_older_format_is_to_be_fitted_again(path):
    write_artifact(path, {"format": FORMAT - 1}, {})
    with pytest.raises(ArtifactError, match=f"format {FORMAT - 1}.*fit the model"):
        read_artifact(path)


@pytest.mark.parametrize("found", [None, "1", True, 0, 1.5, [1]])
def test_a_format_that_is_no_number_of_ours(path, found):
    write_artifact(path, {"format": found}, {})
    with pytest.raises(ArtifactError, match="no known format number"):
        read_artifact(path)


def _replace(path, name, data):
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for member, old in members.items():
            archive.writestr(member, data if member == name else old)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"{}", b'{"a": '])
def test_checksums_that_are_none(path, data):
    _replace(path, "checksums.json", data)
    with pytest.raises(ArtifactError, match="damaged"):
        read_artifact(path)


def test_an_encrypted_member_is_refused(path):
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="encrypted"):
        read_artifact(path)


def test_a_safetensors_file_beside_the_rules_is_refused(path):
    import hashlib

    header = json.dumps(
        {"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}
    ).encode()
    tensors = len(header).to_bytes(8, "little") + header + bytes(4)
    _replace(path, "tensors.safetensors", tensors)
    with zipfile.ZipFile(path) as archive:
        sums = json.loads(archive.read("checksums.json"))
    sums["tensors.safetensors"] = hashlib.sha256(tensors).hexdigest()
    _replace(path, "checksums.json", json.dumps(sums).encode())
    with pytest.raises(ArtifactError, match="tensors cannot be read"):
        read_artifact(path)
