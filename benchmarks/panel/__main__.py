"""The panel: ours and others on public tables with missing values, scored alike.

    python benchmarks/panel tables
    python benchmarks/panel prepare WORK [--tables star pbc]
    python benchmarks/panel run WORK [--tables ...] [--methods rivals] [--tasks impute]
    python benchmarks/panel run WORK --methods augmask --set preset=fast backbone=cdtd
    python benchmarks/panel score WORK [--result panel.csv]
    python benchmarks/panel page [--result panel.csv] [--out docs/research/panel.md]

`tables` says what the panel has and what is absent, and how to get it. `prepare` reads,
splits and stores; `run` lets contenders learn, each in a process of its own with a
limit, and keeps their rows; `score` holds all of them against the same cells and
appends what is new to a CSV file; `page` writes the page. All go on where they were.
`--methods` takes names, `all`, `rivals` (all but ours) and `ours`.

Tables are looked for in AUGMASK_DATA and AUGMASK_PANEL, environments in the checkout
and in AUGMASK_ENVIRONMENTS. AUGMASK_PANEL_FILE names another panel than `panel.toml`,
as `small.toml`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import data
import running

RESULT = running.ROOT / "benchmarks" / "results" / "panel.csv"
PAGE = running.ROOT / "docs" / "research" / "panel.md"
OURS = "augmask"


def _tables(options: argparse.Namespace) -> list[str]:
    known = list(data.panel()["tables"])
    unknown = [name for name in options.tables if name not in known]
    if unknown:
        sys.exit(f"no table {unknown[0]!r} in the panel; there are {', '.join(known)}")
    return options.tables or known


def _methods(options: argparse.Namespace) -> list[str]:
    known = list(data.panel()["methods"])
    groups = {
        "all": known,
        "ours": [OURS],
        "rivals": [name for name in known if name != OURS],
    }
    chosen: list[str] = []
    for name in options.methods:
        if name not in groups and name not in known:
            sys.exit(f"no method {name!r}; there are {', '.join([*groups, *known])}")
        chosen += groups.get(name, [name])
    return chosen


def list_tables(options: argparse.Namespace) -> None:
    """Print every table with its traits, and how to get what is absent."""
    del options
    whole = data.panel()
    for name, entry in whole["tables"].items():
        found = data.source_file(entry, whole["sources"])
        where = "here" if isinstance(found, Path) else found
        print(f"{name:12} {', '.join(entry['traits'])}; {entry['licence']}: {where}")


def prepare(options: argparse.Namespace) -> None:
    """Store the tables for all contenders."""
    for name in _tables(options):
        said = data.prepare(name, options.work, options.seed, options.again)
        print(f"{name}: {said}", flush=True)


def _settings(words: list[str]) -> dict[str, Any]:
    """Return NAME=VALUE words as settings of ours; dots go into its options."""
    found: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if name.startswith("options."):
            found.setdefault("options", {})[name.removeprefix("options.")] = value
        else:
            found[name] = value
    return found


def run(options: argparse.Namespace) -> None:
    """Let contenders learn, one after the other."""
    methods = data.panel()["methods"]
    asked = _settings(options.set)
    for name in _methods(options):
        contender = running.Contender(name, asked if name == OURS else {})
        for task in options.tasks:
            if task not in methods[name]["tasks"]:
                continue
            for table in _tables(options):
                if not (options.work / "tables" / table / "facts.json").exists():
                    print(f"{table}: skipped, it was not prepared", flush=True)
                    continue
                found = running.run(
                    options.work, table, task, contender, options.seed, options.again
                )
                if found["fresh"]:
                    said = found["why"] or f"{found['seconds']} s"
                    print(f"{table} {task} {contender.name}: {said}", flush=True)


def score(options: argparse.Namespace) -> None:
    """Score whatever was run and has no line yet."""
    import scoring

    scoring.score_all(options.work, options.result, _tables(options))


def page(options: argparse.Namespace) -> None:
    """Write the page."""
    import page as writing

    options.out.write_text(writing.page(options.result))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "panel", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    stages = parser.add_subparsers(required=True)
    stages.add_parser("tables").set_defaults(stage=list_tables)
    for stage in (prepare, run, score):
        sub = stages.add_parser(stage.__name__)
        sub.set_defaults(stage=stage)
        sub.add_argument("work", type=Path)
        sub.add_argument("--tables", nargs="*", default=[], help="all by default")
        if stage is score:
            sub.add_argument("--result", type=Path, default=RESULT)
            continue
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--again", action="store_true", help="though it was done")
        if stage is run:
            sub.add_argument("--methods", nargs="*", default=["all"])
            sub.add_argument("--tasks", nargs="*", default=["synthesize", "impute"])
            sub.add_argument(
                *("--set",),
                nargs="*",
                default=[],
                help="of ours: preset=fast backbone=cdtd options.steps=400",
            )
    last = stages.add_parser("page")
    last.set_defaults(stage=page)
    last.add_argument("--result", type=Path, default=RESULT)
    last.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    if hasattr(options, "work"):
        options.work = options.work.resolve()
    options.stage(options)


if __name__ == "__main__":
    main()
