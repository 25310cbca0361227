"""Command lines, composed of arguments that are mostly wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

TABLES = "good empty header one-cell ragged twice binary latin nul quotes wide-number"
TABLES += " infinite denormal codes keys all-empty constant formula script mixed"
TABLES += " semicolon others new link loop pipe absent"
TABLE_FILES = [f"{name}.csv" for name in TABLES.split()]
TABLE_FILES += [
    "cut.csv.gz",
    "no.csv.gz",
    "good.csv.gz",
    "rows.parquet",
    "rows.feather",
]
TABLE_FILES += [
    f"{name}.parquet" for name in ["decimal", "list", "struct", "tensor", "binary"]
]
TABLE_FILES += [
    f"{name}.parquet" for name in ["null", "unsigned", "nanoseconds", "zoned"]
]
TABLE_FILES += ["duration.parquet", "dictionary.parquet", "half.parquet"]
TABLE_FILES += ["good.xlsx", "two.xlsx", "half.xlsx", "no.xlsx", "flipped.xlsx"]
TABLE_FILES += ["good.tsv", "bars.txt", "wide.csv", "marked.csv", "formats.csv"]
TABLE_FILES += ["good.zip", "several.zip", "outside.zip", "flipped.zip", "rich.csv"]
TABLE_FILES += ["decimal.feather", "readme.txt", "sub", ".", "", "x\0y.csv", "n" * 300]
MODELS = [
    "rich.augmask",
    "good.augmask",
    "good.augmask",
    "half.augmask",
    "foreign.augmask",
    "good.csv",
]
MODELS += ["absent.augmask", "link.augmask", "pipe.augmask", "sub", "", "good.toml"]
SCHEMAS = [
    "good.toml",
    "deep.toml",
    "long.toml",
    "nan.toml",
    "other.toml",
    "kinds.toml",
]
SCHEMAS += ["binary.toml", "absent.toml", "sub", "good.csv"]
OUTS = ["out{}", "sub/out{}", "sub/../good{}", "link{}", "good{}", "no/out{}", "sub"]
OUTS += ["pipe{}", "loop{}", "out.xlsx", "", "o\0{}", "x" * 300 + "{}", "."]
NUMBERS = [
    "0",
    "-1",
    "1",
    "3",
    "1.5",
    "nan",
    "inf",
    "x",
    "",
    "9" * 30,
    "9" * 5000,
    "1e9",
]
NUMBERS += ["0x10", "١", "1_000", " 2 ", "--", "1e400", "-0"]
# how files are read, mostly wrongly
READS = ["--na=?", "--na=auto", "--na=nan", "--na=1e400", "--na=", "--na==", "--na=kg="]
READS += [
    "--na=kg=inf",
    "--na=nobody=1",
    "--na=job=cook",
    "--na=x=y=z",
    "--na=" + "9" * 999,
]
READS += [
    "--sep=;",
    "--sep=tab",
    "--sep=space",
    "--sep=",
    "--sep=;;",
    "--sep=漢",
    "--sep=\\",
]
READS += [
    "--sep=.",
    '--sep="',
    "--sep=\n",
    "--header",
    "--no-header",
    "--encoding=utf-16",
]
READS += ["--encoding=cp1252", "--encoding=idna", "--encoding=x", "--encoding=base64"]
READS += ["--encoding=unicode_escape", "--encoding=", "--encoding=utf-7", "--sheet=1"]
READS += ["--sheet=0", "--sheet=-1", "--sheet=odd", "--sheet=", "--sheet=" + "9" * 99]
LONG = "9" * 9000
WHERES = ["kg > 70", "job == 'cook'", "job == 'pilot'", "kg > " + "9" * 4000]
WHERES += [f"kg == {LONG}", "kg ==", "import os", "__import__('os').system('x') == 0"]
WHERES += ["(" * 300 + "kg" + ")" * 300 + " > 1", "kg > 1 or kg < 2", "nobody == 1"]
WHERES += ["`kg > 1", "day > '2020-13-45'", "day > '2020-01-05'", "kg in [1, 'a']", ""]
WHERES += ["kg > 1e400", "smokes == 3", "key == 'k00001'", "land == 'FR'", "low < low"]
WHERES += [
    "kg < 0x" + "f" * 4000,
    "job in []",
    "grade == 'c'",
    "not kg",
    "\0",
    "kg > -",
]
WHERES += ["kg > 70 or job == 'cook'", "kg > 1e9 or low < 3", "job is missing"]
WHERES += ["(kg > 1 or low < 2) and (kg < 9 or high > 1)", "kg is not missing", "or"]
WHERES += [" or ".join(f"kg > {i}" for i in range(600)), "kg > 1 or nobody is missing"]
WHERES += ["not (kg > 1)", "job not in ['cook'] or smokes == True", "kg is None or"]
WHERES += ["fee > 100 or born < '1995-01-01'", "fee == '$1,234'", "opens > '12:00'"]
WHERES += ["share > '5 %'", "born == '31/02/2021'", "mail == 'a@b.org'", "stop == 'k'"]
WHERES += ["line == 'A' and stop == 'r'", "total == 1000", "fives == 3 or fives == 5"]
CONSTRAINTS = [
    "low <= high",
    "low > high",
    "low <= job",
    "job, grade",
    "job",
    "kg, kg",
    "<=",
]
CONSTRAINTS += [
    "nobody <= kg",
    "low <= high and",
    "low == " + LONG,
    ", ,",
    "",
    "low <= 5",
]
SETTINGS = [
    "steps",
    "batch_size",
    "lr",
    "warmup",
    "beta2",
    "ema",
    "validation_fraction",
    "patience",
]
SETTINGS += [
    "sampling_steps",
    "sampling_batch",
    "max_device_gib",
    "completions",
    "solver",
    "ties",
]
SETTINGS += ["matmul_precision", "nobody", "network", "preset", "seed"]
NETWORK = ["width", "depth", "time_width", "cat_width", "low_noise", "anchor"]
LATER = ["links=keep", "links=x", "extremes=expected", "precondition=table"]
LATER += [
    "precondition=joint",
    "precondition=x",
    "anchor=nan",
    "anchor=none",
    "lr=1e308",
]
LATER += ["completions=stack:99999999", "low_noise=1e308", "compile=x", "ema=1"]
WORDS = ["one", "stack:2", "stack:x", "cycle", "anchor:3:0.5", "stack:" + "9" * 40]
WORDS += ["euler", "dpmpp_2m", "unknown", "midpoint", "dequantize", "{}", "[1]", "None"]
TINY = (
    "--steps 2 --augmenter ecdf --preset fast --device cpu --set width=8 --set depth=1"
)
TINY += " --set batch_size=16 --set sampling_steps=3"


def _one(rng: np.random.Generator, values: list[str]) -> str:
    return values[rng.integers(len(values))]


def _out(rng: np.random.Generator, suffix: str) -> str:
    return _one(rng, OUTS).format(suffix) if rng.random() < 0.3 else f"out{suffix}"


def _table(rng: np.random.Generator) -> str:
    return _one(rng, TABLE_FILES) if rng.random() < 0.4 else "good.csv"


def _reads(rng: np.random.Generator) -> list[str]:
    return [_one(rng, READS) for _ in range(2) if rng.random() < 0.2]


def _fit(rng: np.random.Generator) -> list[str]:
    line = ["fit", *TINY.split(), _table(rng), "--out", _out(rng, ".augmask")]
    line += _reads(rng)
    if rng.random() < 0.2:
        line += ["--holdout", _one(rng, [*NUMBERS, "auto", "0.1", "0.499", "1e-300"])]
    if rng.random() < 0.1:
        line += ["--private-extremes"]
    if rng.random() < 0.1:
        line += ["--set", _one(rng, LATER)]
    for _ in range(int(rng.integers(2))):
        name = _one(rng, SETTINGS + NETWORK)
        value = _one(rng, NUMBERS + WORDS)
        # a valid large budget would take hours
        if not (name in ("steps", "batch_size") and value in ("1e9", "1_000")):
            line += ["--set", f"{name}={value}"]
    if rng.random() < 0.2:
        line += ["--schema", _one(rng, SCHEMAS)]
    if rng.random() < 0.2:
        line += ["--constraint", _one(rng, CONSTRAINTS)]
    if rng.random() < 0.1:
        line += [
            "--checkpoint",
            _one(rng, ["run", "good.csv", "no/run", "pipe.csv", "sub"]),
        ]
    if rng.random() < 0.2:
        option = _one(rng, ["--seed", "--ensemble", "--max-minutes", "--device"])
        line += [option, _one(rng, NUMBERS)]
    if rng.random() < 0.2:
        option = _one(rng, ["--backbone", "--augmenter", "--supervise", "--preset"])
        line += [option, _one(rng, ["x", "", "tabddpm", "mean", "all", "auto", "\0"])]
    return line


def _sample(rng: np.random.Generator) -> list[str]:
    line = ["sample", _one(rng, MODELS), "-n", "5", "--out", _out(rng, ".csv")]
    if rng.random() < 0.6:
        line += ["--where", _one(rng, WHERES)]
    if rng.random() < 0.3:
        value = _one(rng, NUMBERS)
        if value not in ("1_000",):
            line += [_one(rng, ["-n", "--seed"]), value]
    if rng.random() < 0.2:
        line += ["--missing", _one(rng, ["learned", "x", ""])]
    return line if rng.random() < 0.8 else [*line, "--csv-safe"]


def _impute(rng: np.random.Generator) -> list[str]:
    line = ["impute", _one(rng, MODELS), _table(rng), "--out", _out(rng, ".csv")]
    line += _reads(rng)
    if rng.random() < 0.3:
        line += [_one(rng, ["--n-draws", "--seed", "--device"]), _one(rng, NUMBERS)]
    return line


def _inspect(rng: np.random.Generator) -> list[str]:
    line = ["inspect", _one(rng, TABLE_FILES), *_reads(rng)]
    if rng.random() < 0.4:
        line += ["--schema", _one(rng, SCHEMAS)]
    if rng.random() < 0.4:
        line += ["--save-schema", _out(rng, ".toml")]
    return line if rng.random() < 0.7 else [*line, "--json"]


def _score(rng: np.random.Generator) -> list[str]:
    verb = "evaluate" if rng.random() < 0.9 else "report"
    line = [verb, _one(rng, TABLE_FILES), _one(rng, TABLE_FILES), *_reads(rng)]
    if rng.random() < 0.2:
        line += ["--model", _one(rng, MODELS)]
    if rng.random() < 0.1:
        line += ["--learner", _one(rng, ["xgboost", "x", ""])]
    if verb == "report" or rng.random() < 0.3:
        line += ["--out", _out(rng, ".html" if verb == "report" else ".json")]
    if rng.random() < 0.3:
        line += [_one(rng, ["--test", "--schema"]), _one(rng, TABLE_FILES + SCHEMAS)]
    if rng.random() < 0.3:
        line += ["--target", _one(rng, ["job", "kg", "nobody", "", "key", "\0"])]
    return line


def _bench(rng: np.random.Generator) -> list[str]:
    what = _one(rng, ["plan", "run", "status", "table", "figures", "methods", "x"])
    return ["bench", what, _one(rng, [*SCHEMAS, "plan.toml", "good.csv", ""])]


def _other(rng: np.random.Generator) -> list[str]:
    words = ["--help", "--debug", "-x", "fitt", "fit", "sample", "", "\0", "--version"]
    return [_one(rng, words) for _ in range(int(rng.integers(1, 4)))]


MAKERS: list[Callable[[np.random.Generator], list[Any]]] = [
    *(_fit, _fit, _fit, _sample, _sample, _sample, _impute, _impute, _inspect),
    *(_inspect, _score, _bench, _other),
]


def command(rng: np.random.Generator) -> list[str]:
    """Return one command line."""
    return MAKERS[rng.integers(len(MAKERS))](rng)
