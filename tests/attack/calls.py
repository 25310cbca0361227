"""Calls of the public API with arguments that are mostly wrong."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import augmask as am
from augmask import AugMask

from .victims import TINY, make_frame, make_rich_frame

ODD: list[Any] = [None, True, -1, 0, 1, 3, 1.5, float("nan"), float("inf"), 10**30]
ODD += ["x", "", "\0", b"x", [], [1], {}, {"a": 1}, (), object(), int, Decimal(3)]
ODD += [np.int64(2), np.float32(0.5), np.array([1, 2]), pd.NaT, pd.NA, 2**64, 10**5000]


def _made(column: Any, n: int = 40, **more: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": column, "y": (["a", "b", "b"] * n)[:n], **more})


def frames() -> list[Any]:
    """Return tables, most of which cannot be learned from."""
    rng = np.random.default_rng(0)
    good, n = make_frame(), 40
    two_levels = good.copy()
    two_levels.columns = pd.MultiIndex.from_product([["a"], good.columns])
    return [
        *(good, good, good, good.iloc[:0], good.iloc[:1], good.iloc[:, :0]),
        *(two_levels, good.set_axis([*good.columns[:-1], float("nan")], axis=1)),
        good.set_axis([*good.columns[:-1], "kg"], axis=1),
        good.set_axis([*good.columns[:-1], ("a", 1)], axis=1),
        _made(rng.normal(size=n) * 1e299),
        _made(np.arange(n) * 5e-324),
        _made([np.inf, 1.0] * (n // 2)),
        _made([1, "a"] * (n // 2)),
        _made([[1], [2]] * (n // 2)),
        _made([b"a", b"b"] * (n // 2)),
        _made([1j] * n),
        _made(pd.period_range("2020", periods=n)),
        _made(pd.interval_range(0, n, n)),
        _made(pd.to_timedelta(np.arange(n), "D")),
        _made(pd.Categorical([1, "a"] * (n // 2))),
        _made(pd.array([2**62 + i for i in range(n)], dtype="Int64")),
        _made(np.array([-(2**63), 2**63 - 1] * (n // 2))),
        _made([2**70 + i for i in range(n)]),
        _made([Decimal(i) / 7 for i in range(n)]),
        _made([None] * n),
        _made(pd.date_range("2020-03-29", periods=n, freq="h", tz="Europe/Paris")),
        pl.from_pandas(good.drop(columns="grade")),
        pa.Table.from_pandas(good),
        *(
            rich := make_rich_frame(60),
            pl.from_pandas(rich),
            pa.Table.from_pandas(rich),
        ),
        pl.from_pandas(rich).lazy(),
        pa.Table.from_pandas(rich).to_batches()[0],
        rich.convert_dtypes(),
        rich.astype({"word": "category", "a": "float32", "total": "uint8"}),
        rich.convert_dtypes(dtype_backend="pyarrow"),
        _made([[1], {}, "a", 2.5] * (n // 4)),
        _made([2**60 + 1, 0.5, None, 3] * (n // 4)),
        _made([np.uint64(2**64 - 1), -1] * (n // 2)),
        _made([pd.NaT, None, np.nan, pd.NA] * (n // 4)),
        _made([True, None, "true", 1] * (n // 4)),
        _made([f"{i}.{i}.2021" for i in range(n)]),
        _made([f"${i},{i}" for i in range(n)]),
        _made(pd.Series(range(n), dtype="Sparse[int]")),
        pd.DataFrame(rng.normal(size=(12, 300))),
        *("absent.csv", Path(), good["kg"], good.to_numpy(), 5, None, [good], "\0"),
    ]


def schemas() -> list[Any]:
    """Return schemas, mostly invalid ones."""
    return [
        *(None, None, None, {}, [], 5, "absent.toml", {"kg": "float"}, {"kg": "x"}),
        *({"nobody": "float"}, {"kg": None}, {"kg": {"na_values": [float("nan")]}}),
        *(
            {"kg": {"na_values": [10**400]}},
            {"kg": {"na_values": [[1]]}},
            {"kg": {"x": 1}},
        ),
        *({"job": {"levels": ["a"]}}, {"job": {"levels": []}}, {"job": "integer"}),
        *({"kg": {"decimals": -1}}, {"kg": {"missing_as": "level"}}, {5: "float"}),
        *({"day": "category"}, {"key": "category"}, {"land": "float"}, {None: "x"}),
    ]


Rng = np.random.Generator


class Calls:
    """Kinds of calls; each takes a random generator."""

    def __init__(self, model: AugMask, richer: AugMask, model_file: Path) -> None:
        self.model, self.richer, self.file = model, richer, model_file
        self.frames, self.schemas = frames(), schemas()

    def _odd(self, rng: Rng) -> Any:
        return ODD[rng.integers(len(ODD))]

    def _frame(self, rng: Rng) -> Any:
        return self.frames[rng.integers(len(self.frames))]

    def _some(self, rng: Rng, *names: str) -> dict[str, Any]:
        return {name: self._odd(rng) for name in names if rng.random() < 0.3}

    def fit(self, rng: Rng) -> Any:
        parameters: dict[str, Any] = {
            "augmenter": "ecdf",
            "preset": "fast",
            "options": TINY,
        }
        parameters |= (
            self._some(rng, "seed", "device", "ensemble") if rng.random() < 0.4 else {}
        )
        if rng.random() < 0.3:
            name = ["backbone", "augmenter", "supervise", "preset"][rng.integers(4)]
            parameters[name] = self._odd(rng)
        if rng.random() < 0.3:
            settings = [
                "batch_size",
                "lr",
                "completions",
                "ema",
                "solver",
                "validation_fraction",
                "ties",
            ]
            parameters["options"] = TINY | {settings[rng.integers(7)]: self._odd(rng)}
        if rng.random() < 0.05:
            parameters["options"] = self._odd(rng)
        schema = self.schemas[rng.integers(len(self.schemas))]
        more = {}
        if rng.random() < 0.3:
            names = ["constraints", "max_minutes", "holdout", "private_extremes"]
            more = self._some(rng, *names, "checkpoint", "progress")
        if rng.random() < 0.2:
            parameters["options"] = TINY | {"links": "keep", "ties": "dequantize"}
            more |= {"holdout": 0.1}
        return AugMask(**parameters).fit(self._frame(rng), schema=schema, **more)

    def sample(self, rng: Rng) -> Any:
        names = ["n", "seed", "where", "missing", "output", "progress"]
        options = {"n": 3} | self._some(rng, *names)
        if rng.random() < 0.3:
            return next(self.model.sample_batches(**options))
        return self.model.sample(**options)

    def where(self, rng: Rng) -> Any:
        names = ["kg", "low", "job", "smokes", "day", "grade", "key", "land", "nobody"]
        column = names[rng.integers(len(names))]
        values = [
            self._odd(rng),
            (self._odd(rng), self._odd(rng)),
            [self._odd(rng)] * 2,
        ]
        return self.model.sample(3, where={column: values[rng.integers(3)]})

    def partial(self, rng: Rng) -> Any:
        return self.model.sample(where=self._frame(rng))

    def impute(self, rng: Rng) -> Any:
        return self.model.impute(self._frame(rng), **self._some(rng, "n_draws", "seed"))

    def write(self, rng: Rng) -> Any:
        path = self._odd(rng) if rng.random() < 0.5 else "out.csv"
        return self.model.sample_to(path, **{"n": 3} | self._some(rng, "n", "seed"))

    def save(self, rng: Rng) -> Any:
        return self.model.save(self._odd(rng))

    def load(self, rng: Rng) -> Any:
        path = self._odd(rng) if rng.random() < 0.6 else self.file
        return am.load(path, **self._some(rng, "device", "backbone", "constraints"))

    def ampute(self, rng: Rng) -> Any:
        return am.ampute(
            self._frame(rng), **self._some(rng, "mechanism", "ratio", "seed")
        )

    def augment(self, rng: Rng) -> Any:
        options = {"augmenter": "ecdf"} | self._some(rng, "augmenter", "seed")
        schema = self.schemas[rng.integers(len(self.schemas))]
        return am.augment(self._frame(rng), schema=schema, **options)

    def read(self, rng: Rng) -> Any:
        source = self._frame(rng)
        if rng.random() < 0.5:
            source = ["t.csv", "t.xlsx", "t.zip", "t.tsv"][rng.integers(4)]
        names = ["na", "sep", "header", "encoding", "sheet"]
        options = self._some(rng, *names)
        if rng.random() < 0.3:
            options["na"] = {
                ["kg", "job", "x", "nobody"][rng.integers(4)]: self._odd(rng)
            }
        return am.read_table(source, **options)

    def rich(self, rng: Rng) -> Any:
        column = ["fee", "born", "opens", "mail", "stop", "total", "rare"]
        where = {column[rng.integers(7)]: self._odd(rng)}
        if rng.random() < 0.3:
            return self.richer.sample(3, where=where)
        if rng.random() < 0.5:
            return self.richer.sample(
                where=pd.DataFrame({k: [v] for k, v in where.items()})
            )
        return self.richer.impute(
            self._frame(rng), **self._some(rng, "n_draws", "seed")
        )

    def look(self, rng: Rng) -> Any:
        if rng.random() < 0.7:
            schema = self.schemas[rng.integers(len(self.schemas))]
            return am.inspect(self._frame(rng), schema=schema)
        return am.evaluate(
            self._frame(rng),
            self._frame(rng),
            **self._some(
                rng, "test", "target", "seed", "subsample", "model", "learner"
            ),
        )

    def tools(self, rng: Rng) -> Any:
        choice = int(rng.integers(5))
        if choice == 0:
            return am.pool(
                self._odd(rng), self._odd(rng), **self._some(rng, "confidence")
            )
        if choice == 1:
            return am.pool([1.0, 2.0], [1, 1], **self._some(rng, "confidence"))
        if choice == 2:
            n = [5, self._odd(rng)][rng.integers(2)]
            return am.load_clinic(n, **self._some(rng, "seed"))
        if choice == 3:
            drawn = self.model.impute(make_frame(), n_draws=2)
            return drawn.summary(self._odd(rng))
        return self.model.schema_.to_toml(self._odd(rng))

    def many(self, rng: Rng) -> Any:
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY)
        models = [[model], [], self._odd(rng), [self._odd(rng)]][rng.integers(4)]
        tables = [[self._frame(rng)], self._odd(rng)][rng.integers(2)]
        return am.fit_many(models, tables, **self._some(rng, "schema", "max_minutes"))

    def infer(self, rng: Rng) -> Any:
        schema = self.schemas[rng.integers(len(self.schemas))]
        return am.infer_schema(self._frame(rng), schema)

    @property
    def every(self) -> list[Callable[[Rng], Any]]:
        """All kinds of calls, the cheap ones more often."""
        return [
            *(self.fit, self.sample, self.sample, self.where, self.where, self.partial),
            *(self.impute, self.impute, self.write, self.save, self.load, self.ampute),
            *(self.augment, self.infer, self.infer, self.read, self.read, self.rich),
            *(self.rich, self.look, self.tools, self.many),
        ]
