"""`write_report`: facts and figures in one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import webbrowser
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

import augmask
from augmask.evaluation.held_out import NOMINAL
from augmask.evaluation.results import Scores, with_error
from augmask.evaluation.tables import Floats
from augmask.evaluation.utility import TITLES
from augmask.evaluation.verdict import CHANCE, RULES, Verdict, headline, overall
from augmask.files import atomic_write, check_writable
from augmask.missing.gap import LARGE_GAP, MODERATE_GAP
from augmask.progress import Progress, silent
from augmask.report import plots
from augmask.report.aggregates import MIN_COUNT, safe_share
from augmask.report.facts import Facts, gather
from augmask.report.svg import svg

HERE = Path(__file__).parent
# Columns that are not folded away, the worst ones.
UNFOLDED = {"numeric": 12, "categorical": 8}
GAP_LINES = 8
FEATURES = 10
# A larger matrix cannot be read.
MOST_CO_MISSING = 60
# Differences of dependence are small; full colour stands for this one.
FULL_DIFFERENCE = 0.3
ORDER = {"poor": 0, "fair": 1, "good": 2, "open": 3}


def _score(value: Any) -> str:
    """Format a metric."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.3f}" if abs(float(value)) < 10 else f"{value:,.4g}"
    return text.replace("-", "−")


def _percent(value: Any) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    share = 100 * float(value)
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.1f} %"


def _safe_count(count: int) -> str:
    """Format a count of real rows, hiding how small a small one is."""
    return f"{count:,}" if count == 0 or count >= MIN_COUNT else f"under {MIN_COUNT}"


def _share_of_rows(share: float, rows: int) -> str:
    """Format a share of real rows, hiding how small a small count is."""
    safe, raised = safe_share(share, rows)
    return f"under {_percent(safe)}" if raised else _percent(safe)


def _position(value: float) -> str:
    """Return the position of a number from 0 to 1 on a bar, in percent."""
    return f"{100 * min(max(value, 0.0), 1.0):.1f}" if math.isfinite(value) else "0"


class _Pictures:
    """Turns figures into SVG, each with its own prefix of ids."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, figure: Figure, label: str) -> Markup:
        self._count += 1
        # Safe: matplotlib escapes text, and `svg` escapes the label.
        return Markup(svg(figure, label, f"p{self._count}"))


def _gap_sentence(bound: float) -> str:
    if bound < MODERATE_GAP:
        return "Filling columns one by one loses next to nothing here."
    if bound < LARGE_GAP:
        return (
            "Filling columns one by one may lose some of the dependence between values "
            "that are missing together."
        )
    return (
        "Values that depend on each other are missing together: filling columns one by "
        "one may lose much of that dependence. The augmenter lgbm-chain draws them "
        "jointly."
    )


def _warp_sentence(history: pd.DataFrame) -> str:
    """Describe the learned noise schedule at the end; empty if there is none.

    Examples
    --------
    >>> _warp_sentence(
    ...     pd.DataFrame({"warp_location_num": [-4.5], "warp_steepness_num": [1.25]})
    ... )
    'Learned noise schedule: numbers at location -4.50 with steepness 1.25.'
    """
    parts = []
    for kind, name in (("num", "numbers"), ("cat", "categories")):
        keys = [f"warp_{what}_{kind}" for what in ("location", "steepness")]
        if all(key in history for key in keys):
            location, steepness = (float(history[key].iloc[-1]) for key in keys)
            parts.append(
                f"{name} at location {location:.2f} with steepness {steepness:.2f}"
            )
    return f"Learned noise schedule: {', '.join(parts)}." if parts else ""


def _below_chance(auc: Verdict) -> bool:
    return auc.grade in ("fair", "poor") and auc.entry.value < CHANCE


def _detection_sentence(auc: Verdict | None, column: str) -> str:
    # Without its metric if the table comes from a call of `detection` alone.
    if auc is None:
        return ""
    if auc.grade in ("good", "open"):
        return f"{auc.sentence} The shares by column then say little."
    if _below_chance(auc):
        return auc.sentence
    if auc.grade == "fair":
        return f"The classifier finds some differences, mostly in {column}."
    return f"The classifier tells the tables apart, mostly by {column}."


def _privacy_sentence(flagged: list[str], n: int) -> str:
    if not flagged:
        return f"None of {n} checks found a sign of copying."
    names = ", ".join(flagged)
    return f"{len(flagged)} of {n} checks point to copies of training rows: {names}."


def _sections(f: Facts) -> list[tuple[str, str]]:
    """Return ids and names of the sections that the page has."""
    sections = [
        ("verdict", "Verdict", True),
        ("missing", "Missing values", f.missing),
        ("together", "Missing together", f.missing),
        ("columns", "Columns", True),
        ("pairs", "Pairs", f.dependence),
        ("heldout", "Augmenter", f.calibration),
        ("imputation", "Imputation", f.imputation),
        ("map", "Map", f.projection),
        ("detection", "Detection", f.detection),
        ("utility", "Utility", True),
        ("privacy", "Privacy", True),
        ("training", "Training", f.history is not None and len(f.history)),
        ("schema", "Schema", True),
        ("limits", "Limits", True),
    ]
    return [(key, name) for key, name, present in sections if present]


def _place(v: Verdict) -> int:
    """Return the place of a score in the table: the worst first, the augmenter last."""
    return len(ORDER) if v.entry.group == "held-out" else ORDER[v.grade]


def _about(f: Facts, date: str | None) -> list[tuple[str, str]]:
    """Return what the page is about: files, date, sizes and the model's settings."""
    files = {k: Path(path).name for k, path in f.run.get("files", {}).items()}
    real = f"{f.rows['real']:,} rows, {f.n_columns} columns"
    if f.missing is not None:
        real += f", {_percent(f.missing.summary.rate)} missing"
    sizes = {"real": real, "synthetic": f"{f.rows['synthetic']:,} rows"}
    test = f.run.get("rows", {}).get("test")
    if test is not None:
        sizes["test"] = f"{test:,} rows"
        if f.run.get("held_out"):
            sizes["test"] += " that fit held out"
    for label, total in f.run.get("sampled", {}).items():
        if label in sizes:
            sizes[label] += f", sampled from {total:,}"
    lines = [
        (label, f"{files[label]}, {size}" if label in files else size)
        for label, size in sizes.items()
    ]
    model = f.run.get("model")
    if model:
        members = f", {model['members']} networks" if model["members"] > 1 else ""
        lines.append(
            (
                "model",
                f"{model['backbone']}, preset {model['preset']}, {model['steps']:,} "
                f"steps{members}, augmenter {model['augmenter']}, seed {model['seed']}",
            )
        )
    return [*lines, *([("date", date)] if date else [])]


def _next_steps(f: Facts) -> list[tuple[str, Mapping[str, str]]]:
    """Return what to try for the cards that fail, each step once, the worst first."""
    steps: dict[str, tuple[list[str], Mapping[str, str]]] = {}
    for v in sorted(f.cards, key=lambda v: ORDER[v.grade]):
        step = f.run.get("advice", {}).get(v.key)
        if step is not None:
            titles, _ = steps.setdefault(step["line"], ([], step))
            titles.append(v.entry.title.removesuffix(", re-masked"))
    return [(f"{', '.join(titles)}:", step) for titles, step in steps.values()]


def _cells(names: Sequence[str], values: Floats) -> Markup:
    """Return the attributes of a matrix that can be read by pointing at it."""
    rounded = [
        [None if math.isnan(value) else round(value, 2) for value in line]
        for line in values.tolist()
    ]
    left, bottom, width, height = plots.matrix_box(len(names))
    cells = json.dumps({"names": list(names), "values": rounded})
    box = json.dumps([left, 1 - bottom - height, width, height])
    return Markup('data-cells="{}" data-box="{}"').format(cells, box)


def _context(f: Facts, date: str | None) -> dict[str, Any]:
    """Return what the template shows beside the facts."""
    context: dict[str, Any] = {
        "f": f,
        "run": f.run,
        "sections": _sections(f),
        "headline": headline(f.cards),
        "overall": overall(f.cards),
        "about": _about(f, date),
        "next_steps": _next_steps(f),
        "augmenter_step": f.run.get("advice", {}).get("held_out_coverage_80"),
        "learner": "" if f.utility is None else TITLES[f.utility.learner],
        # MLE is a ratio of equals only if no side was imputed.
        "filled": f.incomplete and "mle" not in f.metrics,
        "rules": RULES,
        "metrics": sorted(f.metrics.values(), key=_place),
        "augmenter": f.run.get("augmenter"),
        "meanings": {key: v.entry.meaning for key, v in f.metrics.items()},
        "marginals": [
            (most, [m for m in f.marginals if m.kind == kind])
            for kind, most in UNFOLDED.items()
        ],
        "full_difference": FULL_DIFFERENCE,
        "nominal": NOMINAL,
    }
    if f.history is not None and len(f.history):
        losses = f.history.get("held_out")
        context["has_validation_loss"] = losses is not None and losses.notna().any()
        context["warp_sentence"] = _warp_sentence(f.history)
    if f.missing is not None:
        rates, phi = f.missing.summary.column_rates, f.missing.summary.co_missing
        context["complete_columns"] = int((rates == 0).sum())
        context["show_co_missing"] = 2 <= len(phi) <= MOST_CO_MISSING
        context["gap_sentence"] = _gap_sentence(f.missing.gap.bound)
        context["gap_lines"] = f.missing.gap.columns[:GAP_LINES].to_dict("records")
    if f.calibration is not None:
        coverage, columns = f.calibration.coverage, f.calibration.columns
        part = coverage[coverage["nominal"] == 0.9]
        context["coverage_90"] = list(zip(part["kind"], part["coverage"], strict=True))
        context["kinds"] = columns["kind"].unique()
        enough = columns[columns["cells"] >= MIN_COUNT]
        context["held_out"] = enough.sort_values("skill").to_dict("records")
    auc = f.metrics.get("c2st_auc")
    if f.detection is not None:
        table = f.detection.table[:FEATURES]
        largest = float(table["importance"].max()) or 1.0
        width = (100 * table["importance"] / largest).round(1)
        context["features"] = table.assign(width=width).to_dict("records")
        first = str(table["column"].iloc[0])
        context["detection_sentence"] = _detection_sentence(auc, first)
    if auc is not None and f.detection is not None and _below_chance(auc):
        context["copies_auc"] = auc.entry.value
    if f.privacy is not None and f.privacy_measures is not None:
        titles = {key: v.entry.title for key, v in f.metrics.items()}
        lines = f.privacy_measures
        lines = lines.sort_values("flagged", ascending=False, kind="stable")
        lines = lines.assign(title=lines["measure"].map(titles))
        context["privacy"] = lines.to_dict("records")
        flagged = lines.loc[lines["flagged"], "title"].tolist()
        context["privacy_sentence"] = _privacy_sentence(flagged, len(lines))
    return context


def render(facts: Facts, date: str | None = None) -> str:
    """Return the page as text, with a date on it if you pass one."""
    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    pages.filters |= {
        "score": _score,
        "with_error": with_error,
        "percent": _percent,
        "safe_count": _safe_count,
        "share_of_rows": partial(_share_of_rows, rows=facts.rows["real"]),
        "position": _position,
        "thousands": lambda count: f"{count:,}",
    }
    pages.globals |= {"picture": _Pictures(), "plots": plots, "cells": _cells}
    script = (HERE / "sort.js").read_text("utf-8")
    # The policy allows no other script, whatever a column is called.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    return pages.from_string((HERE / "template.html").read_text("utf-8")).render(
        **_context(facts, date),
        style=Markup((HERE / "style.css").read_text("utf-8")),
        script=Markup(script),
        script_hash=Markup(digest.decode()),
        version=augmask.__version__,
    )


def write_report(
    path: str | Path,
    scores: Scores,
    model: Any = None,
    open_: bool = False,
    progress: Progress = silent,
    date: str | None = None,
) -> Path:
    """Write one self-contained HTML page about a synthetic table.

    Parameters
    ----------
    path : str or Path
    scores : Scores
        What `evaluate` returned.
    model : AugMask, optional
        The fitted model, for training curves and settings, and to assess its
        imputations if the table has missing values.
    open_ : bool
        Whether to open the page in a browser.
    progress : Progress
    date : str, optional
        A date to show. By default there is none, so that the same scores give the same
        page.

    Returns
    -------
    Path
        The file. It holds aggregates only: no real row, no count under 5, no level
        that fewer than 5 real rows have.
    """
    path = check_writable(path)
    seed = int(scores.facts.get("seed") or 0)
    text = render(gather(scores, model, seed, progress), date)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")
    if open_:
        webbrowser.open(path.absolute().as_uri())
    return path
