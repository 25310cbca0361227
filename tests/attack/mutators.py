"""Mutations of model files: of their bytes, their metadata, their tensors.

Mutated metadata and tensors are sealed again with the right checksum, as an attacker
would do, so that they reach the checks behind it.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
from safetensors.numpy import save
from tests.sealed import Parts, with_metadata_text

WORDS = [
    "",
    "x",
    "x" * 3000,
    "\0",
    "../../etc",
    "custom:Mine",
    "NaN",
    "int64",
    "float64",
]
WORDS += ["category", "object", "datetime64[ns]", "UTC", "Mars/Crater", "integer", "D"]
WORDS += ["identifier", "constant", "all-missing", "learned", "always", "level", "="]
WORDS += ["%d/%m/%Y", "%Q", "%", "$#,##0.00", "#,##0" * 9, "0" * 60 + "%", "pool"]
WORDS += ["template", "counter", "polars", "Int64", "string", "large_string", "enum"]
WORDS += ["dictionary<values=string, indices=int8>", "list<item: int64>", "timestamp"]
WORDS += ["in", "not in", "<=", "or", "sum", "map", "same", "table", "joint", "de_DE"]
WORDS += ["datetime", "boolean", "timedelta64[ns]", "complex128", "period[D]", "U3"]
NUMBERS = [0, -1, 1, 2, 7, 10**3, 10**6, 10**9, 2**31, 2**53, 2**63, -(2**63), 10**40]
NUMBERS += [10**400, 0.5, -0.5, 1e-320, 1e300, 1e308, -1e308, float("nan"), 1e999]
DTYPES = ["F64", "F32", "F16", "BF16", "F8_E4M3", "I64", "I8", "U8", "BOOL", "C64"]
OTHERS = [None, True, False, [], {}, [[]], [None], {"a": 1}, [0] * 50]


def _deep(depth: int) -> Any:
    nest: Any = 1
    for _ in range(depth):
        nest = [nest]
    return nest


def _paths(value: Any, path: tuple = ()) -> list[tuple]:
    paths = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            paths += _paths(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value[:40]):
            paths += _paths(inner, (*path, i))
    return paths


def every_number(document: Any) -> list[tuple]:
    """Return the paths of all numbers, of long lists only those at the start."""
    return [
        path
        for path in _paths(document)
        if type(_parent(document, path)[path[-1]]) in (int, float)
        and all(type(key) is str or key < 3 for key in path[-2:])
    ]


def with_value(parts: Parts, path: tuple, value: Any) -> Parts:
    """Return parts with another value at a path of the metadata."""
    document = parts.metadata
    _parent(document, path)[path[-1]] = value
    return with_metadata_text(parts, json.dumps(document))


def _parent(document: Any, path: tuple) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _other(value: Any, rng: np.random.Generator) -> Any:
    """Return another value, often a similar one."""
    choice = int(rng.integers(9))
    number = type(value) in (int, float)
    if choice == 0:
        return NUMBERS[rng.integers(len(NUMBERS))]
    if choice == 1:
        return WORDS[rng.integers(len(WORDS))]
    if choice == 2:
        return copy.deepcopy(OTHERS[rng.integers(len(OTHERS))])
    if choice == 3 and number:
        return value + int(rng.integers(-3, 4))
    if choice == 4 and number:
        return value * 10 ** int(rng.integers(1, 12))
    if choice == 5 and isinstance(value, str) and value:
        at = int(rng.integers(len(value)))
        return value[:at] + chr(int(rng.integers(32, 1000))) + value[at + 1 :]
    if choice == 6 and isinstance(value, list) and value:
        picked = [value[int(i)] for i in rng.integers(len(value), size=len(value))]
        return picked + picked[: int(rng.integers(3))]
    if choice == 7:
        return [value]
    return _deep(30) if choice == 8 and rng.random() < 0.1 else str(value)


def mutate_metadata(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change, drop, add or exchange one to three values of the metadata."""
    document = parts.metadata
    for _ in range(int(rng.integers(1, 4))):
        paths = _paths(document)
        if not paths:
            break
        path = paths[rng.integers(len(paths))]
        parent, key = _parent(document, path), path[-1]
        choice = rng.random()
        if choice < 0.7:
            parent[key] = _other(copy.deepcopy(parent[key]), rng)
        elif choice < 0.8:
            del parent[key]
        elif choice < 0.9:
            other = paths[rng.integers(len(paths))]
            try:
                parent[key] = copy.deepcopy(_parent(document, other)[other[-1]])
            except (KeyError, IndexError, TypeError):
                continue
        elif isinstance(parent, dict):
            parent[WORDS[rng.integers(len(WORDS))]] = _other(1, rng)
    return with_metadata_text(parts, json.dumps(document))


def mutate_text(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change characters of the metadata's JSON text."""
    text = _mutated(parts.fields["metadata"].encode(), rng)
    return with_metadata_text(parts, text.decode(errors="replace"))


def mutate_fields(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change or drop the kind, the format or all metadata, or add a field."""
    fields = dict(parts.fields)
    name = ["kind", "format", "metadata", "more"][rng.integers(4)]
    value = _other(fields.get(name, ""), rng)
    fields[name] = value if rng.random() < 0.3 else str(value)
    if rng.random() < 0.2:
        del fields[name]
    return parts._replace(fields=fields)


def mutate_tensors(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change bytes of the tensors, mostly of their header."""
    data = parts.tensors
    end = 8 + int.from_bytes(data[:8], "little")
    if rng.random() < 0.7:
        header = _mutated(data[8:end], rng)
        size = len(header) if rng.random() < 0.9 else end - 8
        data = size.to_bytes(8, "little") + header + data[end:]
    else:
        data = _mutated(data, rng)
    return parts._replace(tensors=data)


def mutate_header(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change type, shape, offsets or name of one tensor in the header."""
    size = int.from_bytes(parts.tensors[:8], "little")
    header = json.loads(parts.tensors[8 : 8 + size])
    names = list(header)
    name = names[rng.integers(len(names))]
    key = ["dtype", "shape", "data_offsets", "name"][rng.integers(4)]
    if key == "name":
        header[WORDS[rng.integers(len(WORDS))]] = header.pop(name)
    elif rng.random() < 0.3:
        header[name][key] = copy.deepcopy(header[names[rng.integers(len(names))]][key])
    elif key == "dtype":
        header[name][key] = str(rng.choice(DTYPES))
    else:
        header[name][key] = _other(header[name][key], rng)
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + parts.tensors[8 + size :]
    return parts._replace(tensors=data)


def mutate_arrays(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change shapes, types, names and numbers of arrays."""
    arrays = parts.arrays
    names = list(arrays)
    for _ in range(int(rng.integers(1, 3))):
        name = names[rng.integers(len(names))]
        array = arrays.get(name)
        if array is None:
            continue
        choice = int(rng.integers(9))
        if choice == 0:
            del arrays[name]
        elif choice == 1:
            arrays[names[rng.integers(len(names))]] = array
        elif choice == 2:
            kinds = ["f4", "f8", "f2", "i1", "i4", "i8", "u1", "u8", "?"]
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(kinds[rng.integers(len(kinds))])
        elif choice == 3:
            arrays[name] = array.reshape(-1)[: int(rng.integers(array.size + 1))]
        elif choice == 4:
            arrays[name] = np.ascontiguousarray(array.T)
        elif choice == 5:
            arrays[name] = np.repeat(array.reshape(-1), 3)
        else:
            plain = array.copy().reshape(-1)
            if plain.size and plain.dtype.kind == "f":
                odd = [np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-40, 0.0]
                plain[rng.integers(plain.size)] = odd[rng.integers(len(odd))]
            elif plain.size:
                plain[rng.integers(plain.size)] = rng.integers(-9, 99) % 2**7
            arrays[name] = plain.reshape(array.shape)
    return parts._replace(tensors=save(arrays))


def _mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut, repeat, overwrite or insert."""
    mutated = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if not mutated:
            break
        at = int(rng.integers(len(mutated)))
        choice = int(rng.integers(5))
        if choice == 0:
            mutated[at] ^= 1 << int(rng.integers(8))
        elif choice == 1:
            mutated[at] = int(rng.integers(256))
        elif choice == 2:
            del mutated[at : at + int(rng.integers(1, 40))]
        elif choice == 3:
            mutated[at:at] = mutated[at : at + int(rng.integers(1, 40))]
        else:
            mutated[at:at] = bytes(
                rng.integers(48, 58, int(rng.integers(1, 9))).tolist()
            )
    return bytes(mutated)


def mutate_file(data: bytes, rng: np.random.Generator) -> bytes:
    """Change bytes anywhere in the file, or cut it."""
    if rng.random() < 0.1:
        return data[: int(rng.integers(len(data)))]
    return _mutated(data, rng)


SEALED = (mutate_metadata, mutate_metadata, mutate_metadata, mutate_text)
SEALED += (mutate_fields, mutate_tensors, mutate_header, mutate_arrays)
