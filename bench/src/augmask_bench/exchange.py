"""Export and import: move fills, rows and records of a grid between machines.

A grid is exported as few archives of at most a given size, each of which can be
imported without the others; only a file that is larger than an archive is cut in
pieces. Archives are uncompressed ZIP files, because what they hold is compressed.

`work` is what another machine needs to train what is left: fills, the names of the
runs that it need not train, and how long groups of the same generators took, so that
it knows what ends within a slice of time. `results` is what this machine made and the
other one lacks: rows that are not scored, records, and how long groups took.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from augmask.errors import DataError, UsageError
from augmask.files import atomic_write
from augmask_bench.plan import Run, fill_name
from augmask_bench.results import (
    FINAL,
    pending,
    read,
    set_trained_elsewhere,
    trained_elsewhere,
    untrained,
    write,
)
from augmask_bench.speed import speed_of, speeds
from augmask_bench.stages import trained_or_over

WHAT = ("all", "work", "results")
DEFAULT_MIB = 15.0
# What an archive needs beside the bytes of a file, at most.
OVERHEAD = 512
TRAINED = "trained.json"
MEMBER = re.compile(
    r"(?P<kind>fills|samples|runs|groups)/(?P<name>[0-9a-f]{20})\.(npz|parquet|json)"
)
PIECE = re.compile(r"(?P<member>.+)\.piece-(?P<i>\d+)-of-(?P<n>\d+)")


class Member(NamedTuple):
    """A file in an archive: its name there, and its bytes from `start` to `end`."""

    name: str
    path: Path | None
    start: int
    end: int
    text: str = ""

    def content(self) -> bytes:
        """Return the bytes."""
        if self.path is None:
            return self.text.encode()
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.end - self.start)


# -- export -------------------------------------------------------------------------


def _paths(out: Path, runs: Sequence[Run], what: str) -> Iterator[Path]:
    """Yield the files of a grid to export."""
    names = {run.name for run in runs}
    if what != "results":
        using = runs if what == "all" else untrained(out, runs)
        fills = dict.fromkeys(filter(None, map(fill_name, using)))
        yield from (out / "fills" / f"{name}.npz" for name in fills)
    if what == "work":
        left = {run.method.generator for run in using}
        for one in speeds(out):
            if one["generator"] in left and names & set(one["runs"]):
                yield one["path"]
        return
    known = trained_elsewhere(out) if what == "results" else set()
    for name in sorted(names - known):
        yield out / "samples" / f"{name}.parquet"
        result = read(out, name)
        if result is not None and result["status"] in FINAL:
            yield out / "runs" / f"{name}.json"
    for one in speeds(out):
        if set(one["runs"]) & (names - known):
            yield one["path"]


def _cut(members: Iterable[Member], most: int) -> Iterator[Member]:
    """Yield members, in pieces where they are larger than an archive."""
    for member in members:
        n = -(-member.end // most)
        if n <= 1:
            yield member
            continue
        for i in range(n):
            name = f"{member.name}.piece-{i + 1}-of-{n}"
            end = min((i + 1) * most, member.end)
            yield member._replace(name=name, start=i * most, end=end)


def _packed(members: Iterable[Member], most: int) -> list[list[Member]]:
    """Return members in few archives: each goes into the first with enough room."""
    archives: list[list[Member]] = []
    room: list[int] = []
    for member in sorted(members, key=lambda m: (m.start - m.end, m.name)):
        size = member.end - member.start + OVERHEAD
        at = next((i for i, left in enumerate(room) if size <= left), len(room))
        if at == len(room):
            archives.append([])
            room.append(most + OVERHEAD)
        archives[at].append(member)
        room[at] -= size
    return archives


def export_grid(
    out: Path,
    runs: Sequence[Run],
    to: Path,
    *,
    stem: str,
    what: str = "all",
    mib: float = DEFAULT_MIB,
) -> list[Path]:
    """Write what a grid has into archives, and return them.

    Archives of an earlier export of the same name and kind are removed.

    Parameters
    ----------
    out : Path
        The folder of the grid.
    runs : sequence of Run
    to : Path
        The folder of the archives.
    stem : str
        How their names begin.
    what : {"all", "work", "results"}
    mib : float
        Largest size of an archive, in MiB.
    """
    if what not in WHAT:
        raise UsageError(f"what must be one of {WHAT}, got {what!r}")
    most = int(mib * 2**20) - 2 * OVERHEAD
    if most < 2**14:
        raise UsageError(f"the size must be at least 0.02 MiB, got {mib:g}")
    members = []
    for path in _paths(out, runs, what):
        with suppress(FileNotFoundError):
            n_bytes = path.stat().st_size
            members.append(Member(f"{path.parent.name}/{path.name}", path, 0, n_bytes))
    if what == "work":
        text = json.dumps(sorted(trained_or_over(out, runs)))
        members.append(Member(TRAINED, None, 0, len(text), text))
    to.mkdir(parents=True, exist_ok=True)
    start = re.sub(r"[^\w.-]", "_", f"{stem}-{what}")
    for old in to.glob(f"{start}-[0-9][0-9][0-9].zip"):
        old.unlink()
    written = []
    for i, archive in enumerate(_packed(_cut(members, most), most), 1):
        path = to / f"{start}-{i:03d}.zip"
        with atomic_write(path) as part, zipfile.ZipFile(part, "w") as file:
            for member in archive:
                # `score` removes rows meanwhile
                with suppress(FileNotFoundError):
                    content = member.content()
                    # a fixed date: the same content gives the same archive
                    file.writestr(zipfile.ZipInfo(member.name), content)
        written.append(path)
    return written


# -- import -------------------------------------------------------------------------


def _archives(sources: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for source in sources:
        if source.is_dir():
            found += sorted(source.glob("*.zip"))
        elif source.is_file():
            found.append(source)
        else:
            raise DataError(f"no such file: {source}")
    if not found:
        raise DataError("there is no archive (*.zip) to import; export a grid first")
    return found


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an archive; raise if it is not one of `export_grid`."""
    try:
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                piece = PIECE.fullmatch(info.filename)
                name = piece["member"] if piece else info.filename
                known = name == TRAINED or MEMBER.fullmatch(name)
                # an uncompressed member is no larger than its archive
                if not known or info.compress_type != zipfile.ZIP_STORED:
                    raise DataError(
                        f"{archive} is not an archive of `augmask bench export`: it "
                        f"has the member {info.filename[:60]!r}"
                    )
                yield info.filename, file.read(info)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"cannot read the archive {archive}: {error}; copy it again"
        ) from error


def _put(out: Path, name: str, content: bytes) -> bool:
    """Store a member in the folder of a grid; return whether it was new."""
    path = out.joinpath(*PurePosixPath(name).parts)
    if path.parent.name == "runs":
        try:
            result = json.loads(content)
            known = result["run"] == path.stem and result["status"] in FINAL
        except (ValueError, TypeError, KeyError):
            known = False
        if not known:
            raise DataError(
                f"the record {name} of the archive is damaged; export again"
            )
        before = read(out, path.stem)
        write(out, result)
        return before is None or before["status"] not in FINAL
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_bytes(content)
    return True


def _names(content: bytes) -> set[str]:
    """Return the names of the runs that another machine need not train."""
    try:
        return set(map(str, json.loads(content)))
    except (ValueError, TypeError) as error:
        raise DataError(
            f"the list {TRAINED} of the archive is damaged; export again"
        ) from error


def import_grid(
    out: Path, runs: Sequence[Run], sources: Iterable[Path]
) -> Counter[str]:
    """Read archives into the folder of a grid, and count what is new by kind.

    What belongs to no run of the plan is `ignored`: it was made with other settings,
    versions or tables. A completed or failed run stays as it is, and its rows do not
    come back once they were scored.

    Parameters
    ----------
    out : Path
    runs : sequence of Run
    sources : iterable of Path
        Archives, or folders of archives.
    """
    names = {run.name for run in runs}
    fills = {fill_name(run) for run in runs}
    over = names - {run.name for run in pending(out, runs)}
    counts: Counter[str] = Counter()
    pieces: dict[str, dict[int, bytes]] = {}
    trained: set[str] | None = None
    out.mkdir(parents=True, exist_ok=True)

    def take(name: str, content: bytes) -> None:
        match = MEMBER.fullmatch(name)
        assert match is not None
        kind = match["kind"]
        if kind == "groups":
            facts = speed_of(content)
            if facts is None or not names & set(facts["runs"]):
                kind = "ignored"
        elif match["name"] not in (fills if kind == "fills" else names):
            kind = "ignored"
        elif kind == "samples" and match["name"] in over:
            return
        if kind == "ignored" or _put(out, name, content):
            counts[kind] += 1

    for archive in _archives(sources):
        for name, content in _members(archive):
            piece = PIECE.fullmatch(name)
            if name == TRAINED:
                trained = _names(content) & names
            elif piece is None:
                take(name, content)
            else:
                parts = pieces.setdefault(piece["member"], {})
                parts[int(piece["i"])] = content
                if len(parts) == int(piece["n"]):
                    take(piece["member"], b"".join(parts[i] for i in sorted(parts)))
                    parts.clear()
    if trained is not None:
        set_trained_elsewhere(out, trained)
    counts["incomplete"] = sum(bool(parts) for parts in pieces.values())
    return counts
