"""Options and outputs that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from augmask.container import write_container

from .bad import BAD_DATA, FAILED, FIT_GOOD, USAGE, Bad


def other_checkpoint() -> None:
    metadata = {"fingerprint": "other", "facts": "{}"}
    write_container("run.checkpoint", "checkpoint", metadata, {"x": np.zeros(1)})


OPTIONS = [
    Bad("no arguments", USAGE, "fit", ("Usage",), typed=True),
    Bad("unknown command", USAGE, "fitt good.csv", ("No such command",), typed=True),
    Bad(
        "unknown option", USAGE, f"{FIT_GOOD} --sheme s.toml", ("--sheme",), typed=True
    ),
    Bad("steps in words", USAGE, f"{FIT_GOOD} --steps many", ("--steps",), typed=True),
    Bad("no --out", USAGE, "fit good.csv", ("--out",), typed=True),
    Bad("zero steps", USAGE, f"{FIT_GOOD} --steps 0", ("steps", "above 0", "0")),
    Bad("negative steps", USAGE, f"{FIT_GOOD} --steps -5", ("steps", "above 0", "-5")),
    Bad(
        "zero minutes", USAGE, f"{FIT_GOOD} --max-minutes 0", ("max_minutes", "above 0")
    ),
    Bad(
        "negative budget", USAGE, f"{FIT_GOOD} --max-minutes -1", ("max_minutes", "-1")
    ),
    Bad(
        "minutes not a number", USAGE, f"{FIT_GOOD} --max-minutes nan", ("max_minutes",)
    ),
    Bad("too little time", USAGE, f"{FIT_GOOD} --max-minutes 1e-9", ("max_minutes",)),
    Bad("no member", USAGE, f"{FIT_GOOD} --ensemble 0", ("ensemble", "at least 1")),
    Bad(
        "an ensemble's checkpoint",
        USAGE,
        f"{FIT_GOOD} --ensemble 2 --checkpoint run.checkpoint",
        ("checkpoint", "ensemble=2"),
    ),
    Bad("negative seed", USAGE, f"{FIT_GOOD} --seed -1", ("seed", "at least 0", "-1")),
    Bad(
        "unknown augmenter",
        USAGE,
        f"{FIT_GOOD} --augmenter lgbms",
        ("augmenter 'lgbms'", "did you mean 'lgbm-s'"),
    ),
    Bad(
        "augmenter like no other",
        USAGE,
        f"{FIT_GOOD} --augmenter xyz",
        ("augmenter 'xyz'", "lgbm-chain"),
    ),
    Bad(
        "unknown backbone",
        USAGE,
        f"{FIT_GOOD} --backbone ctdt",
        ("backbone", "'ctdt'", "did you mean 'cdtd'"),
    ),
    Bad(
        "unknown preset",
        USAGE,
        f"{FIT_GOOD} --preset fats",
        ("preset 'fats'", "did you mean 'fast'"),
    ),
    Bad(
        "unknown supervise",
        USAGE,
        f"{FIT_GOOD} --supervise obsreved",
        ("supervise", "'obsreved'", "did you mean 'observed'"),
    ),
    Bad(
        "unknown device", USAGE, f"{FIT_GOOD} --device gpu", ("device", "cuda", "'gpu'")
    ),
    Bad("device not here", USAGE, f"{FIT_GOOD} --device xpu", ("device 'xpu'", "auto")),
    Bad(
        "bad --set",
        USAGE,
        f"{FIT_GOOD} --set batch_size",
        ("NAME=VALUE", "'batch_size'"),
    ),
    Bad(
        "unknown --set",
        USAGE,
        f"{FIT_GOOD} --set bacth_size=5",
        ("setting 'bacth_size'", "did you mean 'batch_size'"),
    ),
    Bad(
        "--set of a wrong type",
        USAGE,
        f"{FIT_GOOD} --set batch_size=big",
        ("batch_size", "'big'"),
    ),
    Bad(
        "bad draws",
        USAGE,
        f"{FIT_GOOD} --set completions=pile:3",
        ("completions", "stack:4"),
    ),
    Bad("infinite rate", USAGE, f"{FIT_GOOD} --set lr=inf", ("lr", "inf")),
    Bad("weight average of 1", USAGE, f"{FIT_GOOD} --set ema=1.0", ("ema", "below 1")),
    Bad("unknown solver", USAGE, f"{FIT_GOOD} --set solver=heun", ("solver", "'heun'")),
    Bad("diverging", FAILED, f"{FIT_GOOD} --set lr=1e9", ("step", "column", "lr")),
    *(
        Bad(f"--set {pair}", USAGE, f"fit no.csv --out m.augmask --set {pair}", says)
        for pair, says in (
            ("width=-1", ("width", "at least 1", "-1")),
            ("width=0", ("width", "at least 1", "0")),
            ("width=abc", ("width", "whole number", "'abc'")),
            ("width=nan", ("width", "whole number", "'nan'")),
            ("width=1e99", ("width", "whole number", "'1e99'")),
            (f"width={10**11}", ("width", "at most 16,384")),
            (f"width={'9' * 9_000}", ("width", "whole number")),
            ("depth=0", ("depth", "at least 1")),
            ("depth=-3", ("depth", "at least 1", "-3")),
            ("depth=x", ("depth", "'x'")),
            ("depth=1000", ("depth", "at most 100", "1000")),
            ("cat_width=0", ("cat_width", "at least 1")),
            (f"batch_size={10**30}", ("batch_size", "at most")),
            ("anneal=perhaps --backbone tabdiff", ("anneal", "true or false")),
            ("log_onehot=2 --backbone tabddpm", ("log_onehot", "true or false")),
        )
    ),
    Bad("zero rows", USAGE, "sample good.augmask -n 0 --out r.csv", ("n ", "1", "0")),
    Bad("negative rows", USAGE, "sample good.augmask -n -3 --out r.csv", ("n ", "-3")),
    Bad(
        "sampling on no device",
        USAGE,
        "sample good.augmask -n 3 --out r.csv --device xpu",
        ("device 'xpu'",),
    ),
]

OUTPUTS = [
    Bad("model named csv", USAGE, "fit good.csv --out m.csv", (".augmask", "m.csv")),
    Bad("model over the data", USAGE, "fit good.csv --out good.csv", (".augmask",)),
    Bad(
        "no such folder",
        BAD_DATA,
        "fit good.csv --out no/m.augmask",
        ("cannot write no/m.augmask", "no directory no"),
    ),
    Bad(
        "output is a directory",
        BAD_DATA,
        "fit good.csv --out folder.augmask",
        ("cannot write folder.augmask", "is a directory"),
        lambda: Path("folder.augmask").mkdir(),
    ),
    Bad(
        "unknown suffix",
        USAGE,
        "sample good.augmask -n 3 --out rows.xlsx",
        (".parquet", "rows.xlsx"),
    ),
    Bad(
        "rows into no folder",
        BAD_DATA,
        "sample good.augmask -n 3 --out no/rows.csv",
        ("no directory no",),
    ),
    Bad(
        "rows into a folder",
        BAD_DATA,
        "sample good.augmask -n 3 --out rows.csv",
        ("is a directory",),
        lambda: Path("rows.csv").mkdir(),
    ),
    Bad(
        "schema over the data",
        USAGE,
        "inspect good.csv --save-schema good.csv",
        (".toml", "good.csv"),
    ),
    Bad(
        "schema into no folder",
        BAD_DATA,
        "inspect good.csv --save-schema no/s.toml",
        ("no directory no",),
    ),
    Bad(
        "checkpoint into no folder",
        BAD_DATA,
        f"{FIT_GOOD} --checkpoint no/run",
        ("no directory no",),
    ),
    Bad(
        "checkpoint over the model",
        USAGE,
        f"{FIT_GOOD} --checkpoint m.augmask",
        ("--checkpoint and --out", "m.augmask"),
    ),
    Bad(
        "name too long",
        BAD_DATA,
        f"fit good.csv --out {'x' * 300}.augmask",
        ("ile name too long",),
    ),
    Bad(
        "checkpoint of another run",
        BAD_DATA,
        f"{FIT_GOOD} --checkpoint run.checkpoint",
        ("other data, settings or seed", "remove it"),
        other_checkpoint,
    ),
    Bad(
        "checkpoint that is none",
        BAD_DATA,
        f"{FIT_GOOD} --checkpoint good.csv",
        ("invalid checkpoint file good.csv",),
    ),
]
