"""A folder of good and bad files for the commands."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import feather, parquet

from .victims import fit, make_frame, make_rich_frame

LONG = "9" * 9000


def _texts() -> dict[str, str | bytes]:
    good = make_frame().to_csv(index=False)
    return {
        "good.csv": good,
        "empty.csv": "",
        "header.csv": "a,b\n",
        "one-cell.csv": "a\n1\n",
        "ragged.csv": "a,b\n1,2\n3\n4,5,6\n",
        "twice.csv": "a,a\n1,2\n",
        "binary.csv": bytes(range(256)) * 9,
        "latin.csv": "näme,b\n1,2\n".encode("latin-1"),
        "nul.csv": "a,b\n\0,1\nx\0,2\n",
        "quotes.csv": 'a,b\n"1,2\n3,4\n',
        "cut.csv.gz": gzip.compress(good.encode())[:200],
        "no.csv.gz": "a,b\n1,2\n",
        "good.csv.gz": gzip.compress(good.encode()),
        "wide-number.csv": f"a,b\n{LONG},1\n2,2\n" * 9,
        "infinite.csv": "a,b\ninf,1\n-inf,2\n1e999,3\n" + "1,2\n" * 20,
        "denormal.csv": "a,b\n"
        + "".join(f"{i * 5e-324!r},{i % 3}\n" for i in range(40)),
        "codes.csv": "a,b\n" + "".join(f"{i:05d},{i % 3}\n" for i in range(40)),
        "keys.csv": "a,b\n"
        + "".join(f"{2**53 + i * 7919},{i % 3}\n,1\n" for i in range(40)),
        "all-empty.csv": "a,b\n" + ",\n" * 30,
        "constant.csv": "a,b\n" + "1,x\n" * 30,
        "formula.csv": "=a,@b\n" + "=1+1,+2\n-3,@x\n" * 20,
        "script.csv": "<script>alert(1)</script>,b\n"
        + "<img src=x onerror=y>,2\nz,3\n" * 20,
        "mixed.csv": "a,b\n" + "".join(f"{i},{i}\n" for i in range(150)) + "x,1\ny,2\n",
        "semicolon.csv": "a;b\n1;2\n",
        "rows.parquet": b"PAR1 and nothing",
        "rows.feather": b"ARROW1",
        "good.augmask": b"",
        "foreign.augmask": b"PK\x05\x06" + bytes(18),
        "good.toml": '[columns."kg"]\nkind = "float"\n',
        "deep.toml": f'[columns."kg"]\nlevels = {"[" * 3000}{"]" * 3000}\n',
        "long.toml": f'[columns."kg"]\nna_values = [{LONG}]\n',
        "nan.toml": '[columns."kg"]\nna_values = [nan, inf]\n',
        "other.toml": '[columns."nobody"]\nkind = "float"\n',
        "kinds.toml": '[columns."job"]\nkind = "integer"\n',
        "binary.toml": bytes(range(256)),
        "plan.toml": f"datasets = {'[' * 3000}{']' * 3000}\n",
        "readme.txt": "nothing",
    }


def _tables() -> dict[str, pa.Table]:
    n, rng = 40, np.random.default_rng(0)
    y = pa.array((["a", "b"] * n)[:n])
    columns = {
        "decimal": pa.array([None, *map(str, rng.integers(10**8, 10**9, n - 1))]).cast(
            pa.decimal128(30, 4)
        ),
        "list": pa.array([[1, 2]] * n),
        "struct": pa.array([{"a": 1}] * n),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((n, 2))),
        "binary": pa.array([b"\xff", b"a"] * (n // 2)),
        "null": pa.nulls(n),
        "unsigned": pa.array([2**63 + i for i in range(n)], pa.uint64()),
        "nanoseconds": pa.array(rng.integers(0, 2**60, n), pa.timestamp("ns")),
        "zoned": pa.array(rng.integers(0, 2**30, n), pa.timestamp("s", "+05:30")),
        "duration": pa.array(rng.integers(0, 2**30, n), pa.duration("s")),
        "dictionary": y.dictionary_encode(),
        "half": pa.array(np.arange(n, dtype=np.float16)),
    }
    return {name: pa.table({"x": column, "y": y}) for name, column in columns.items()}


def _archive(**members: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("_", ".").replace("up", "../"), text)
    return file.getvalue()


def _workbook(*sheets: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    with pd.ExcelWriter(file) as writer:
        for i, sheet in enumerate(sheets):
            sheet.to_excel(writer, sheet_name=f"s{i}", index=False)
    return file.getvalue()


def _flipped(data: bytes) -> bytes:
    """Return bytes of which some have a flipped bit."""
    changed = bytearray(data)
    for at in range(60, len(changed), 97):
        changed[at] ^= 1
    return bytes(changed)


def _other_files() -> dict[str, bytes]:
    """Return tables in other formats than plain CSV."""
    frame = make_frame()
    good = frame.to_csv(index=False)
    plain = frame.assign(day=frame["day"].dt.tz_localize(None))
    odd = pd.DataFrame(
        {
            "t": [dt.time(i % 24, 2) for i in range(40)],
            "d": [dt.timedelta(days=i) for i in range(40)],
            "n": [2**70 if i % 2 else "#DIV/0!" for i in range(40)],
        }
    )
    sheet, archive = _workbook(plain), _archive(good_csv=good)
    formats = "when;cost;part\n" + "".join(
        f"{i % 28 + 1:02d}.0{i % 9 + 1}.2021;€ {i * 37},5;{i} %\n" for i in range(40)
    )
    return {
        "good.xlsx": sheet,
        "two.xlsx": _workbook(plain, odd),
        "half.xlsx": sheet[: len(sheet) // 2],
        "flipped.xlsx": _flipped(sheet),
        "no.xlsx": good.encode(),
        "good.tsv": frame.to_csv(index=False, sep="\t").encode(),
        "bars.txt": frame.to_csv(index=False, sep="|").encode(),
        "wide.csv": good.encode("utf-16"),
        "marked.csv": good.encode("utf-8-sig"),
        "formats.csv": formats.encode(),
        "good.zip": archive,
        "several.zip": _archive(a_csv=good, b_csv=good),
        "outside.zip": _archive(upupa_csv=good),
        "flipped.zip": _flipped(archive),
        "rich.csv": make_rich_frame(200).to_csv(index=False).encode(),
    }


def lay_out(folder: Path) -> None:
    """Write all files into an empty folder."""
    for name, contents in _texts().items():
        data = contents.encode() if isinstance(contents, str) else contents
        (folder / name).write_bytes(data)
    for name, table in _tables().items():
        parquet.write_table(table, folder / f"{name}.parquet")
    feather.write_feather(_tables()["decimal"], folder / "decimal.feather")
    for name, data in _other_files().items():
        (folder / name).write_bytes(data)
    fit(make_frame()).save(folder / "good.augmask")
    rich = fit(pd.read_csv(folder / "rich.csv"), options={"links": "keep"}, holdout=0.1)
    rich.save(folder / "rich.augmask")
    half = (folder / "good.augmask").read_bytes()
    (folder / "half.augmask").write_bytes(half[: len(half) // 2])
    make_frame(seed=1).drop(columns="key").to_csv(folder / "others.csv", index=False)
    pd.DataFrame({"job": ["pilot"], "kg": [1e9]}).to_csv(
        folder / "new.csv", index=False
    )
    (folder / "sub").mkdir()
    (folder / "link.csv").symlink_to("good.csv")
    (folder / "link.augmask").symlink_to("good.augmask")
    (folder / "loop.csv").symlink_to("loop.csv")
    os.mkfifo(folder / "pipe.csv")
    os.mkfifo(folder / "pipe.augmask")


def listing(folder: Path) -> dict[str, bytes]:
    """Return the contents of all regular files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
