"""The folder of a long job: finished parts stay, so that the job can be resumed.

A job writes each part to a file of its own, which appears as a whole or not at all.
The manifest says which job the folder belongs to. Starting the same job again does only
what is missing; starting another one in the folder is refused.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from augmask.errors import DataError, UsageError
from augmask.files import as_path, atomic_write

# Readers of Parquet folders skip names that begin with an underscore.
MANIFEST = "_augmask.json"

# The newest parts tell how fast a stage is now: a job may have been interrupted.
NEWEST = 20


def digest_of(facts: Any, arrays: Iterable[Any] = ()) -> str:
    """Return the digest of facts and of numpy arrays, which identifies a job.

    A fact that JSON cannot hold counts as its text.

    Examples
    --------
    >>> digest_of(["fit", 1]) == digest_of(("fit", 1))
    True
    """
    digest = hashlib.sha256(json.dumps(facts, default=str).encode())
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class StageProgress:
    """How far a stage of a job is.

    Parameters
    ----------
    name : str
    done, total : int
        Parts.
    parts_per_second : float or None
        From the times at which the newest parts were finished; None if they are too
        few to tell.
    rows_per_second : float or None
        The same in rows, where parts are Parquet files.
    """

    name: str
    done: int
    total: int
    parts_per_second: float | None = None
    rows_per_second: float | None = None

    @classmethod
    def of(cls, name: str, files: Sequence[Path], total: int) -> Self:
        """Return the progress of a stage with these finished files."""
        timed = sorted((file.stat().st_mtime, file) for file in files)[-NEWEST:]
        seconds = timed[-1][0] - timed[0][0] if timed else 0.0
        if len(timed) < 3 or seconds <= 0:
            return cls(name, len(files), total)
        newer = [file for _, file in timed[1:]]
        rows = None
        if all(file.suffix == ".parquet" for file in newer):
            from pyarrow import parquet

            footers = map(parquet.read_metadata, newer)
            rows = sum(footer.num_rows for footer in footers) / seconds
        return cls(name, len(files), total, len(newer) / seconds, rows)

    @property
    def seconds_left(self) -> float | None:
        """Estimated time to the end of the stage; None if unknown."""
        if self.done >= self.total:
            return 0.0
        if self.parts_per_second is None:
            return None
        return (self.total - self.done) / self.parts_per_second


@dataclass(frozen=True)
class JobFolder:
    """A folder that a job fills.

    Parameters
    ----------
    path : Path
    manifest : mapping
        `job`, what it does; `fingerprint`, which two runs share if their parts are the
        same; `stages`, the number of parts and the pattern of their files by stage.
    """

    path: Path
    manifest: Mapping[str, Any]

    @classmethod
    def open(
        cls,
        path: str | Path,
        job: str,
        fingerprint: str,
        stages: Mapping[str, tuple[str, int]],
    ) -> Self:
        """Create the folder of a job, or return to that of the same job.

        Parameters
        ----------
        path : str or Path
            A new folder, an empty one, or one that this job has begun to fill.
        job : str
            Such as "fit" or "sample".
        fingerprint : str
        stages : mapping of str to pair
            Pattern of the files of a stage and their number, in order.

        Examples
        --------
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp(), "rows")
        >>> job = JobFolder.open(folder, "sample", "5f", {"rows": ("part-*", 2)})
        >>> _ = (folder / "part-0").write_text("")
        >>> [(stage.name, stage.done, stage.total) for stage in job.stages()]
        [('rows', 1, 2)]
        >>> JobFolder.open(folder, "sample", "77", {"rows": ("part-*", 2)})
        Traceback (most recent call last):
        augmask.errors.UsageError: ... holds another sample job; name another folder, \
or remove it
        """
        path = as_path(path).expanduser()
        manifest = {
            "job": job,
            "fingerprint": fingerprint,
            "stages": {name: list(stage) for name, stage in stages.items()},
        }
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file; name a folder")
        before = read_manifest(path) if (path / MANIFEST).exists() else None
        if before is not None:
            if (before["job"], before["fingerprint"]) != (job, fingerprint):
                raise UsageError(
                    f"{path} holds another {before['job']} job; name another folder, "
                    "or remove it"
                )
            return cls(path, before)
        if path.exists() and any(path.iterdir()):
            raise UsageError(
                f"{path} is not empty, and no job of augmask began it; name a new "
                "folder"
            )
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot make {path}: {error.strerror or error}") from error
        with atomic_write(path / MANIFEST) as part:
            part.write_text(json.dumps(manifest, indent=1) + "\n")
        return cls(path, manifest)

    def stages(self) -> list[StageProgress]:
        """Return how far each stage is, and how fast."""
        return [
            StageProgress.of(name, list(self.path.glob(pattern)), total)
            for name, (pattern, total) in self.manifest["stages"].items()
        ]

    def last_change(self) -> float:
        """Return the seconds since a part was last finished."""
        times = [path.stat().st_mtime for path in self.path.iterdir()]
        return time.time() - max(times)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a job's folder, or raise `DataError`."""
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        stages = manifest["stages"].values()
        if not (
            isinstance(manifest["job"], str)
            and isinstance(manifest["fingerprint"], str)
            and all(type(stage[0]) is str and type(stage[1]) is int for stage in stages)
        ):
            raise ValueError
    except OSError as error:
        raise DataError(
            f"{path} is not the folder of a job of augmask: it has no {MANIFEST}"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataError(
            f"{path / MANIFEST} is damaged; remove the folder and start again"
        ) from error
    return manifest


def job_folder(path: str | Path) -> JobFolder:
    """Return the folder of a job that was begun, to see how far it is."""
    path = as_path(path).expanduser()
    if not path.is_dir():
        raise DataError(f"no such folder: {path}")
    return JobFolder(path, read_manifest(path))
