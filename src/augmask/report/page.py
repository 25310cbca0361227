"""`write_report`: facts and pictures in one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import math
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

import augmask
from augmask.evaluation.held_out import NOMINAL
from augmask.evaluation.scores import Scores
from augmask.files import check_writable, written_whole
from augmask.missing.gap import MUCH, SOME
from augmask.progress import Progress, silent
from augmask.report.counts import FEWEST, least_share
from augmask.report.dependence import Joint
from augmask.report.facts import Facts, Marginal, gather
from augmask.report.filled import Filling
from augmask.report.imputation_examples import Fan
from augmask.report.plots_columns import marginal_figure
from augmask.report.plots_curves import coverage_figure, pit_figure, training_figure
from augmask.report.plots_fill import fan_figure, shares_figure
from augmask.report.plots_joint import (
    MOST_NAMES,
    density_figure,
    joint_figure,
    matrix_figure,
    residual_figure,
)
from augmask.report.plots_missing import co_missing_figure, missing_map
from augmask.report.svg import svg
from augmask.report.verdict import GUESS, RULES, Verdict, headline

HERE = Path(__file__).parent
# Columns shown in full, the worst; the others are folded.
SHOWN = {"numeric": 12, "categorical": 8}
GAP_LINES = 8
FEATURES = 10
# More lines than this in a matrix of holes cannot be read.
MOST_CO_MISSING = 60
RUN = ("seed", "subsample")
# Differences of dependence are small; full colour stands for this one.
FULL = 0.3
ORDER = {"poor": 0, "fair": 1, "good": 2, "open": 3}


def _score(value: Any) -> str:
    """Return a number as it stands on the page."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(float(value))
    text = f"{value:.3f}" if size < 10 else f"{value:,.4g}"
    return text.replace("-", "−")


def _percent(value: Any) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    share = 100 * float(value)
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.1f} %"


def _few(count: int) -> str:
    """Return a count of real rows, small ones without saying how small."""
    return f"{count:,}" if count == 0 or count >= FEWEST else f"under {FEWEST}"


def _share_of_rows(share: float, rows: int) -> str:
    """Return a share of real rows, a small count without saying how small."""
    shown, few = least_share(share, rows)
    return f"under {_percent(shown)}" if few else _percent(shown)


def _place(value: float) -> str:
    """Return where a number from 0 to 1 stands on a bar, in percent."""
    known = math.isfinite(value)
    return f"{100 * min(max(value, 0.0), 1.0):.1f}" if known else "0"


@dataclass(frozen=True, eq=False)
class _Column:
    """A marginal with its picture."""

    name: str
    score: float
    missing: float
    svg: Markup | None


@dataclass(frozen=True, eq=False)
class _Pair:
    """A joint plot with its picture."""

    first: str
    second: str
    score: float
    svg: Markup


@dataclass(frozen=True, eq=False)
class _Fan:
    """The draws of a hole with their picture."""

    name: str
    says: str
    svg: Markup


class _Album:
    """Turns figures into SVG, each under a name of its own."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, figure: Figure, label: str) -> Markup:
        self._count += 1
        # Safe: matplotlib escapes text, and `svg` escapes the label.
        return Markup(svg(figure, label, f"p{self._count}"))


def _column(found: Marginal, draw: _Album, series: str) -> _Column:
    picture = None
    if found.picture is not None:
        label = f"Distribution of {found.name}: {series}; agreement {found.score:.2f}"
        picture = draw(marginal_figure(found.picture), label)
    return _Column(str(found.name), found.score, found.missing, picture)


def _pair(found: Joint, draw: _Album) -> _Pair:
    label = (
        f"Joint shares of {found.first.name} and {found.second.name}, real beside "
        f"synthetic; agreement {found.score:.2f}"
    )
    picture = draw(joint_figure(found), label)
    return _Pair(str(found.first.name), str(found.second.name), found.score, picture)


def _pictures(f: Facts, draw: _Album) -> Iterator[tuple[str, Markup]]:
    if f.holes is not None:
        yield "missing", draw(missing_map(f.holes), "Map of holes, column by column")
        if 2 <= len(f.holes.missing.co_missing) <= MOST_CO_MISSING:
            figure = co_missing_figure(f.holes.missing)
            yield "co_missing", draw(figure, "Correlation of holes between columns")
    if f.dependence is not None:
        d = f.dependence
        for name, values, full in (
            ("real", d.real, 1.0),
            ("synthetic", d.synthetic, 1.0),
            ("difference", d.synthetic - d.real, FULL),
        ):
            label = f"Dependence between columns: {name}"
            yield name, draw(matrix_figure(values, d.names, full), label)
    if f.map is not None:
        for name in ("real", "synthetic"):
            figure = density_figure(getattr(f.map, name), name)
            yield f"map_{name}", draw(figure, f"Density of {name} rows on two axes")
        label = "Where synthetic rows are too many or too few"
        yield "map_residual", draw(residual_figure(f.map), label)
    if f.calibration is not None:
        label = "Share of hidden cells inside intervals against the promised share"
        yield "coverage", draw(coverage_figure(f.calibration), label)
    if f.history is not None and len(f.history):
        figure = training_figure(f.history, f.training.get("best_step"))
        yield "training", draw(figure, "Loss along the training")


def _gap_sentence(bound: float) -> str:
    if bound < SOME:
        return "Filling columns one by one loses next to nothing here."
    if bound < MUCH:
        return (
            "Filling columns one by one may lose some of the dependence between cells "
            "that are missing together."
        )
    return (
        "Cells that depend on each other are missing together: filling columns one by "
        "one may lose much of that. The augmenter lgbm-chain draws them jointly."
    )


def _warp_sentence(history: pd.DataFrame) -> str:
    """Say where a learned noise schedule ended; empty where there is none.

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


def _detect_sentence(found: Verdict, column: str) -> str:
    if found.grade in ("good", "open"):
        return f"{found.sentence} The shares say little then."
    if found.value < GUESS:
        return found.sentence
    if found.grade == "fair":
        return f"The trees find something, most of it in {column}."
    return f"The trees tell the tables apart, most of all by {column}."


def _same_rows(found: Verdict) -> str:
    return (
        f"The trees of the section before have an AUC of {found.value:.2f}, well below "
        "a guess: rows that stand in both tables were learned with one label and met "
        "with the other. Look for copies."
    )


def _privacy_sentence(flagged: list[str], n: int) -> str:
    if not flagged:
        return f"None of {n} checks found a sign of copying."
    names = ", ".join(flagged)
    return f"{len(flagged)} of {n} checks point to copies of training rows: {names}."


def _fan(found: Fan, draw: _Album) -> _Fan:
    label = f"Draws of {found.name} beside the whole column; {found.says}"
    return _Fan(found.name, found.says, draw(fan_figure(found), label))


def _filling(found: Filling, draw: _Album) -> dict[str, Any]:
    """Return what the section about filled holes shows."""
    context: dict[str, Any] = {
        "fans": [[_fan(one, draw) for one in e.fans] for e in found.examples],
    }
    if found.calibration is None:
        return context
    context["nominal"] = NOMINAL
    label = "Share of hidden cells inside the model's intervals, against the promise"
    context["filled_coverage"] = draw(coverage_figure(found.calibration), label)
    if found.shares is not None:
        label = "How often levels are the truth, by their share among the draws"
        context["filled_shares"] = draw(shares_figure(found.shares), label)
    return context


def _sections(f: Facts, pictures: Mapping[str, Markup]) -> list[tuple[str, str]]:
    every = [
        ("verdict", "Verdict", True),
        ("missing", "Holes", f.holes),
        ("together", "Co-missing", f.holes),
        ("columns", "Columns", True),
        ("pairs", "Pairs", f.dependence),
        ("heldout", "Hidden cells", f.calibration),
        ("filling", "Filling", f.filling),
        ("map", "Map", f.map),
        ("detect", "Detection", f.detection),
        ("utility", "Utility", f.utility),
        ("privacy", "Privacy", True),
        ("training", "Training", "training" in pictures),
        ("schema", "Schema", True),
        ("limits", "Limits", True),
    ]
    return [(key, name) for key, name, present in every if present]


def _context(f: Facts) -> dict[str, Any]:
    draw = _Album()
    pictures = dict(_pictures(f, draw))
    series = "real and synthetic"
    if f.incomplete:
        series = "observed, synthetic complete, synthetic re-masked"
    context: dict[str, Any] = {
        "f": f,
        "p": pictures,
        "sections": _sections(f, pictures),
        "headline": headline(f.verdicts, len(f.run.get("flagged", ()))),
        "rules": RULES,
        "numbers": sorted(f.numbers, key=lambda v: ORDER[v.grade]),
        "marginals": [
            (
                SHOWN[kind],
                [_column(m, draw, series) for m in f.marginals if m.kind == kind],
            )
            for kind in SHOWN
        ],
        "full": FULL,
        "joints": [_pair(j, draw) for j in f.joints],
        "settings": sorted(f.settings.items()),
        "run": [(key, f.run[key]) for key in RUN if f.run.get(key) is not None],
        "held_out_loss": f.history is not None
        and "held_out" in f.history
        and bool(f.history["held_out"].notna().any()),
        "warp_sentence": "" if f.history is None else _warp_sentence(f.history),
    }
    if f.holes is not None:
        rates = f.holes.missing.column_rates
        context["whole_columns"] = int((rates == 0).sum())
        context["gap_sentence"] = _gap_sentence(f.holes.gap.bound)
        lines = f.holes.gap.columns[:GAP_LINES].to_dict("records")
        context["gap_lines"] = lines
    if f.dependence is not None:
        apart = np.abs(f.dependence.synthetic - f.dependence.real)
        known = apart[~np.isnan(apart)]
        context["largest"] = float(known.max()) if known.size else float("nan")
        context["matrix_named"] = len(f.dependence.names) <= MOST_NAMES
    if f.calibration is not None:
        found = f.calibration
        kinds = found.columns["kind"].unique()
        context["pits"] = [
            (kind, draw(pit_figure(found, kind), f"Ranks of the truth, {kind}"))
            for kind in kinds
        ]
        at_90 = found.coverage[found.coverage["nominal"] == 0.9]
        context["covered"] = at_90.to_dict("records")
        enough = found.columns[found.columns["cells"] >= FEWEST]
        context["held_out"] = enough.sort_values("skill").to_dict("records")
    if f.filling is not None:
        context |= _filling(f.filling, draw)
    if f.detection is not None:
        table = f.detection.table[:FEATURES]
        largest = float(table["importance"].max()) or 1.0
        context["features"] = table.assign(
            width=(100 * table["importance"] / largest).round(1)
        ).to_dict("records")
        first = str(table["column"].iloc[0])
        # The table may come without its number, from a metric called on its own.
        judged = next((v for v in f.numbers if v.key == "c2st_auc"), None)
        sentence = _detect_sentence(judged, first) if judged else ""
        context["detect_sentence"] = sentence
        if judged and judged.value < GUESS and judged.grade in ("fair", "poor"):
            context["same_rows"] = _same_rows(judged)
    if f.utility is not None:
        lines = f.utility.table.to_dict("index")
        context["utility"] = list(lines.items())
    if f.privacy is not None and f.measures is not None:
        titles = {v.key: v.title for v in f.numbers}
        lines = f.measures.sort_values("flagged", ascending=False, kind="stable")
        lines = lines.assign(title=lines["measure"].map(titles))
        context["privacy"] = lines.to_dict("records")
        flagged = lines.loc[lines["flagged"], "title"].tolist()
        context["privacy_sentence"] = _privacy_sentence(flagged, len(lines))
    return context


def render(facts: Facts) -> str:
    """Return the page as text."""
    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    pages.filters |= {
        "score": _score,
        "percent": _percent,
        "few": _few,
        "share_of_rows": partial(_share_of_rows, rows=facts.rows["real"]),
        "place": _place,
        "thousands": lambda count: f"{count:,}",
    }
    script = (HERE / "sort.js").read_text("utf-8")
    # no other script runs, whatever a column is called
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    return pages.from_string((HERE / "template.html").read_text("utf-8")).render(
        **_context(facts),
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
) -> Path:
    """Write one self-contained HTML page about a synthetic table.

    Parameters
    ----------
    path : str or Path
    scores : Scores
        What `evaluate` returned.
    model : AugMask, optional
        The fitted model, for training curves and settings, and to see how it fills
        holes if the table has any.
    open_ : bool
        Whether to show the page in a browser.
    progress : Progress

    Returns
    -------
    Path
        The file. It holds aggregates only: no real row, no count under 5, no level
        that fewer than 5 real rows have.
    """
    path = check_writable(path)
    seed = int(scores.facts.get("seed") or 0)
    text = render(gather(scores, model, seed, progress))
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")
    if open_:
        webbrowser.open(path.absolute().as_uri())
    return path
