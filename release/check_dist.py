"""Check what the wheels and source archives in `dist/` hold; `make dist` runs this.

python release/check_dist.py dist
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {"augmask": ROOT, "augmask_bench": ROOT / "bench"}
# A library that is much larger holds what it should not.
MOST_BYTES = 2_000_000


def tracked(package: str) -> set[str]:
    """Return the files of a package under version control."""
    source = PACKAGES[package] / "src"
    listed = subprocess.run(
        ["git", "ls-files", "-z", package], cwd=source, check=True, capture_output=True
    )
    return set(filter(None, listed.stdout.decode().split("\0")))


def wheel_faults(package: str, path: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    project = tomllib.loads((PACKAGES[package] / "pyproject.toml").read_text())
    facts = project["project"]
    info = f"{package}-{facts['version']}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
        points = f"{info}/entry_points.txt"
        entry_points = wheel.read(points).decode() if points in names else ""
    faults = []
    code = {name for name in names if not name.startswith(f"{info}/")}
    source = tracked(package)
    faults += [f"{name} is not in the wheel" for name in sorted(source - code)]
    faults += [f"{name} does not belong there" for name in sorted(code - source)]
    needed = {f"{package}/py.typed", f"{info}/licenses/LICENSE"}
    if package == "augmask":
        page = ("template.html", "style.css", "sort.js")
        needed |= {f"augmask/report/{name}" for name in page}
    faults += [f"{name} is not in the wheel" for name in sorted(needed - names)]
    if metadata["Version"] != facts["version"]:
        faults.append(f"the wheel says version {metadata['Version']}")
    if metadata["Requires-Python"] != facts["requires-python"]:
        faults.append(f"the wheel says Python {metadata['Requires-Python']}")
    extras = set(metadata.get_all("Provides-Extra") or [])
    faults += [
        f"the extra {extra} is not declared"
        for extra in facts["optional-dependencies"]
        if extra not in extras
    ]
    if "bench" not in entry_points and package == "augmask_bench":
        faults.append("the command bench is not declared")
    if "augmask = augmask.cli:main" not in entry_points and package == "augmask":
        faults.append("the command augmask is not declared")
    if path.stat().st_size > MOST_BYTES:
        faults.append(f"the wheel has {path.stat().st_size:,} bytes")
    return faults


def archive_faults(package: str, path: Path) -> list[str]:
    """Return what is wrong with a source archive."""
    with tarfile.open(path) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
    names = {name.split("/", 1)[1] for name in files}
    needed = {f"src/{name}" for name in tracked(package)}
    needed |= {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    faults = [f"{name} is not in the archive" for name in sorted(needed - names)]
    allowed = {".gitignore", "CHANGELOG.md", "CITATION.cff", "SECURITY.md"}
    faults += [
        f"{name} does not belong there" for name in sorted(names - needed - allowed)
    ]
    return faults


def main(folder: Path) -> int:
    """Print what is wrong; return 1 if anything is."""
    failed = False
    for package in PACKAGES:
        checks = {".whl": wheel_faults, ".tar.gz": archive_faults}
        for suffix, find in checks.items():
            found = sorted(folder.glob(f"{package}-[0-9]*{suffix}"))
            if len(found) != 1:
                print(f"{folder} must hold one {package}*{suffix}, found {len(found)}")
                failed = True
                continue
            faults = find(package, found[0])
            failed |= bool(faults)
            print(f"{found[0].name}: {'; '.join(faults) or 'as it should be'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
