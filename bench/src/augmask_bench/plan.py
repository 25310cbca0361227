"""Plans: a TOML file defines the runs of a grid.

    mechanisms = ["mcar", "mar"]     # missingness mechanisms; default: mcar
    ratios = [0.3, 0.7]              # shares of missing cells; default: 0.3
    seeds = [0, 1, 2]                # of split, missingness, training; default: 0
    datasets = ["adult", "magic"]    # names in tables.toml

    [[datasets]]                     # or entries with settings; here your own table
    path = "my.csv"                  # relative to the plan
    target = "y"

    [[methods]]                      # all combinations of listed values
    generator = ["cdtd", "tabdiff"]
    strategy = ["NoAug", "AugFull", "AugMask"]
    preset = "fast"
    options = { steps = 500 }
    max_minutes = 60                 # of a training; here or for the whole plan

A run is named by a hash of everything that determines its result: the contents of the
table, the missing cells, the split, the metrics, all settings of the generator and the
augmenter with presets and defaults resolved, and the versions that these two declare.
Settings of the machine (`device`) and of files (`keep`) and mere names (`label`,
`strategy`) are not hashed: changing them repeats no run. `max_minutes` is hashed,
because it may end a training early; filling the table is not part of it.

The filled table that a run trains on is named by a hash too, of what determines it.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module, util
from pathlib import Path
from typing import Any

from augmask.augmentation.completions import CompletionPlan
from augmask.errors import DataError, UsageError, did_you_mean
from augmask.missing.simulate import MAR_VARIANTS, MECHANISMS
from augmask_bench.data import MIN_ROWS, Source
from augmask_bench.methods import Method, complete_method, find_generator
from augmask_bench.validation import as_list, check_keys, one_of, texts, typed

# Part of every run's name; raise it when split, missingness or scoring change. 2: the
# levels of a category are those of the complete table, and a stored fill has numbers in
# single precision.
PROTOCOL = 2
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
        Compute α-precision and β-recall on at most this many rows of each table.
    trend : {"real", "sdmetrics"}
        How Trend chooses the edges of its bins.
    """

    rows: int | None = None
    trend: str = "real"


@dataclass(frozen=True)
class Run:
    """One run: a table, a missingness mechanism and ratio, a seed and a method.

    `name` is the hash of everything that determines its result.
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
        """The dataset, mechanism, ratio and seed within which methods are compared."""
        return self.source.name, self.mechanism, self.ratio, self.seed

    def __str__(self) -> str:
        dataset, mechanism, ratio, seed = self.block
        return f"{self.method.label} on {dataset}, {mechanism} {ratio:g}, seed {seed}"


@dataclass(frozen=True)
class Plan:
    """All runs of a grid, block by block."""

    runs: tuple[Run, ...]
    device: str
    keep: bool

    @property
    def methods(self) -> list[Method]:
        """The methods, in the order of the file."""
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def sizes(self) -> dict[str, int]:
        """The number of values of every dimension of the grid."""
        return {
            "datasets": len({run.source for run in self.runs}),
            "mechanisms": len({run.mechanism for run in self.runs}),
            "ratios": len({run.ratio for run in self.runs}),
            "seeds": len({run.seed for run in self.runs}),
            "methods": len(self.methods),
        }


def load_modules(modules: Iterable[str]) -> None:
    """Import the modules that register generators.

    A name that ends in `.py` is a file, any other the name of an importable module.
    """
    for name in modules:
        if name.endswith(".py") and not Path(name).is_file():
            raise DataError(f"no such file: {name}")
        try:
            _load_file(name) if name.endswith(".py") else import_module(name)
        except Exception as error:
            raise UsageError(
                f"cannot load the module {name} of the plan "
                f"({type(error).__name__}: {error}); fix it or remove it"
            ) from error


def _load_file(name: str) -> None:
    # dataclasses look their module up by name; a prefix avoids hiding another module
    spec = util.spec_from_file_location(f"augmask_plan_{Path(name).stem}", name)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _source(entry: Any, folder: Path) -> Source:
    entry = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, Mapping):
        raise UsageError(
            f"a dataset must be a name or a table of settings, got {entry!r}"
        )
    check_keys(entry, [f.name for f in fields(Source)], "a dataset of the plan")
    if "name" not in entry and "path" not in entry:
        raise UsageError("a dataset of the plan needs a name or a path")
    path = typed(entry, "path", str, None)
    kinds = typed(entry, "kinds", Mapping, {})
    for column in kinds:
        typed(kinds, column, str, None)
    file = None if path is None else str((folder / Path(path).expanduser()).resolve())
    name = typed(entry, "name", str, Path(path or "").name.split(".")[0])
    if not re.fullmatch(r"[\w .-]+", name) or name.startswith("."):
        raise UsageError(
            f"the name of a dataset may have letters, digits, spaces and . _ - only, "
            f"because files are named by it, got {name!r}; set `name`"
        )
    return Source(
        name=name,
        path=file,
        target=typed(entry, "target", str, ""),
        task=typed(entry, "task", str, ""),
        drop=tuple(texts(entry, "drop")),
        kinds=tuple(kinds.items()),
        rows=typed(entry, "rows", int, None),
    )


# Keys of a method whose lists are combined.
COMBINED = {
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
    """Return an option: a value, or a list of values as a tuple."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        raise UsageError(
            f"the option {key!r} must be a value or a list of values, got {value!r}"
        )
    return tuple(value) if isinstance(value, list) else value


def _minutes(entry: Mapping[str, Any]) -> float | None:
    """Return a limit of time."""
    minutes = typed(entry, "max_minutes", (int, float), None)
    if minutes is not None and not 0 < minutes < math.inf:
        raise UsageError(f"max_minutes must be above 0, got {minutes:g}")
    return None if minutes is None else float(minutes)


def _methods(entry: Any) -> list[Method]:
    """Return the methods of one entry: all combinations of its lists."""
    if not isinstance(entry, Mapping):
        raise UsageError(f"a method must be a table of settings, got {entry!r}")
    check_keys(entry, [f.name for f in fields(Method)], "a method of the plan")
    if "generator" not in entry:
        raise UsageError("a method of the plan needs a generator")
    if "supervise" in entry and "strategy" not in entry:
        raise UsageError("a method with supervise needs a name for its strategy")
    options = typed(entry, "options", Mapping, {})
    options = {key: _one_or_more(key, value) for key, value in options.items()}
    methods = []
    for generator in as_list(entry, "generator", str, None):
        usual = list(find_generator(generator).strategies) or [""]
        lists = {
            key: as_list({"strategy": usual, **entry}, key, types, None)
            for key, types in COMBINED.items()
            if key in entry or key == "strategy"
        }
        lists["generator"] = [generator]
        for values in itertools.product(*lists.values()):
            combination: dict[str, Any] = dict(zip(lists, values, strict=True))
            for name in {"eta", "lam"} & combination.keys():
                combination[name] = float(combination[name])
            methods.append(Method(**combination, options=tuple(options.items())))
    minutes = _minutes(entry)
    methods = [replace(method, max_minutes=minutes) for method in methods]
    label = typed(entry, "label", str, "")
    if label and len(methods) > 1:
        raise UsageError(
            f"the label {label!r} is for one method, but its entry defines "
            f"{len(methods)}; write one entry per method"
        )
    return [complete_method(replace(method, label=label)) for method in methods]


def _check_distinct(methods: list[Method], sources: list[Source]) -> None:
    """Raise if a name is ambiguous, or if two methods are the same."""
    for kind, names in (
        ("method", [method.label for method in methods]),
        ("dataset", [source.name for source in sources]),
    ):
        twice = [name for name, n in Counter(names).items() if n > 1]
        if twice:
            word = "label" if kind == "method" else "name"
            raise UsageError(
                f"the name of a {kind} must be unique in a plan, {twice[0]!r} is not; "
                f"set `{word}`"
            )
    labels: dict[str, str] = {}
    for method in methods:
        identity = json.dumps(method.identity(), sort_keys=True)
        if identity in labels:
            raise UsageError(
                f"the methods {labels[identity]!r} and {method.label!r} are the same; "
                "remove one"
            )
        labels[identity] = method.label


def _protocol_facts(
    mechanism: str, mar: str, ratio: float, seed: int, minutes: float | None
) -> list[Any]:
    """Return what determines split, missing cells and training besides the method."""
    facts = [mechanism, mar if mechanism == "mar" else "", ratio, seed]
    # a training that ends early gives another result
    return facts if minutes is None else [*facts, minutes]


def _name(data: str, protocol: list[Any], method: Method, metrics: Metrics) -> str:
    facts = [PROTOCOL, data, protocol, method.identity(), asdict(metrics)]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def name_now(run: Run) -> str:
    """Return the name of a run, computed again on this machine.

    It differs from `run.name` if the table has changed since the plan was read, or if
    this machine has another table or other presets.
    """
    protocol = _protocol_facts(
        run.mechanism, run.mar, run.ratio, run.seed, run.max_minutes
    )
    return _name(run.source.digest(), protocol, run.method, run.metrics)


def fill_name(run: Run) -> str:
    """Return the name of the fill that a run trains on; empty if it needs none.

    Fills are exchanged between machines, so it holds nothing of the machine.
    """
    method = run.method
    if not method.augmenter:
        return ""
    generator = find_generator(method.generator)
    setting = "one" if generator.complete else method.completions
    facts = [
        *(PROTOCOL, run.source.digest()),
        _protocol_facts(run.mechanism, run.mar, run.ratio, run.seed, None),
        *(method.augmenter, method.fill_identity()),
        str(CompletionPlan.parse(setting)),
        dict(generator.encoding(method)),
    ]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def together_key(run: Run) -> str:
    """Return what runs have in common that can train together; the name if none can.

    They differ in missing cells, seed and strategy. A limit of time is for one run.
    """
    generator = find_generator(run.method.generator)
    if generator.generate_many is None or run.max_minutes is not None:
        return run.name
    facts = [
        *(run.method.generator, generator.version, run.source.digest(), run.device),
        dict(generator.settings(run.method)),
    ]
    return json.dumps(facts, sort_keys=True)


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"cannot read the plan {path}: {reason}") from error
    # nesting depth and number of digits are limited by Python, not by TOML
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the plan {path} is not valid TOML: {error}") from error


def select(runs: Iterable[Run], **chosen: Sequence[Any] | None) -> list[Run]:
    """Return the runs whose dimensions have the chosen values.

    Parameters
    ----------
    runs : iterable of Run
    **chosen : sequence, optional
        Values of `datasets`, `mechanisms`, `ratios`, `seeds` or `methods`; a method by
        its label, its generator or the generator's label. None or empty for all.
    """
    left = list(runs)
    for dimension, wanted in chosen.items():
        if not wanted:
            continue
        names = {run.name: values_of(run, dimension) for run in left}
        known: set[Any] = set().union(*names.values())
        for value in wanted:
            if value not in known:
                texts = sorted(f"{v:g}" if isinstance(v, float) else v for v in known)
                hint = f"; known: {', '.join(map(str, texts))}"
                if isinstance(value, str):
                    hint = did_you_mean(value, texts)
                raise UsageError(
                    f"the plan has no {dimension.removesuffix('s')} {value!r}{hint}"
                )
        left = [run for run in left if names[run.name] & set(wanted)]
    return left


def values_of(run: Run, dimension: str) -> set[Any]:
    """Return the names by which a run can be chosen in a dimension."""
    if dimension == "methods":
        generator = run.method.generator
        return {run.method.label, generator, find_generator(generator).label}
    value = run.block[("datasets", "mechanisms", "ratios", "seeds").index(dimension)]
    return {value}


def read_plan(path: str | Path) -> Plan:
    """Read a plan and name its runs; your own tables are read to hash them.

    Parameters
    ----------
    path : str or Path
        A TOML file; see the docstring of this module.

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
    document = _document(path)
    check_keys(document, KEYS, "a plan")
    for key in ("datasets", "methods"):
        if not isinstance(document.get(key), list) or not document[key]:
            raise UsageError(f"a plan needs a list of at least one of {key}")
    folder = path.resolve().parent
    modules = tuple(
        str(folder / name) if name.endswith(".py") else name
        for name in texts(document, "modules")
    )
    load_modules(modules)
    entry = typed(document, "metrics", Mapping, {})
    check_keys(entry, [f.name for f in fields(Metrics)], "[metrics]")
    metrics = Metrics(
        typed(entry, "rows", int, None),
        one_of("trend", typed(entry, "trend", str, "real"), TREND_EDGES),
    )
    if metrics.rows is not None and metrics.rows < MIN_ROWS:
        raise UsageError(
            f"rows of [metrics] must be at least {MIN_ROWS}, got {metrics.rows}"
        )
    sources = [_source(entry, folder) for entry in document["datasets"]]
    methods = [method for entry in document["methods"] for method in _methods(entry)]
    _check_distinct(methods, sources)
    mechanisms = as_list(document, "mechanisms", str, "mcar")
    ratios = [float(r) for r in as_list(document, "ratios", (int, float), 0.3)]
    for ratio in ratios:
        if not 0 <= ratio < 1:
            raise UsageError(f"ratios must be at least 0 and below 1, got {ratio:g}")
    mar = one_of("mar", typed(document, "mar", str, MAR_VARIANTS[0]), MAR_VARIANTS)
    keep = typed(document, "keep", bool, False)
    device = one_of("device", typed(document, "device", str, "auto"), DEVICES)
    minutes = _minutes(document)
    seeds = as_list(document, "seeds", int, 0)
    if min(seeds) < 0:
        raise UsageError(f"seeds must be at least 0, got {min(seeds)}")
    digests = {source: source.digest() for source in sources}
    runs = []
    for source, mechanism, ratio, seed, method in itertools.product(
        sources,
        [one_of("mechanism", m, MECHANISMS) for m in mechanisms],
        ratios,
        seeds,
        methods,
    ):
        limit = minutes if method.max_minutes is None else method.max_minutes
        protocol = _protocol_facts(mechanism, mar, ratio, seed, limit)
        name = _name(digests[source], protocol, method, metrics)
        runs.append(
            Run(
                name, source, mechanism, mar, ratio, seed, method, metrics,
                keep, device, limit, modules,
            )
        )  # fmt: skip
    return Plan(tuple(runs), device, keep)
