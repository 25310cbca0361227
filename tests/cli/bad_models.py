"""Model files that are damaged, foreign, newer or inconsistent."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.sealed import read_parts, with_manifest, write_parts

from augmask.container import FORMAT

from .bad import BAD_DATA, SAMPLE_BAD, Bad, write


def _repack(change: Callable[[dict[str, bytes]], None], seal: bool = False) -> None:
    """Write good.augmask anew with changed members; `seal` makes the sums right."""
    parts = read_parts("good.augmask")
    change(parts)
    write_parts("bad.augmask", parts, seal)


def members(change: Callable[[dict[str, bytes]], None], seal: bool = False):
    return lambda: _repack(change, seal)


def manifest(change: Callable[[dict], object]) -> Callable[[], object]:
    """Return a maker of a model whose sums are right and whose manifest is not."""
    return lambda: _repack(lambda p: p.update(with_manifest(p, change)), seal=True)


def _flip(parts: dict[str, bytes], name: str, at: int) -> None:
    data = bytearray(parts[name])
    data[at] ^= 1
    parts[name] = bytes(data)


def truncate() -> None:
    data = Path("good.augmask").read_bytes()
    Path("bad.augmask").write_bytes(data[: len(data) // 2])


def squeeze() -> None:
    with (
        zipfile.ZipFile("good.augmask") as source,
        zipfile.ZipFile("bad.augmask", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))


def foreign_zip() -> None:
    with zipfile.ZipFile("bad.augmask", "w") as archive:
        archive.writestr("holiday.txt", "sun")


MODELS = [
    Bad("model absent", BAD_DATA, SAMPLE_BAD, ("no model file bad.augmask",)),
    Bad(
        "model is a folder",
        BAD_DATA,
        "sample folder -n 5 --out rows.csv",
        ("cannot read folder", "irectory"),
    ),
    Bad(
        "model empty", BAD_DATA, SAMPLE_BAD, ("not a model",), write("bad.augmask", b"")
    ),
    Bad(
        "not a zip",
        BAD_DATA,
        SAMPLE_BAD,
        ("not a model",),
        write("bad.augmask", "hello"),
    ),
    Bad("truncated", BAD_DATA, SAMPLE_BAD, ("damaged", "again"), truncate),
    Bad(
        "another zip",
        BAD_DATA,
        SAMPLE_BAD,
        ("not a model of augmask: it holds", "holiday"),
        foreign_zip,
    ),
    Bad("compressed zip", BAD_DATA, SAMPLE_BAD, ("another program",), squeeze),
    Bad(
        "tampered tensors",
        BAD_DATA,
        SAMPLE_BAD,
        ("damaged", "tensors.safetensors", "checksum"),
        members(lambda parts: _flip(parts, "tensors.safetensors", -1)),
    ),
    Bad(
        "tampered manifest",
        BAD_DATA,
        SAMPLE_BAD,
        ("damaged", "manifest.json", "checksum"),
        members(
            lambda parts: parts.update(
                {"manifest.json": parts["manifest.json"].replace(b"ecdf", b"mean")}
            )
        ),
    ),
    Bad(
        "manifest is not JSON",
        BAD_DATA,
        SAMPLE_BAD,
        ("manifest is not JSON",),
        members(lambda parts: parts.update({"manifest.json": b"{"}), seal=True),
    ),
    Bad(
        "manifest too deep",
        BAD_DATA,
        SAMPLE_BAD,
        ("manifest is not JSON",),
        members(lambda p: p.update({"manifest.json": b"[" * 10**5}), seal=True),
    ),
    Bad(
        "newer format",
        BAD_DATA,
        SAMPLE_BAD,
        (f"format {FORMAT + 1}", "update augmask"),
        manifest(lambda m: m.update(format=FORMAT + 1)),
    ),
    *(
        Bad(
            f"{keyword} of {value!r}",
            BAD_DATA,
            SAMPLE_BAD,
            ("does not hold together", f"{keyword} must be"),
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
        ("does not hold together", "no setting 'stpes'"),
        manifest(lambda m: m["parameters"].update(options={"stpes": 3})),
    ),
    Bad(
        "options that are no table",
        BAD_DATA,
        SAMPLE_BAD,
        ("does not hold together",),
        manifest(lambda m: m["parameters"].update(options=[1, 2])),
    ),
    Bad(
        "older format",
        BAD_DATA,
        SAMPLE_BAD,
        ("format 2", "fit the model again"),
        manifest(lambda m: m.update(format=2)),
    ),
    Bad(
        "no format",
        BAD_DATA,
        SAMPLE_BAD,
        ("no known format",),
        manifest(lambda m: m.pop("format")),
    ),
    Bad(
        "wrong width",
        BAD_DATA,
        SAMPLE_BAD,
        ("does not hold together", "weight", "16", "17"),
        manifest(lambda m: m["settings"]["network"].update(width=17)),
    ),
    Bad(
        "unknown setting in the model",
        BAD_DATA,
        SAMPLE_BAD,
        ("does not hold together", "colour"),
        manifest(lambda m: m["settings"].update(colour=1)),
    ),
    Bad(
        "schema without a column",
        BAD_DATA,
        SAMPLE_BAD,
        ("does not hold together",),
        manifest(lambda m: m["schema"]["columns"].pop()),
    ),
    Bad(
        "columns of the schema in another order",
        BAD_DATA,
        SAMPLE_BAD,
        ("does not hold together",),
        manifest(lambda m: m["schema"]["columns"].reverse()),
    ),
    Bad(
        "tensors that are none",
        BAD_DATA,
        SAMPLE_BAD,
        ("damaged",),
        members(
            lambda p: p.update({"tensors.safetensors": struct.pack("<Q", 10**9)}),
            seal=True,
        ),
    ),
    Bad(
        "no weights",
        BAD_DATA,
        SAMPLE_BAD,
        ("does not hold together",),
        members(
            lambda p: p.update({"tensors.safetensors": struct.pack("<Q", 2) + b"{}"}),
            seal=True,
        ),
    ),
]
