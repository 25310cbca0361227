from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
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

ALWAYS = ["verdict", "columns", "privacy", "schema", "limits"]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# Names of things, which no browser fetches.
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def mixed(n: int = 300, seed: int = 0, holes: float = 0.0) -> pd.DataFrame:
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
    return frame.mask(rng.random(frame.shape) < holes) if holes else frame


class Ids(HTMLParser):
    """Collects the sections of a page, and whatever has an address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images = 0
        self.named = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "section":
            self.sections.append(found["id"])
        if tag == "svg":
            self.images += 1
            self.named += bool(found.get("aria-label"))
        self.links += [v for k, v in found.items() if k in ("href", "src", "action")]


def page_of(scores, tmp_path, model=None) -> str:
    return write_report(tmp_path / "p.html", scores, model).read_text("utf-8")


def check_alone(text: str) -> Ids:
    """Check that a page needs nothing but itself and hangs together."""
    page = Ids(text)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= NAMESPACES
    assert not re.findall(r"@import|url\((?!#)", text)
    outside = [u for u in page.links if not u.startswith(("#", "data:"))]
    assert not outside
    assert len(page.ids) == len(set(page.ids))
    assert {u[1:] for u in page.links if u.startswith("#")} <= set(page.ids)
    assert page.images == page.named
    return page


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_a_page_of_a_whole_evaluation(holes, tmp_path):
    real, test = mixed(300, 0, holes), mixed(300, 1, holes)
    synthetic = mixed(300, 2)
    target = None if holes else "word"
    scores = evaluate(real, synthetic, test, target, fill="ecdf", n_jobs=1)

    class Fitted:
        history_ = pd.DataFrame({"step": [1.0, 2.0], "loss": [2.0, 1.0]})
        training_ = MappingProxyType({"best_step": 2})
        settings_ = type("Settings", (), {"steps": 2})()

    text = page_of(scores, tmp_path, Fitted())
    expected = ["missing", "together", "heldout"] if holes else ["utility"]
    page = check_alone(text)
    assert set(page.sections) == {
        *(*ALWAYS, *expected, "pairs", "map", "detect", "training")
    }
    order = ["verdict", "missing", "together", "columns", "pairs", "heldout", "map"]
    order += ["detect", "utility", "privacy", "training", "schema", "limits"]
    assert page.sections == [name for name in order if name in page.sections]
    # five, or the four that apply, and the two that see the worst
    assert text.count('<article class="card verdict">') == (6 if holes else 7)
    assert ("re-masked" in text) == bool(holes)
    assert ("(MAR)" in text) == bool(holes)
    # Same scores, same bytes.
    assert text == page_of(scores, tmp_path, Fitted())


@pytest.mark.parametrize("holes", [0.0, 0.3])
@pytest.mark.parametrize(
    "names", [["x", "count"], ["word", "flag"], ["x"], ["word"], ["when"]]
)
def test_every_mix_of_columns_has_a_page(names, holes, make_scores, tmp_path):
    scores = make_scores(mixed(200, 0, holes)[names], mixed(200, 1)[names])
    page = check_alone(page_of(scores, tmp_path))
    assert set(page.sections) >= set(ALWAYS)
    assert ("pairs" in page.sections) == (len(names) > 1)
    assert ("missing" in page.sections) == bool(holes)


def test_odd_names_and_levels_are_only_text(make_scores, tmp_path):
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
    check_alone(text)
    assert "<script>alert" not in text
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text
    assert "🦊{{ 7*7 }}" in text
    assert text.count("<script>") == 1


class Copies:
    """A model that fills holes with what stands in real rows, and nothing else."""

    history_ = None

    def __init__(self, real: pd.DataFrame) -> None:
        self.schema_, self.real = infer_schema(real), real

    def impute(self, rows, draws, seed, _progress):
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
            for _ in range(draws)
        ]


def test_a_model_shows_how_it_fills_holes(make_scores, tmp_path):
    real = mixed(400, 0, 0.2)
    scores = make_scores(real, mixed(400, 1))
    text = page_of(scores, tmp_path, Copies(real))
    assert "filling" in check_alone(text).sections
    assert "filling" not in check_alone(page_of(scores, tmp_path)).sections
    assert "The model has learned from these very cells" in text
    assert text == page_of(scores, tmp_path, Copies(real))
    test = mixed(400, 2)
    beside = page_of(
        make_scores(real, mixed(400, 1), test=test), tmp_path, Copies(real)
    )
    assert "They are test rows, from which the model has not learned; each" in beside
    assert "these very cells" not in beside


def test_a_model_that_cannot_fill_says_why(make_scores, tmp_path):
    real = mixed(400, 0, 0.2)

    class Refuses(Copies):
        def impute(self, *_):
            raise UsageError("a backbone needs the method <way> to fill cells")

    text = page_of(make_scores(real, mixed(400, 1)), tmp_path, Refuses(real))
    check_alone(text)
    assert (
        "Not measured: a backbone needs the method &lt;way&gt; to fill cells." in text
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
    # A generator that repeats what it saw: the page must not.
    synthetic = independent(real, rng)
    scores = evaluate(real, synthetic, mixed_like(real), "name", fill=None, n_jobs=1)
    text = page_of(scores, tmp_path, Copies(real))
    assert 'id="filling"' in text
    for secret in (
        *("Xerxes", "Quillfeather", "KEY-0", "Only-Place"),
        *("98765", "98.77k", "4567", "−45", "1931", "41.77", "43.91", "47.13"),
    ):
        assert secret not in text, secret
    assert "Ann" in text


def mixed_like(real: pd.DataFrame) -> pd.DataFrame:
    """Return test rows without holes and with the columns of `real`."""
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
    holed = wide.mask(rng.random((n, d)) < 0.15)
    path = write_report(tmp_path / "p.html", make_scores(holed, wide), Copies(holed))
    assert path.stat().st_size < 1_000_000
    check_alone(path.read_text("utf-8"))


def test_the_worst_columns_come_first_and_the_rest_is_folded(make_scores, tmp_path):
    rng = np.random.default_rng(0)
    names = [f"c{j:02d}" for j in range(15)]
    real = pd.DataFrame(rng.normal(size=(60, 15)), columns=names)
    text = page_of(make_scores(real, real), tmp_path)
    shown = re.findall(r"<strong>(c\d\d)</strong>", text)
    # the scores of the fixture fall along the columns
    assert shown == names[::-1]
    assert text.index("<strong>c03</strong>") < text.index("3 more, which agree better")
    assert text.index("<strong>c02</strong>") > text.index("3 more, which agree better")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_finds_no_fault(width, make_scores, tmp_path):
    scores = make_scores(mixed(300, 0, 0.2), mixed(300, 1))
    path = write_report(tmp_path / "p.html", scores, Copies(mixed(300, 0, 0.2)))
    # The page reports how wide it is. Its own policy forbids every request and every
    # script but its own, so the probe's hash is let in beside it.
    script = "document.title = 'wide ' + document.body.scrollWidth"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = path.read_text("utf-8")
    assert text.count("script-src '") == 1
    text = text.replace("script-src '", f"script-src 'sha256-{digest}' '")
    path.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    run = subprocess.run(
        [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--window-size={width},900", "--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in run.stderr
    assert int(re.search(r"<title>wide (\d+)", run.stdout)[1]) <= width
    assert run.stdout.count('<th class="n"><button type="button">') > 0


def test_complete_test_rows_are_named_as_the_truth(tmp_path):
    real, test, synthetic = mixed(300, 0, 0.2), mixed(300, 1), mixed(300, 2)
    alone = evaluate(real, synthetic, fill="ecdf", n_jobs=1)
    text = page_of(alone, tmp_path)
    assert "no complete truth to compare with" in text
    assert "by the fill rule ecdf" in text
    beside = evaluate(real, synthetic, test, "word", fill=None, n_jobs=1)
    text = page_of(beside, tmp_path)
    assert "no complete truth" not in text
    assert "The only complete truth is the test rows" in text
    assert "Synthetic rows against the complete test rows." in text
    assert "Training rows against test rows, on observed cells." in text
    assert "of the skill is kept" not in text
    assert "from real, filled" in text


def test_rows_in_both_tables_are_named_beside_privacy(tmp_path):
    real = mixed(400, 0)
    scores = evaluate(real, real.sample(frac=1, random_state=0), n_jobs=1)
    assert scores["c2st_auc"] < 0.3
    text = page_of(scores, tmp_path)
    section = text[text.index('id="privacy"') : text.index('id="schema"')]
    assert "Look for copies" in section
    fresh = page_of(evaluate(real, mixed(400, 1), n_jobs=1), tmp_path)
    assert "Look for copies" not in fresh


def test_the_value_of_a_constant_column_is_not_named_whatever_it_was_declared(tmp_path):
    real = mixed(60).assign(same=np.where(np.arange(60) < 3, "Zaphod", None))
    tables = (real, mixed(60, 1).assign(same="Zaphod"))
    for schema in (None, {"same": {"kind": "category"}}):
        scores = evaluate(*tables, schema=schema, fill=None, n_jobs=1)
        assert "Zaphod" not in page_of(scores, tmp_path)


def test_a_share_does_not_say_how_few_rows_it_is(make_scores, tmp_path):
    real = mixed(40)
    real.loc[:1, "x"] = np.nan
    real.loc[:9, "word"] = None
    text = page_of(make_scores(real, mixed(40, 1)), tmp_path)
    assert "5.0 %" not in text
    assert "under 12 % holes" in text
    assert "&lt;12%" in text
    assert "25 % holes" in text


def test_only_the_page_s_own_script_may_run(make_scores, tmp_path):
    real = mixed()
    text = page_of(make_scores(real, mixed(seed=1)), tmp_path)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == "'none'"
    assert rules["form-action"] == "'none'"
