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

A run is named by a hash of what decides about its result: the table, the holes, the
split, the method's settings and declared version, the metrics. What is about the
machine (`device`, `max_minutes`), about the files (`keep`) or only a name (`label`,
`strategy`) is not hashed: changing it repeats nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module, util
from pathlib import Path
from typing import Any

from augmask.bench.data import Source
from augmask.bench.methods import Method, complete_method, find_generator
from augmask.errors import DataError, UsageError, did_you_mean
from augmask.missing.simulate import MAR_RULES, MECHANISMS

# Part of every name: raised when split, holes or scoring change their meaning.
PROTOCOL = 1
KEYS = (
    *("datasets", "mechanisms", "mar", "ratios", "seeds", "methods", "metrics"),
    *("keep", "device", "max_minutes", "modules"),
)
TYPES = {
    **{str: "text", int: "a whole number", float: "a number"},
    **{bool: "true or false", list: "a list", Mapping: "a table of settings"},
}
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

    path: Path
    runs: tuple[Run, ...]
    device: str
    keep: bool

    @property
    def methods(self) -> list[Method]:
        """Every method once, in the order of the file."""
        return list(dict.fromkeys(run.method for run in self.runs))


def _check_keys(given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    known = list(known)
    for key in given:
        if key not in known:
            raise UsageError(f"{place} has no key {key!r}{did_you_mean(key, known)}")


def _typed(given: Mapping[str, Any], key: str, kinds: Any, default: Any) -> Any:
    """Return a value of the given type; a truth value is no number."""
    value = given.get(key, default)
    wrong = value is not None and not isinstance(value, kinds)
    if wrong or (isinstance(value, bool) and kinds is not bool):
        every = kinds if isinstance(kinds, tuple) else (kinds,)
        names = " or ".join(TYPES.get(kind, kind.__name__) for kind in every)
        raise UsageError(f"{key} must be {names}, got {value!r}")
    return value


def _listed(given: Mapping[str, Any], key: str, kinds: Any, default: Any) -> list[Any]:
    """Return a list without repetitions; a single value is a list of one."""
    value = given.get(key, default)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise UsageError(f"{key} must name at least one")
    for item in items:
        _typed({key: item}, key, kinds, None)
    return list(dict.fromkeys(items))


def _chosen(key: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if value not in known:
        raise UsageError(f"there is no {key} {value!r}{did_you_mean(value, known)}")
    return value


def load_modules(modules: Iterable[str]) -> None:
    """Import the modules that register further generators.

    A name that ends in `.py` is a file; any other is imported as Python does.
    """
    for name in modules:
        if not name.endswith(".py"):
            import_module(name)
            continue
        spec = util.spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None or not Path(name).is_file():
            raise DataError(f"no such file: {name}")
        spec.loader.exec_module(util.module_from_spec(spec))


def _source(given: Any, folder: Path) -> Source:
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping):
        raise UsageError(f"a dataset is a name or a table of settings, got {given!r}")
    _check_keys(given, [f.name for f in fields(Source)], "a dataset of the plan")
    if "name" not in given and "path" not in given:
        raise UsageError("a dataset of the plan needs a name or a path")
    path = _typed(given, "path", str, None)
    place = None if path is None else str((folder / Path(path).expanduser()).resolve())
    return Source(
        name=_typed(given, "name", str, Path(path or "").name.split(".")[0]),
        path=place,
        target=_typed(given, "target", str, ""),
        task=_typed(given, "task", str, ""),
        drop=tuple(_typed(given, "drop", list, [])),
        kinds=tuple(_typed(given, "kinds", Mapping, {}).items()),
        rows=_typed(given, "rows", int, None),
    )


CROSSED = {
    "generator": str,
    "strategy": str,
    "augmenter": str,
    "supervise": str,
    "draws": str,
    "eta": (int, float),
    "lam": (int, float),
    "preset": str,
}


def _methods(given: Any) -> list[Method]:
    """Return the methods of one entry: its lists crossed."""
    if not isinstance(given, Mapping):
        raise UsageError(f"a method is a table of settings, got {given!r}")
    _check_keys(given, [f.name for f in fields(Method)], "a method of the plan")
    if "generator" not in given:
        raise UsageError("a method of the plan needs a generator")
    if "supervise" in given and "strategy" not in given:
        raise UsageError("a method that says what it supervises needs a strategy name")
    options = _typed(given, "options", Mapping, {})
    for key, value in options.items():
        if not isinstance(value, str | int | float):
            raise UsageError(f"the option {key!r} must be one value, got {value!r}")
    found = []
    for generator in _listed(given, "generator", str, None):
        usual = list(find_generator(generator).strategies) or [""]
        lists = {
            key: _listed({"strategy": usual, **given}, key, kind, None)
            for key, kind in CROSSED.items()
            if key in given or key == "strategy"
        }
        lists["generator"] = [generator]
        for values in itertools.product(*lists.values()):
            chosen: dict[str, Any] = dict(zip(lists, values, strict=True))
            for bend in {"eta", "lam"} & chosen.keys():
                chosen[bend] = float(chosen[bend])
            found.append(Method(**chosen, options=tuple(options.items())))
    label = _typed(given, "label", str, "")
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


def _run_name(
    data: str, holes: tuple[Any, ...], method: Method, metrics: Metrics
) -> str:
    facts = [PROTOCOL, data, holes, method.identity(), asdict(metrics)]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"the plan {path} cannot be read: {reason}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the plan {path} is not valid TOML: {error}") from error


def read_plan(path: str | Path) -> Plan:
    """Read a plan and name its runs; no table is read for that.

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
    _check_keys(given, KEYS, "a plan")
    for key in ("datasets", "methods"):
        if not isinstance(given.get(key), list) or not given[key]:
            raise UsageError(f"a plan needs at least one of its {key}, as a list")
    folder = path.resolve().parent
    modules = tuple(
        str(folder / name) if name.endswith(".py") else name
        for name in _typed(given, "modules", list, [])
    )
    load_modules(modules)
    asked = _typed(given, "metrics", Mapping, {})
    _check_keys(asked, [f.name for f in fields(Metrics)], "[metrics]")
    metrics = Metrics(
        _typed(asked, "rows", int, None),
        _chosen("trend", asked.get("trend", "real"), TREND_EDGES),
    )
    sources = [_source(entry, folder) for entry in given["datasets"]]
    methods = [method for entry in given["methods"] for method in _methods(entry)]
    _check_distinct(methods, sources)
    mechanisms = _listed(given, "mechanisms", str, "mcar")
    ratios = [float(r) for r in _listed(given, "ratios", (int, float), 0.3)]
    for ratio in ratios:
        if not 0 <= ratio < 1:
            raise UsageError(f"ratios must be at least 0 and below 1, got {ratio:g}")
    mar = _chosen("mar", _typed(given, "mar", str, MAR_RULES[0]), MAR_RULES)
    keep = _typed(given, "keep", bool, False)
    device = _chosen("device", _typed(given, "device", str, "auto"), DEVICES)
    minutes = _typed(given, "max_minutes", (int, float), None)
    digests = {source: source.digest() for source in sources}
    runs = []
    for source, mechanism, ratio, seed, method in itertools.product(
        sources,
        [_chosen("mechanism", m, MECHANISMS) for m in mechanisms],
        ratios,
        _listed(given, "seeds", int, 0),
        methods,
    ):
        holes = (mechanism, mar if mechanism == "mar" else "", ratio, seed)
        name = _run_name(digests[source], holes, method, metrics)
        runs.append(
            Run(
                name, source, mechanism, mar, ratio, seed, method, metrics,
                keep, device, minutes, modules,
            )
        )  # fmt: skip
    return Plan(path, tuple(runs), device, keep)
