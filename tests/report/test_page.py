from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest

from augmask.errors import UsageError
from augmask.evaluation.evaluate import evaluate
from augmask.evaluation.references import independent
from augmask.report.page import write_report
from augmask.table.infer import infer_schema

ALWAYS = ["verdict", "columns", "utility", "privacy", "schema", "limits"]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# Identifiers, which no browser fetches.
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def mixed(n: int = 300, seed: int = 0, missing: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "x": x.round(3),
            "count": rng.poisson(2 + (x > 0), n),
            "when": pd.Timestamp("2021-03-01")
            + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "word": np.where(x > 0, "up", "down"),
            "flag": rng.random(n) < 0.3,
        }
    )
    return frame.mask(rng.random(frame.shape) < missing) if missing else frame


class Ids(HTMLParser):
    """Collects the sections, ids, links and images of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images = 0
        self.named = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "section":
            self.sections.append(values["id"])
        if tag == "svg":
            self.images += 1
            self.named += bool(values.get("aria-label"))
        self.links += [v for k, v in values.items() if k in ("href", "src", "action")]


def page_of(scores, tmp_path, model=None) -> str:
    return write_report(tmp_path / "p.html", scores, model).read_text("utf-8")


def check_self_contained(text: str) -> Ids:
    """Check that a page loads nothing, and that its ids, links and images are sound."""
    page = Ids(text)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= NAMESPACES
    assert not re.findall(r"@import|url\((?!#)", text)
    outside = [u for u in page.links if not u.startswith(("#", "data:"))]
    assert not outside
    assert len(page.ids) == len(set(page.ids))
    assert {u[1:] for u in page.links if u.startswith("#")} <= set(page.ids)
    assert page.images == page.named
    return page


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_full_evaluation_has_all_sections_in_order(missing, tmp_path):
    real, test = mixed(300, 0, missing), mixed(300, 1, missing)
    synthetic = mixed(300, 2)
    target = None if missing else "word"
    scores = evaluate(
        real, synthetic, test=test, target=target, augmenter="ecdf", n_jobs=1
    )

    class Fitted:
        history_ = pd.DataFrame({"step": [1.0, 2.0], "loss": [2.0, 1.0]})
        training_ = MappingProxyType({"best_step": 2})
        settings_ = type("Settings", (), {"steps": 2})()

    text = page_of(scores, tmp_path, Fitted())
    expected = ["missing", "together", "heldout"] if missing else []
    page = check_self_contained(text)
    assert set(page.sections) == {
        *(*ALWAYS, *expected, "pairs", "map", "detection", "training")
    }
    order = ["verdict", "missing", "together", "columns", "pairs", "heldout", "map"]
    order += ["detection", "utility", "privacy", "training", "schema", "limits"]
    assert page.sections == [name for name in order if name in page.sections]
    # The paper's five metrics, or the two that apply, three that show what a mean
    # hides, and privacy.
    assert text.count('<article class="card verdict">') == (6 if missing else 9)
    assert ("re-masked" in text) == bool(missing)
    assert ("(MAR, " in text) == bool(missing)
    # Same scores, same bytes.
    assert text == page_of(scores, tmp_path, Fitted())


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(
    "names", [["x", "count"], ["word", "flag"], ["x"], ["word"], ["when"]]
)
def test_every_mix_of_columns_has_a_page(names, missing, make_scores, tmp_path):
    scores = make_scores(mixed(200, 0, missing)[names], mixed(200, 1)[names])
    page = check_self_contained(page_of(scores, tmp_path))
    assert set(page.sections) >= set(ALWAYS)
    assert ("pairs" in page.sections) == (len(names) > 1)
    assert ("missing" in page.sections) == bool(missing)


def test_odd_names_and_levels_are_escaped(make_scores, tmp_path):
    real = mixed(200, 0, 0.1)
    odd = [
        "<script>alert('x')</script>",
        'say "hi" & $go$',
        "🦊{{ 7*7 }}",
        "</svg>",
        " ",
    ]
    real.columns = odd
    real[odd[3]] = np.where(real[odd[0]] > 0, "<b>bold</b>", "\"'`&<!--")
    text = page_of(make_scores(real, real.ffill().bfill()), tmp_path)
    check_self_contained(text)
    assert "<script>alert" not in text
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text
    assert "🦊{{ 7*7 }}" in text
    assert text.count("<script>") == 1


class Copies:
    """A model that imputes with values of real rows."""

    history_ = None

    def __init__(self, real: pd.DataFrame) -> None:
        self.schema_, self.real = infer_schema(real), real

    def impute(self, rows, n_draws, seed, **_):
        rng = np.random.default_rng(seed)
        return [
            pd.DataFrame(
                {
                    name: rows[name]
                    .astype(object)
                    .where(
                        rows[name].notna(),
                        rng.choice(self.real[name].dropna().astype(object), len(rows)),
                    )
                    .infer_objects()
                    for name in rows
                }
            )
            for _ in range(n_draws)
        ]


def test_a_model_shows_how_it_imputes(make_scores, tmp_path):
    real = mixed(400, 0, 0.2)
    scores = make_scores(real, mixed(400, 1))
    text = page_of(scores, tmp_path, Copies(real))
    assert "imputation" in check_self_contained(text).sections
    assert "imputation" not in check_self_contained(page_of(scores, tmp_path)).sections
    assert "The model was trained on these very values" in text
    assert text == page_of(scores, tmp_path, Copies(real))
    test = mixed(400, 2)
    beside = page_of(
        make_scores(real, mixed(400, 1), test=test), tmp_path, Copies(real)
    )
    assert "These are test rows, which the model has not seen; each" in beside
    assert "these very values" not in beside


def test_a_model_that_cannot_impute_says_why(make_scores, tmp_path):
    real = mixed(400, 0, 0.2)

    class Refuses(Copies):
        def impute(self, *_, **__):
            raise UsageError("a backbone needs the method <sampler> to impute")

    text = page_of(make_scores(real, mixed(400, 1)), tmp_path, Refuses(real))
    check_self_contained(text)
    assert (
        "Not measured: a backbone needs the method &lt;sampler&gt; to impute." in text
    )


def test_nothing_that_only_a_few_rows_have_is_on_the_page(tmp_path):
    rng = np.random.default_rng(0)
    real = mixed(400, 0, 0.1)
    real["name"] = rng.choice(["Ann", "Bob"], 400)
    real.loc[:2, "name"] = "Xerxes-Quillfeather"
    real["key"] = [f"KEY-{i:05d}-Z" for i in rng.permutation(400)]
    real.loc[7, "x"] = 98765.4321
    real.loc[8, "x"] = -45678.9123
    real.loc[9, "when"] = pd.Timestamp("1931-07-19")
    real["few"] = pd.Series([41.77, 43.91, 47.13], dtype="float64")
    real["site"] = "Only-Place"
    # The generator repeats real values; the page must not.
    synthetic = independent(real, rng)
    scores = evaluate(
        real,
        synthetic,
        test=complete_like(real),
        target="name",
        augmenter=None,
        n_jobs=1,
    )
    text = page_of(scores, tmp_path, Copies(real))
    assert 'id="imputation"' in text
    for secret in (
        *("Xerxes", "Quillfeather", "KEY-0", "Only-Place"),
        *("98765", "98.77k", "4567", "−45", "1931", "41.77", "43.91", "47.13"),
    ):
        assert secret not in text, secret
    assert "Ann" in text


def complete_like(real: pd.DataFrame) -> pd.DataFrame:
    """Return complete test rows with the columns of `real`."""
    rows = real.copy()
    for name in real.columns:
        rows[name] = real[name].ffill().bfill()
    return rows.iloc[::-1].reset_index(drop=True)


def test_fifty_five_columns_stay_under_a_megabyte(make_scores, tmp_path):
    rng = np.random.default_rng(0)
    n, d = 1500, 55
    base = rng.normal(size=(n, 5))
    wide = pd.DataFrame(
        {
            f"a_rather_long_column_name_{j:02d}": base[:, j % 5] + rng.normal(size=n)
            if j % 4
            else rng.choice([f"a level called {k}" for k in range(12)], n)
            for j in range(d)
        }
    )
    real = wide.mask(rng.random((n, d)) < 0.15)
    path = write_report(tmp_path / "p.html", make_scores(real, wide), Copies(real))
    assert path.stat().st_size < 1_000_000
    check_self_contained(path.read_text("utf-8"))


def test_the_worst_columns_come_first_and_others_are_folded(make_scores, tmp_path):
    rng = np.random.default_rng(0)
    names = [f"c{j:02d}" for j in range(15)]
    real = pd.DataFrame(rng.normal(size=(60, 15)), columns=names)
    text = page_of(make_scores(real, real), tmp_path)
    listed = re.findall(r"<strong>(c\d\d)</strong>", text)
    # The fixture scores later columns lower.
    assert listed == names[::-1]
    fold = text.index("3 more, with better agreement")
    assert text.index("<strong>c03</strong>") < fold
    assert text.index("<strong>c02</strong>") > fold


PROBE = """{
const cell = document.querySelector('.matrix');
const box = cell.querySelector('svg').getBoundingClientRect();
const [left, top, width, height] = JSON.parse(cell.dataset.box);
const n = JSON.parse(cell.dataset.cells).names.length;
cell.dispatchEvent(new PointerEvent('pointermove', {
  clientX: box.left + (left + 1.5 * width / n) * box.width,
  clientY: box.top + (top + 0.5 * height / n) * box.height,
}));
const cut = [...document.querySelectorAll('main *')].filter((e) =>
  e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible');
parent.postMessage({
  wide: document.documentElement.scrollWidth,
  cut: cut.map((e) => e.closest('section').id + ': ' + e.textContent.slice(0, 40)),
  readout: cell.closest('figure').querySelector('.readout').textContent,
  names: JSON.parse(cell.dataset.cells).names,
}, '*');
}"""
# A browser window is at least 500 pixels wide, a frame in it can be narrower.
FRAME = """<!doctype html><title>waits</title>
<script>onmessage = (e) => { document.title = JSON.stringify(e.data); };</script>
<iframe src="p.html" style="border: 0; width: {width}px; height: 9000px"></iframe>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_reports_no_error_and_cuts_nothing_off(width, tmp_path):
    real = mixed(300, 0, 0.2).rename(columns={"count": "a_column_with_a_long_name"})
    test, synthetic = (
        mixed(300, seed).rename(columns={"count": "a_column_with_a_long_name"})
        for seed in (1, 2)
    )
    scores = evaluate(
        real, synthetic, test=test, target="word", augmenter="ecdf", n_jobs=1
    )
    path = write_report(tmp_path / "p.html", scores, Copies(real), date="2026-11-18")
    # The hash of the probe is added to the policy, which forbids every other script.
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    text = path.read_text("utf-8")
    assert text.count("script-src '") == 1
    text = text.replace("script-src '", f"script-src 'sha256-{digest}' '")
    # Folded parts count as well.
    text = text.replace("<details>", "<details open>")
    path.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    run = subprocess.run(
        [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--window-size=1400,900", "--virtual-time-budget=20000", "--dump-dom"),
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "CONSOLE" not in run.stderr
    found = json.loads(unescape(re.search(r"<title>(.*?)</title>", run.stdout)[1]))
    assert found["wide"] <= width
    assert found["cut"] == []
    first, second = found["names"][:2]
    assert found["readout"].startswith(f"{first} with {second}: ")


def test_the_header_names_files_date_and_settings(tmp_path):
    paths = []
    for i, name in enumerate(("real.csv", "synthetic.csv")):
        paths.append(tmp_path / name)
        mixed(200, i).to_csv(paths[-1], index=False)

    class Fitted:
        schema_ = infer_schema(mixed(200))
        backbone, augmenter_, preset_ = "cdtd", "lgbm-s", "fast"
        ensemble_, seed, history_ = 4, 7, None
        training_ = MappingProxyType({"holdout": None})
        settings_ = type("Settings", (), {"steps": 1500})()

    scores = evaluate(*paths, model=Fitted(), augmenter=None, n_jobs=1)
    path = write_report(tmp_path / "p.html", scores, date="2026-11-18")
    text = path.read_text("utf-8")
    for part in ("real.csv, 200 rows", "synthetic.csv, 200 rows", "2026-11-18"):
        assert part in text, part
    assert "cdtd, preset fast, 1,500 steps, 4 networks, augmenter lgbm-s" in text
    # Names only: a path may tell more than it should.
    assert str(tmp_path) not in text.split("What to try next")[0]


@pytest.mark.parametrize("with_test", [True, False])
def test_utility_that_is_not_measured_says_what_to_type(tmp_path, with_test):
    test = mixed(200, 2) if with_test else None
    scores = evaluate(mixed(200), mixed(200, 1), test=test, augmenter=None, n_jobs=1)
    text = page_of(scores, tmp_path)
    section = text[text.index('id="utility"') : text.index('id="privacy"')]
    assert "Not measured: name the column to predict" in section
    assert ("<code>--test</code>" in section) == (not with_test)


def test_failing_scores_say_what_to_try(tmp_path):
    real = mixed(400, 0)
    scores = evaluate(
        real, independent(real, np.random.default_rng(0)), augmenter=None, n_jobs=1
    )
    text = page_of(scores, tmp_path)
    assert scores.facts["verdict"]["grade"] == "poor"
    assert "What to try next" in text
    for line in {step["line"] for step in scores.facts["advice"].values()}:
        ast.parse(line)
    good = page_of(evaluate(real, mixed(400, 1), n_jobs=1), tmp_path)
    assert "What to try next" not in good


def test_the_augmenter_is_never_a_card(tmp_path):
    real = mixed(400, 0, 0.3)
    scores = evaluate(real, mixed(400, 1), augmenter="mean", n_jobs=1)
    assert scores.facts["verdict"]["grades"]["held_out_coverage_80"] == "poor"
    text = page_of(scores, tmp_path)
    verdict, rest = text.split('<section id="missing"')
    strip = verdict[: verdict.index("<details")]
    assert "Held-out" not in strip
    assert "about the augmenter" in verdict
    assert "lgbm-s-calibrated" in rest
    assert "! poor" not in strip


def test_the_page_says_what_complete_rows_there_are(tmp_path):
    real, test, synthetic = mixed(300, 0, 0.2), mixed(300, 1), mixed(300, 2)
    alone = evaluate(real, synthetic, augmenter="ecdf", n_jobs=1)
    text = page_of(alone, tmp_path)
    assert "no complete real rows to compare with" in text
    assert "The augmenter ecdf fills missing values" in text
    beside = evaluate(
        real, synthetic, test=test, target="word", augmenter=None, n_jobs=1
    )
    text = page_of(beside, tmp_path)
    assert "no complete real rows to compare with" not in text
    assert "The only complete real rows are the test rows" in text
    assert "synthetic rows against the complete test rows" in text
    assert "training rows against test rows, on observed values" in text
    assert "of the skill is retained" not in text
    assert "from real, filled" in text


def test_rows_in_both_tables_are_mentioned_under_privacy(tmp_path):
    real = mixed(400, 0)
    scores = evaluate(real, real.sample(frac=1, random_state=0), n_jobs=1)
    assert scores["c2st_auc"] < 0.3
    text = page_of(scores, tmp_path)
    section = text[text.index('id="privacy"') : text.index('id="schema"')]
    assert "Look for copies" in section
    fresh = page_of(evaluate(real, mixed(400, 1), n_jobs=1), tmp_path)
    assert "Look for copies" not in fresh


def test_the_value_of_a_constant_column_is_not_named_whatever_its_kind(
    tmp_path,
):
    real = mixed(60).assign(same=np.where(np.arange(60) < 3, "Zaphod", None))
    tables = (real, mixed(60, 1).assign(same="Zaphod"))
    for schema in (None, {"same": {"kind": "category"}}):
        scores = evaluate(*tables, schema=schema, augmenter=None, n_jobs=1)
        assert "Zaphod" not in page_of(scores, tmp_path)


def test_a_share_does_not_reveal_a_small_count(make_scores, tmp_path):
    real = mixed(40)
    real.loc[:1, "x"] = np.nan
    real.loc[:9, "word"] = None
    text = page_of(make_scores(real, mixed(40, 1)), tmp_path)
    assert "5.0 %" not in text
    assert "under 12 % missing" in text
    assert "&lt;12%" in text
    assert "25 % missing" in text


def test_the_policy_allows_only_the_script_of_the_page(make_scores, tmp_path):
    real = mixed()
    text = page_of(make_scores(real, mixed(seed=1)), tmp_path)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["script-src"] == f"'sha256-{digest}'"
    assert directives["default-src"] == "'none'"
    assert directives["base-uri"] == "'none'"
    assert directives["form-action"] == "'none'"
