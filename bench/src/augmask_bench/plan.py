"""A plan: one TOML file that says which runs make up a grid.

    mechanisms = ["mcar", "mar"]     # how cells are hidden; mcar by default
    ratios = [0.3, 0.7]              # share of hidden cells; 0.3 by default
    seeds = [0, 1, 2]                # of split, holes, training; 0 by default
    datasets = ["adult", "magic"]    # names of bench/tables.toml

    [[datasets]]                     # or tables, with settings; here one's own
    path = "my.csv"                  # relative to the plan
    target = "y"

    [[methods]]                      # lists are crossed
    generator = ["cdtd", "tabdiff"]
    strategy = ["NoAug", "AugFull", "AugMask"]
    preset = "fast"
    options = { steps = 500 }

A run is named by a hash of what decides about its result: the contents of the table,
the holes, the split, the metrics, all settings of the generator and the augmenter with
presets and defaults written out, and the versions that these two declare. What is
about the machine (`device`), about the files (`keep`) or only a name (`label`,
`strategy`) is not hashed: changing it repeats nothing. `max_minutes` is, since it may
end a training early; it covers the filling of holes too, which only a block's first run
pays for.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module, util
from pathlib import Path
from typing import Any

from augmask.errors import DataError, UsageError
from augmask.missing.simulate import MAR_RULES, MECHANISMS
from augmask_bench.data import FEWEST_ROWS, Source
from augmask_bench.methods import Method, complete_method, find_generator
from augmask_bench.validation import check_keys, chosen, listed, texts, typed

# Part of every name: raised when split, holes or scoring change their meaning.
PROTOCOL = 1
KEYS = (
    *("datasets", "mechanisms", "mar", "ratios", "seeds", "methods", "metrics"),
    *("keep", "device", "max_minutes", "modules"),
)
TREND_EDGES = ("real", "sdmetrics")
DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class Metrics:
    """How runs are scored.

    Parameters
    ----------
    rows : int, optional
        α-precision and β-recall on at most so many rows of each table.
    trend : {"real", "sdmetrics"}
        Where Trend takes the edges of its bins from.
    """

    rows: int | None = None
    trend: str = "real"


@dataclass(frozen=True)
class Run:
    """One run: a table, its holes, a seed and a method.

    `name` is the hash of its content; the rest of the fields say what to do.
    """

    name: str
    source: Source
    mechanism: str
    mar: str
    ratio: float
    seed: int
    method: Method
    metrics: Metrics
    keep: bool = False
    device: str = "auto"
    max_minutes: float | None = None
    modules: tuple[str, ...] = ()

    @property
    def block(self) -> tuple[str, str, float, int]:
        """What all methods that are compared with each other share."""
        return self.source.name, self.mechanism, self.ratio, self.seed

    def __str__(self) -> str:
        dataset, mechanism, ratio, seed = self.block
        return f"{self.method.label} on {dataset}, {mechanism} {ratio:g}, seed {seed}"


@dataclass(frozen=True)
class Plan:
    """All runs of a grid, those of a block one after the other."""

    runs: tuple[Run, ...]
    device: str
    keep: bool

    @property
    def methods(self) -> list[Method]:
        """Every method once, in the order of the file."""
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def sizes(self) -> dict[str, int]:
        """How many of each kind are crossed."""
        return {
            "datasets": len({run.source for run in self.runs}),
            "mechanisms": len({run.mechanism for run in self.runs}),
            "ratios": len({run.ratio for run in self.runs}),
            "seeds": len({run.seed for run in self.runs}),
            "methods": len(self.methods),
        }


def load_modules(modules: Iterable[str]) -> None:
    """Import the modules that register further generators.

    A name that ends in `.py` is a file; any other is imported as Python does.
    """
    for name in modules:
        if name.endswith(".py") and not Path(name).is_file():
            raise DataError(f"no such file: {name}")
        try:
            _load_file(name) if name.endswith(".py") else import_module(name)
        except Exception as error:
            raise UsageError(
                f"the module {name} of the plan cannot be loaded "
                f"({type(error).__name__}: {error}); mend it, or leave it out"
            ) from error


def _load_file(name: str) -> None:
    # a name of its own: dataclasses look their module up, and nothing is hidden by it
    spec = util.spec_from_file_location(f"augmask_plan_{Path(name).stem}", name)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _source(given: Any, folder: Path) -> Source:
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping):
        raise UsageError(f"a dataset is a name or a table of settings, got {given!r}")
    check_keys(given, [f.name for f in fields(Source)], "a dataset of the plan")
    if "name" not in given and "path" not in given:
        raise UsageError("a dataset of the plan needs a name or a path")
    path = typed(given, "path", str, None)
    kinds = typed(given, "kinds", Mapping, {})
    for column in kinds:
        typed(kinds, column, str, None)
    place = None if path is None else str((folder / Path(path).expanduser()).resolve())
    name = typed(given, "name", str, Path(path or "").name.split(".")[0])
    if not re.fullmatch(r"[\w .-]+", name) or name.startswith("."):
        raise UsageError(
            f"the name of a dataset is part of file names: letters, digits, spaces and "
            f". _ - only, got {name!r}; set `name`"
        )
    return Source(
        name=name,
        path=place,
        target=typed(given, "target", str, ""),
        task=typed(given, "task", str, ""),
        drop=tuple(texts(given, "drop")),
        kinds=tuple(kinds.items()),
        rows=typed(given, "rows", int, None),
    )


CROSSED = {
    "generator": str,
    "strategy": str,
    "augmenter": str,
    "supervise": str,
    "completions": str,
    "eta": (int, float),
    "lam": (int, float),
    "preset": str,
}


def _one_or_more(key: str, value: Any) -> Any:
    """Return an option: one value, or a list of them as a tuple."""
    every = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) for one in every):
        raise UsageError(
            f"the option {key!r} must be a value or a list of them, got {value!r}"
        )
    return tuple(value) if isinstance(value, list) else value


def _methods(given: Any) -> list[Method]:
    """Return the methods of one entry: its lists crossed."""
    if not isinstance(given, Mapping):
        raise UsageError(f"a method is a table of settings, got {given!r}")
    check_keys(given, [f.name for f in fields(Method)], "a method of the plan")
    if "generator" not in given:
        raise UsageError("a method of the plan needs a generator")
    if "supervise" in given and "strategy" not in given:
        raise UsageError("a method that says what it supervises needs a strategy name")
    options = typed(given, "options", Mapping, {})
    options = {key: _one_or_more(key, value) for key, value in options.items()}
    found = []
    for generator in listed(given, "generator", str, None):
        usual = list(find_generator(generator).strategies) or [""]
        lists = {
            key: listed({"strategy": usual, **given}, key, kind, None)
            for key, kind in CROSSED.items()
            if key in given or key == "strategy"
        }
        lists["generator"] = [generator]
        for values in itertools.product(*lists.values()):
            picked: dict[str, Any] = dict(zip(lists, values, strict=True))
            for perturb in {"eta", "lam"} & picked.keys():
                picked[perturb] = float(picked[perturb])
            found.append(Method(**picked, options=tuple(options.items())))
    label = typed(given, "label", str, "")
    if label and len(found) > 1:
        raise UsageError(
            f"the label {label!r} is for one method, and its entry names {len(found)}; "
            "give each an entry of its own"
        )
    return [complete_method(replace(method, label=label)) for method in found]


def _check_distinct(methods: list[Method], sources: list[Source]) -> None:
    """Raise if a name would mean two things, or one thing would run twice."""
    for kind, names in (
        ("method", [method.label for method in methods]),
        ("dataset", [source.name for source in sources]),
    ):
        twice = [name for name, n in Counter(names).items() if n > 1]
        if twice:
            word = "label" if kind == "method" else "name"
            raise UsageError(
                f"every {kind} of a plan needs a name of its own, {twice[0]!r} stands "
                f"there more than once; set `{word}`"
            )
    seen: dict[str, str] = {}
    for method in methods:
        same = json.dumps(method.identity(), sort_keys=True)
        if same in seen:
            raise UsageError(
                f"the methods {seen[same]!r} and {method.label!r} do the same; "
                "leave one out"
            )
        seen[same] = method.label


def _holes(
    mechanism: str, mar: str, ratio: float, seed: int, minutes: float | None
) -> list[Any]:
    """Return what decides about split, holes and training besides the method."""
    facts = [mechanism, mar if mechanism == "mar" else "", ratio, seed]
    # a training that is cut short is another one
    return facts if minutes is None else [*facts, minutes]


def _name(data: str, holes: list[Any], method: Method, metrics: Metrics) -> str:
    facts = [PROTOCOL, data, holes, method.identity(), asdict(metrics)]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def name_now(run: Run) -> str:
    """Return the name that a run has here and now.

    It differs from `run.name` when the table was changed since the plan was read, or
    when another machine has another table, or other presets.
    """
    holes = _holes(run.mechanism, run.mar, run.ratio, run.seed, run.max_minutes)
    return _name(run.source.digest(), holes, run.method, run.metrics)


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"the plan {path} cannot be read: {reason}") from error
    # not only what TOML says of itself: depths and digits have limits of their own
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the plan {path} is not valid TOML: {error}") from error


def read_plan(path: str | Path) -> Plan:
    """Read a plan and name its runs; of the tables, one's own are read for that.

    Parameters
    ----------
    path : str or Path
        A TOML file, see the text of this module.

    Examples
    --------
    >>> import tempfile
    >>> plan = Path(tempfile.mkdtemp()) / "small.toml"
    >>> _ = plan.write_text('''
    ... ratios = [0.3, 0.7]
    ... datasets = ["clinic"]
    ... [[methods]]
    ... generator = "cdtd"
    ... preset = "fast"
    ... ''')
    >>> runs = read_plan(plan).runs
    >>> len(runs), str(runs[0])
    (6, 'CDTD + NoAug on clinic, mcar 0.3, seed 0')
    """
    path = Path(path)
    given = _document(path)
    check_keys(given, KEYS, "a plan")
    for key in ("datasets", "methods"):
        if not isinstance(given.get(key), list) or not given[key]:
            raise UsageError(f"a plan needs at least one of its {key}, as a list")
    folder = path.resolve().parent
    modules = tuple(
        str(folder / name) if name.endswith(".py") else name
        for name in texts(given, "modules")
    )
    load_modules(modules)
    asked = typed(given, "metrics", Mapping, {})
    check_keys(asked, [f.name for f in fields(Metrics)], "[metrics]")
    metrics = Metrics(
        typed(asked, "rows", int, None),
        chosen("trend", typed(asked, "trend", str, "real"), TREND_EDGES),
    )
    if metrics.rows is not None and metrics.rows < FEWEST_ROWS:
        raise UsageError(
            f"rows of [metrics] must be at least {FEWEST_ROWS}, got {metrics.rows}"
        )
    sources = [_source(entry, folder) for entry in given["datasets"]]
    methods = [method for entry in given["methods"] for method in _methods(entry)]
    _check_distinct(methods, sources)
    mechanisms = listed(given, "mechanisms", str, "mcar")
    ratios = [float(r) for r in listed(given, "ratios", (int, float), 0.3)]
    for ratio in ratios:
        if not 0 <= ratio < 1:
            raise UsageError(f"ratios must be at least 0 and below 1, got {ratio:g}")
    mar = chosen("mar", typed(given, "mar", str, MAR_RULES[0]), MAR_RULES)
    keep = typed(given, "keep", bool, False)
    device = chosen("device", typed(given, "device", str, "auto"), DEVICES)
    minutes = typed(given, "max_minutes", (int, float), None)
    if minutes is not None and not 0 < minutes < math.inf:
        raise UsageError(f"max_minutes must be above 0, got {minutes:g}")
    seeds = listed(given, "seeds", int, 0)
    if min(seeds) < 0:
        raise UsageError(f"seeds must be at least 0, got {min(seeds)}")
    digests = {source: source.digest() for source in sources}
    runs = []
    for source, mechanism, ratio, seed, method in itertools.product(
        sources,
        [chosen("mechanism", m, MECHANISMS) for m in mechanisms],
        ratios,
        seeds,
        methods,
    ):
        holes = _holes(mechanism, mar, ratio, seed, minutes)
        name = _name(digests[source], holes, method, metrics)
        runs.append(
            Run(
                name, source, mechanism, mar, ratio, seed, method, metrics,
                keep, device, minutes, modules,
            )
        )  # fmt: skip
    return Plan(tuple(runs), device, keep)
