"""Model files that are damaged, foreign, newer or inconsistent."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.sealed import (
    Parts,
    read_parts,
    with_metadata,
    with_metadata_text,
    write_parts,
)

from augmask.container import FORMAT

from .bad import BAD_DATA, SAMPLE_BAD, Bad, write


def changed(change: Callable[[Parts], Parts], seal: bool = True) -> Callable[[], None]:
    """Return a maker of a changed copy of good.augmask; `seal` makes its sum right."""
    return lambda: write_parts("bad.augmask", change(read_parts("good.augmask")), seal)


def manifest(change: Callable[[dict], object]) -> Callable[[], None]:
    """Return a maker of a model whose checksum is right and whose manifest is not."""
    return changed(lambda parts: with_metadata(parts, change))


def field(name: str, value: str) -> Callable[[], None]:
    return changed(lambda parts: parts._replace(fields=parts.fields | {name: value}))


def text(value: str) -> Callable[[], None]:
    return changed(lambda parts: with_metadata_text(parts, value))


def tensors(data: bytes) -> Callable[[], None]:
    return changed(lambda parts: parts._replace(tensors=data))


def flip_last_bit(parts: Parts) -> Parts:
    data = bytearray(parts.tensors)
    data[-1] ^= 1
    return parts._replace(tensors=bytes(data))


def truncate() -> None:
    data = Path("good.augmask").read_bytes()
    Path("bad.augmask").write_bytes(data[: len(data) // 2])


def old_zip() -> None:
    with zipfile.ZipFile("bad.augmask", "w") as archive:
        archive.writestr("manifest.json", '{"format": 4}')


INVALID = "invalid model file bad.augmask"
MODELS = [
    Bad("model absent", BAD_DATA, SAMPLE_BAD, ("no model file bad.augmask",)),
    Bad(
        "model is a folder",
        BAD_DATA,
        "sample folder -n 5 --out rows.csv",
        ("cannot read folder", "irectory"),
    ),
    Bad("model empty", BAD_DATA, SAMPLE_BAD, (INVALID,), write("bad.augmask", b"")),
    Bad("model of text", BAD_DATA, SAMPLE_BAD, (INVALID,), write("bad.augmask", "hi")),
    Bad("truncated", BAD_DATA, SAMPLE_BAD, (INVALID, "fit the model again"), truncate),
    Bad(
        "a zip, as models were",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "zip", "fit the model again"),
        old_zip,
    ),
    Bad(
        "tampered tensors",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "checksum"),
        changed(flip_last_bit, seal=False),
    ),
    Bad(
        "tampered manifest",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "checksum"),
        changed(
            lambda parts: with_metadata_text(
                parts, parts.fields["metadata"].replace("ecdf", "mean")
            ),
            seal=False,
        ),
    ),
    Bad(
        "manifest is not JSON",
        BAD_DATA,
        SAMPLE_BAD,
        ("metadata is not JSON",),
        text("{"),
    ),
    Bad(
        "manifest too deep",
        BAD_DATA,
        SAMPLE_BAD,
        ("metadata is not JSON",),
        text("[" * 10**5),
    ),
    Bad(
        "newer format",
        BAD_DATA,
        SAMPLE_BAD,
        (f"format {FORMAT + 1}", "update augmask"),
        field("format", str(FORMAT + 1)),
    ),
    *(
        Bad(
            f"{keyword} of {value!r}",
            BAD_DATA,
            SAMPLE_BAD,
            (INVALID, f"{keyword} must be"),
            manifest(
                lambda m, k=keyword, v=value: m["settings"]["network"].update({k: v})
            ),
        )
        for keyword, value in (("depth", 10**6), ("time_width", 10**9), ("width", "x"))
    ),
    Bad(
        "options of no setting",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "no setting 'stpes'"),
        manifest(lambda m: m["parameters"].update(options={"stpes": 3})),
    ),
    Bad(
        "options that are no table",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID,),
        manifest(lambda m: m["parameters"].update(options=[1, 2])),
    ),
    Bad(
        "older format",
        BAD_DATA,
        SAMPLE_BAD,
        ("format 2", "fit the model again"),
        field("format", "2"),
    ),
    Bad(
        "no format",
        BAD_DATA,
        SAMPLE_BAD,
        ("no known format",),
        field("format", ""),
    ),
    Bad(
        "wrong width",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "weight", "16", "17"),
        manifest(lambda m: m["settings"]["network"].update(width=17)),
    ),
    Bad(
        "unknown setting in the model",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "colour"),
        manifest(lambda m: m["settings"].update(colour=1)),
    ),
    Bad(
        "schema without a column",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID,),
        manifest(lambda m: m["schema"]["columns"].pop()),
    ),
    Bad(
        "columns of the schema in another order",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID,),
        manifest(lambda m: m["schema"]["columns"].reverse()),
    ),
    Bad(
        "tensors that are none",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID,),
        tensors(struct.pack("<Q", 10**9)),
    ),
    Bad(
        "no weights",
        BAD_DATA,
        SAMPLE_BAD,
        (INVALID, "weights"),
        tensors(struct.pack("<Q", 2) + b"{}"),
    ),
]
