"""Ways to spoil a model file: its bytes, its manifest, its arrays.

Those of the manifest and the arrays are sealed again with right checksums, as somebody
would who means harm.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
from safetensors.numpy import load, save
from tests.sealed import Parts

WORDS = ["", "x", "x" * 3000, "\0", "../../etc", "own:Mine", "NaN", "int64", "float64"]
WORDS += ["category", "object", "datetime64[ns]", "UTC", "Mars/Crater", "integer", "D"]
WORDS += ["identifier", "constant", "all-missing", "learned", "always", "level", "="]
WORDS += ["datetime", "boolean", "timedelta64[ns]", "complex128", "period[D]", "U3"]
NUMBERS = [0, -1, 1, 2, 7, 10**3, 10**6, 10**9, 2**31, 2**53, 2**63, -(2**63), 10**40]
NUMBERS += [10**400, 0.5, -0.5, 1e-320, 1e300, 1e308, -1e308, float("nan"), 1e999]
OTHERS = [None, True, False, [], {}, [[]], [None], {"a": 1}, [0] * 50]


def _deep(depth: int) -> Any:
    nest: Any = 1
    for _ in range(depth):
        nest = [nest]
    return nest


def _paths(value: Any, path: tuple = ()) -> list[tuple]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _paths(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value[:40]):
            found += _paths(inner, (*path, i))
    return found


def _holder(document: Any, path: tuple) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _other(value: Any, rng: np.random.Generator) -> Any:
    """Return something else in the place of a value, often nearly the same."""
    way = int(rng.integers(9))
    number = type(value) in (int, float)
    if way == 0:
        return NUMBERS[rng.integers(len(NUMBERS))]
    if way == 1:
        return WORDS[rng.integers(len(WORDS))]
    if way == 2:
        return copy.deepcopy(OTHERS[rng.integers(len(OTHERS))])
    if way == 3 and number:
        return value + int(rng.integers(-3, 4))
    if way == 4 and number:
        return value * 10 ** int(rng.integers(1, 12))
    if way == 5 and isinstance(value, str) and value:
        at = int(rng.integers(len(value)))
        return value[:at] + chr(int(rng.integers(32, 1000))) + value[at + 1 :]
    if way == 6 and isinstance(value, list) and value:
        picked = [value[int(i)] for i in rng.integers(len(value), size=len(value))]
        return picked + picked[: int(rng.integers(3))]
    if way == 7:
        return [value]
    return _deep(30) if way == 8 and rng.random() < 0.1 else str(value)


def spoil_manifest(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change, drop, add or exchange one to three values of the manifest."""
    document = json.loads(parts["manifest.json"])
    for _ in range(int(rng.integers(1, 4))):
        paths = _paths(document)
        if not paths:
            break
        path = paths[rng.integers(len(paths))]
        holder, key = _holder(document, path), path[-1]
        way = rng.random()
        if way < 0.7:
            holder[key] = _other(copy.deepcopy(holder[key]), rng)
        elif way < 0.8:
            del holder[key]
        elif way < 0.9:
            other = paths[rng.integers(len(paths))]
            try:
                holder[key] = copy.deepcopy(_holder(document, other)[other[-1]])
            except (KeyError, IndexError, TypeError):
                continue
        elif isinstance(holder, dict):
            holder[WORDS[rng.integers(len(WORDS))]] = _other(1, rng)
    return parts | {"manifest.json": json.dumps(document).encode()}


def spoil_text(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change bytes of the manifest."""
    return parts | {"manifest.json": _spoilt(parts["manifest.json"], rng)}


def spoil_tensors(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change bytes of the arrays, mostly of their header."""
    data = parts["tensors.safetensors"]
    head = 8 + int.from_bytes(data[:8], "little")
    if rng.random() < 0.7:
        data = _spoilt(data[:head], rng) + data[head:]
    else:
        data = _spoilt(data, rng)
    return parts | {"tensors.safetensors": data}


def spoil_arrays(parts: Parts, rng: np.random.Generator) -> Parts:
    """Change shapes, types, names and numbers of arrays."""
    arrays = dict(load(parts["tensors.safetensors"]))
    names = list(arrays)
    for _ in range(int(rng.integers(1, 3))):
        name = names[rng.integers(len(names))]
        array = arrays.get(name)
        if array is None:
            continue
        way = int(rng.integers(9))
        if way == 0:
            del arrays[name]
        elif way == 1:
            arrays[names[rng.integers(len(names))]] = array
        elif way == 2:
            kinds = ["f4", "f8", "f2", "i1", "i4", "i8", "u1", "u8", "?"]
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(kinds[rng.integers(len(kinds))])
        elif way == 3:
            arrays[name] = array.reshape(-1)[: int(rng.integers(array.size + 1))]
        elif way == 4:
            arrays[name] = np.ascontiguousarray(array.T)
        elif way == 5:
            arrays[name] = np.repeat(array.reshape(-1), 3)
        else:
            plain = array.copy().reshape(-1)
            if plain.size and plain.dtype.kind == "f":
                odd = [np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-40, 0.0]
                plain[rng.integers(plain.size)] = odd[rng.integers(len(odd))]
            elif plain.size:
                plain[rng.integers(plain.size)] = rng.integers(-9, 99) % 2**7
            arrays[name] = plain.reshape(array.shape)
    return parts | {"tensors.safetensors": save(arrays)}


def _spoilt(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut, repeat, overwrite or insert."""
    spoilt = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if not spoilt:
            break
        at = int(rng.integers(len(spoilt)))
        way = int(rng.integers(5))
        if way == 0:
            spoilt[at] ^= 1 << int(rng.integers(8))
        elif way == 1:
            spoilt[at] = int(rng.integers(256))
        elif way == 2:
            del spoilt[at : at + int(rng.integers(1, 40))]
        elif way == 3:
            spoilt[at:at] = spoilt[at : at + int(rng.integers(1, 40))]
        else:
            spoilt[at:at] = bytes(
                rng.integers(48, 58, int(rng.integers(1, 9))).tolist()
            )
    return bytes(spoilt)


def spoil_file(data: bytes, rng: np.random.Generator) -> bytes:
    """Change bytes of the whole file, or cut it."""
    if rng.random() < 0.1:
        return data[: int(rng.integers(len(data)))]
    return _spoilt(data, rng)


SEALED = (spoil_manifest, spoil_manifest, spoil_text, spoil_tensors, spoil_arrays)
