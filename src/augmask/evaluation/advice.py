"""What to try next for a score that is fair or poor, with a line to paste.

The line is a command if the tables came from files, and Python if they were frames. It
repeats what is known of the model (its preset and backbone) and changes one thing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from augmask.evaluation.results import Scores, pair_names, score_column, worst_pairs
from augmask.evaluation.verdict import verdict

OUT = "better.augmask"
# From small to large.
PRESETS = ("fast", "balanced", "best")
BACKBONES = ("cdtd", "tabdiff", "tabddpm")


class Advice(NamedTuple):
    """What to try, in words, and the line to paste."""

    text: str
    line: str


class _Fit:
    """Writes calls of `fit` that change something of the model at hand.

    Parameters
    ----------
    facts : mapping
        Of `Scores`: `files`, `reading` (the options that read the real one), and
        `model` with its parameters.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.path = facts.get("files", {}).get("real")
        self.reading: list[str] = facts.get("reading", [])
        self.model: Mapping[str, Any] = facts.get("model") or {}
        self.preset = str(self.model.get("preset", "fast"))
        self.backbone = str(self.model.get("backbone", "cdtd"))

    def line(self, flag: str, value: Any = None, *, in_fit: bool = False) -> str:
        """Return the line with one option changed."""
        options = (
            {"backbone": self.backbone, "preset": self.preset} if self.model else {}
        )
        if self.path is not None:
            words = ["augmask", "fit", self.path, "--out", OUT, *self.reading]
            for name, known in options.items():
                if name != flag:
                    words += [f"--{name}", known]
            words.append(f"--{flag.replace('_', '-')}")
            words += [] if value is True else [str(value)]
            return shlex.join(words)
        changed = {"constraint": ("constraints", [value])}.get(flag, (flag, value))
        if flag == "constraint" and "," in str(value):
            changed = ("constraints", [str(value).split(", ")])
        if flag == "steps":
            changed = ("options", {"steps": value})
        own = {k: v for k, v in options.items() if k != flag}
        own |= {} if in_fit else dict([changed])
        given = ", ".join(f"{k}={v!r}" for k, v in own.items())
        more = f", {changed[0]}={changed[1]!r}" if in_fit else ""
        return f"model = am.AugMask({given}).fit(df{more})"

    def advise_larger_network(self) -> Advice:
        """Return the advice to train a larger network for longer."""
        place = PRESETS.index(self.preset) if self.preset in PRESETS else len(PRESETS)
        if place + 1 < len(PRESETS):
            text = "Train a larger network for longer: the next preset."
            return Advice(text, self.line("preset", PRESETS[place + 1]))
        steps = int(self.model.get("steps", 30_000))
        return Advice("Train for twice as long.", self.line("steps", 2 * steps))

    def advise_other_backbone(self) -> Advice:
        """Return the advice to use another diffusion model."""
        others = [name for name in BACKBONES if name != self.backbone]
        return Advice("Try another diffusion model.", self.line("backbone", others[0]))

    def advise_shorter_training(self) -> Advice:
        """Return the advice to memorise less."""
        steps = int(self.model.get("steps", 4_000))
        text = "Do not share these rows. Train for half as long, or on more rows."
        return Advice(text, self.line("steps", max(1, steps // 2)))


def _is_incomplete(scores: Scores, column: str) -> bool:
    real = scores.parts.get("real")
    return real is not None and column in real and bool(real[column].isna().any())


def _missing_as_level(fit: _Fit, column: str) -> Advice:
    """Return the advice to learn missing values of a column as a level."""
    text = (
        f"{column!r} is told apart most, and has missing values. If these mean "
        'something ("not applicable"), learn them as a level.'
    )
    if fit.path is None:
        schema = {column: {"missing_as": "level"}}
        return Advice(text, f"model = am.AugMask().fit(df, schema={schema!r})")
    entry = f'columns.{_toml(column)}.missing_as = "level"'
    words = ["augmask", "fit", fit.path, "--out", OUT, "--schema", "schema.toml"]
    command = shlex.join([*words, *fit.reading])
    return Advice(text, f"echo {shlex.quote(entry)} > schema.toml && {command}")


def _toml(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _shape(scores: Scores, fit: _Fit) -> Advice:
    table = scores.tables.get("columns", pd.DataFrame())
    if table.empty:
        return fit.advise_larger_network()
    worst = str(table.sort_values(score_column(table), kind="stable")["column"].iloc[0])
    text = f"{worst!r} is farthest off. Check how it was read: its kind and its codes."
    if fit.path is not None:
        return Advice(text, shlex.join(["augmask", "inspect", fit.path, *fit.reading]))
    return Advice(text, f"print(am.infer_schema(df)[{worst!r}])")


def _worst_pair(scores: Scores, fit: _Fit) -> Advice:
    table = scores.tables.get("pairs", pd.DataFrame())
    worst = worst_pairs(table, 1) if "reference" in table else pd.DataFrame()
    if worst.empty:
        return fit.advise_larger_network()
    names = [str(worst[side].iloc[0]) for side in ("first", "second")]
    categorical = scores.facts.get("columns", {}).get("categorical", ())
    pair = pair_names(worst).iloc[0]
    if set(names) <= set(categorical) and not any("," in name for name in names):
        text = f"The worst pair is {pair}. Allow only combinations that occur."
        return Advice(text, fit.line("constraint", ", ".join(names), in_fit=True))
    larger = fit.advise_larger_network()
    return Advice(f"The worst pair is {pair}. {larger.text}", larger.line)


def _detection(scores: Scores, fit: _Fit) -> Advice:
    if scores["c2st_auc"] < 0.5:
        return fit.advise_shorter_training()
    table = scores.tables.get("features", pd.DataFrame())
    first = "" if table.empty else str(table["column"].iloc[0])
    if first and _is_incomplete(scores, first):
        return _missing_as_level(fit, first)
    return fit.advise_other_backbone()


def _recall(scores: Scores, fit: _Fit) -> Advice:
    entry = scores.entries["beta_recall"]
    above = entry.mark is not None and entry.value > entry.mark
    return fit.advise_shorter_training() if above else fit.advise_larger_network()


RULES: dict[str, Callable[[Scores, _Fit], Advice]] = {
    "shape": _shape,
    "trend_worst": _worst_pair,
    "c2st_auc": _detection,
    "beta_recall": _recall,
    "mle": lambda _, fit: fit.advise_other_backbone(),
    "rate_gap": _shape,
}


def advise(scores: Scores, key: str) -> Advice | None:
    """Return what to try for one score; None if it is good or is not judged."""
    judged = verdict(scores, key)
    fit = _Fit(scores.facts)
    if judged.grade not in ("fair", "poor"):
        return None
    if judged.entry.group == "privacy":
        return fit.advise_shorter_training()
    if judged.entry.group == "held-out":
        text = "Draw missing values with the right spread."
        return Advice(text, fit.line("augmenter", "lgbm-s-calibrated"))
    rule = RULES.get(key.removesuffix("_remasked"))
    return fit.advise_larger_network() if rule is None else rule(scores, fit)


def advice(scores: Scores) -> dict[str, dict[str, str]]:
    """Return what to try for every score that is fair or poor, by key."""
    steps = {key: advise(scores, key) for key in scores.entries}
    return {key: each._asdict() for key, each in steps.items() if each is not None}
