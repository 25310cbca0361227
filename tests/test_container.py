"""The file format: everything comes back, and any damage is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save
from tests.sealed import Parts, read_parts, with_metadata_text, write_parts

import augmask.container
from augmask.container import FORMAT, read_container, write_container
from augmask.errors import ArtifactError, DataError

ARRAYS = {
    "floats": np.linspace(0, 1, 5, dtype=np.float32),
    "codes": np.arange(6, dtype=np.int64).reshape(2, 3),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3)),
    # a view with strides: only its own cells may be stored
    "columns": np.arange(12.0).reshape(3, 4)[:, 1:3],
    "single": np.float64(7.5).reshape(()),
}
METADATA = {"name": "Größe", "list": [1, None], "nested": {"x": 0.1}}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.augmask"
    write_container(path, "model", METADATA, ARRAYS)
    return path


def reason(path, kind="model") -> str:
    """Return why a file is refused."""
    with pytest.raises(ArtifactError) as error:
        read_container(path, kind)
    assert str(path) in str(error.value)
    return str(error.value)


def test_everything_comes_back(path):
    metadata, arrays = read_container(path, "model")
    assert metadata == METADATA
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert np.array_equal(arrays[name], array)
        assert arrays[name].flags.writeable


def test_any_safetensors_reader_reads_the_arrays(path):
    arrays = load_file(path)
    assert all(np.array_equal(arrays[name], array) for name, array in ARRAYS.items())
    size = int.from_bytes(path.read_bytes()[:8], "little")
    assert size % 8 == 0, "tensors are aligned"


PROGRAM = """
import sys, numpy as np
from augmask.container import write_container
write_container(sys.argv[1], "model", {"a": 1, "b": 2, "c": 3}, {"x": np.arange(3)})
"""


def test_same_contents_same_bytes_in_any_process(tmp_path):
    files = [tmp_path / str(i) for i in range(3)]
    for i, file in enumerate(files):
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(file)],
            check=True,
            env=os.environ | {"PYTHONHASHSEED": str(i)},
        )
    assert len({file.read_bytes() for file in files}) == 1


def test_what_json_cannot_hold_is_refused_before_writing(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_container(path, "model", {"loss": float("nan")}, {})
    assert path.read_bytes() == before


def test_metadata_that_no_reader_would_accept_is_not_written(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(augmask.container, "MAX_HEADER", 100)
    with pytest.raises(DataError, match=r"its metadata takes .* bytes"):
        write_container(path, "model", METADATA, ARRAYS)
    assert path.read_bytes() == before


def test_every_truncation_is_noticed(path):
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        reason(path)


def test_no_flipped_bit_changes_what_is_read(path):
    """All damage is refused, also in the spaces that align the tensors."""
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            reason(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head + b" " * 8,
        lambda head: head.rstrip() + b"\n" * (len(head) - len(head.rstrip())),
        lambda head: head.replace(b": ", b":\t", 1),
        lambda head: head.replace(b"kind", b"kin\\u0064", 1) + b"   ",
        lambda head: json.dumps(json.loads(head), indent=1).encode(),
    ],
)
def test_another_spelling_of_the_same_header_is_refused(path, change):
    """What is equal as JSON is damage all the same: no writer wrote it."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    head = change(data[8:end])
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[end:])
    assert "its header is not as augmask writes it" in reason(path)


@pytest.mark.parametrize("kind", ["model", "checkpoint", "fill"])
def test_only_the_expected_kind_is_read(path, kind):
    write_container(path, "model" if kind != "model" else "checkpoint", {}, {})
    assert f"invalid {kind} file" in reason(path, kind)
    write_container(path, kind, {}, {})
    assert read_container(path, kind) == ({}, {})


# -- formats -------------------------------------------------------------------


def with_fields(parts: Parts, **fields) -> Parts:
    return parts._replace(fields=parts.fields | fields)


def test_a_newer_format_needs_a_newer_augmask(path):
    write_parts(path, with_fields(read_parts(path), format=str(FORMAT + 1)))
    assert f"format {FORMAT + 1}" in reason(path)
    assert reason(path).endswith("update augmask")


def test_an_older_format_needs_another_fit(path):
    write_parts(path, with_fields(read_parts(path), format=str(FORMAT - 1)))
    assert f"format {FORMAT - 1}" in reason(path)
    assert reason(path).endswith("fit the model again")


def test_a_zip_archive_is_a_model_of_an_earlier_version(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", '{"format": 4}')
    assert "zip archive, as models were before format 5" in reason(path)
    assert reason(path).endswith("fit the model again")


@pytest.mark.parametrize("text", ["", "x", "1.5", "-5", "٥", " 5", "9" * 9_000])
def test_a_format_that_is_not_a_number(path, text):
    write_parts(path, with_fields(read_parts(path), format=text))
    assert "no known format number" in reason(path)


# -- headers and metadata that no writer writes ---------------------------------


def raw(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + body


HEADERS = {
    "nothing": (b"", "not a safetensors file"),
    "text": (b"hello, world", "not a safetensors file"),
    "a header beyond the file": (raw(b"{}")[:-1], "not a safetensors file"),
    "a header without end": ((2**63).to_bytes(8, "little"), "not a safetensors file"),
    "a header of nothing": (raw(b""), "not a safetensors file"),
    "no JSON": (raw(b"{"), "header is not JSON"),
    "no UTF-8": (raw(b'{"\xff": 1}'), "header is not JSON"),
    "UTF-16": (raw('{"a": 1}'.encode("utf-16")), "header is not JSON"),
    "depth": (raw(b"[" * 10**5), "header is not JSON"),
    "long numbers": (raw(b'{"a": ' + b"9" * 9_000 + b"}"), "header is not JSON"),
    "a list": (raw(b"[]"), "header is not a JSON object"),
    "NaN": (raw(b'{"a": NaN}'), "header is not JSON"),
    "the same key twice": (raw(b'{"a": 1, "a": 1}'), "header is not JSON"),
    "no metadata": (save({"x": np.zeros(2)}), "augmask did not write it"),
    "metadata of others": (
        save({"x": np.zeros(2)}, metadata={"format": "pt"}),
        "augmask did not write it",
    ),
    "metadata of numbers": (raw(b'{"__metadata__": {"kind": 1}}'), "did not write it"),
    "metadata of a list": (raw(b'{"__metadata__": ["kind"]}'), "did not write it"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_no_writer_writes(path, name):
    data, message = HEADERS[name]
    path.write_bytes(data)
    assert message in reason(path)


def test_a_header_over_the_limit_is_not_parsed(path, monkeypatch):
    size = int.from_bytes(path.read_bytes()[:8], "little")
    monkeypatch.setattr(augmask.container, "MAX_HEADER", size - 1)
    monkeypatch.setattr(augmask.container, "_parse", lambda *_: pytest.fail("parsed"))
    assert "not a safetensors file" in reason(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "metadata is not JSON"),
        ("{", "metadata is not JSON"),
        ("[" * 10**5, "metadata is not JSON"),
        ('{"a": NaN}', "metadata is not JSON"),
        ('{"a": -Infinity}', "metadata is not JSON"),
        ('{"a": 1, "a": 2}', "metadata is not JSON"),
        ("[]", "metadata is not a JSON object"),
        ("null", "metadata is not a JSON object"),
    ],
)
def test_metadata_that_is_sealed_and_not_an_object(path, text, message):
    write_parts(path, with_metadata_text(read_parts(path), text))
    assert message in reason(path)


@pytest.mark.parametrize("seal", [True, False])
def test_the_checksum_covers_metadata_and_tensors(path, seal):
    parts = read_parts(path)
    changes = {
        "metadata": with_metadata_text(parts, '{"name": "Other"}'),
        "cells": parts._replace(tensors=parts.tensors[:-1] + b"\x01"),
        "names": parts._replace(tensors=parts.tensors.replace(b"flags", b"flaga")),
        "types": parts._replace(tensors=parts.tensors.replace(b'"I64"', b'"U64"')),
    }
    for changed in changes.values():
        assert changed != parts
        write_parts(path, changed, seal)
        if seal:
            read_container(path, "model")
        else:
            assert "do not match their checksum" in reason(path)


TENSORS = {
    "fewer bytes than cells": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]},
    "bytes beyond the file": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]},
    "a negative shape": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
    "cells beyond any machine": {
        "dtype": "F32",
        "shape": [2**62, 2**62],
        "data_offsets": [0, 4],
    },
    "an unknown type": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]},
    "no offsets": {"dtype": "F32", "shape": [1]},
    "a number": 5,
}


@pytest.mark.parametrize("entry", TENSORS.values(), ids=TENSORS.keys())
def test_tensors_that_safetensors_refuses(path, entry):
    header = json.dumps({"x": entry}).encode()
    write_parts(path, Parts(read_parts(path).fields, raw(header, bytes(4))))
    refused = reason(path)
    assert "invalid model file" in refused
    # by safetensors, or before that by the places that the header names
    early = ("where its tensors are", "not as long as its header says")
    assert any(text in refused for text in ("tensors cannot be read", *early))


# -- files ---------------------------------------------------------------------


def test_only_a_regular_file_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in reason(tmp_path / "pipe")
    assert "not a regular file" in reason(Path("/dev/zero"))
    assert "is a directory" in reason(tmp_path)
    assert "there is no model file" in reason(tmp_path / "absent")


def test_a_header_whose_length_reads_like_a_zip_is_no_zip(tmp_path):
    path = tmp_path / "m.augmask"
    for fill in range(19_000, 19_280, 8):
        write_container(path, "model", {"text": "x" * fill}, {})
        if path.read_bytes()[:2] == b"PK":
            break
    else:
        pytest.fail("no header of 19,280 bytes was made")
    assert read_container(path, "model")[0] == {"text": "x" * fill}


@pytest.mark.parametrize("start", [b"", b"PK\x03\x04", b"\x10" + bytes(7) + b"{" * 16])
def test_a_huge_foreign_file_is_refused_before_it_is_read(tmp_path, start):
    path = tmp_path / "m.augmask"
    path.write_bytes(start)
    os.truncate(path, 2**42)  # sparse: takes no room on the disk
    assert "invalid model file" in reason(path)


def test_a_huge_file_behind_a_true_header_is_refused_before_it_is_read(path):
    os.truncate(path, 2**42)
    assert "not as long as its header says" in reason(path)
