"""What the commands do when all is well."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from augmask.table.frames import read_frame

from .conftest import TINY, make_frame


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_frame().to_csv("t.csv", index=False)
    return tmp_path


def test_help_lists_the_commands_and_needs_no_heavy_library(run_cli):
    shown = run_cli("--help")
    assert shown.code == 0
    assert all(f"  {name} " in shown.out for name in ("inspect", "fit", "sample"))
    code = (
        "import sys; sys.argv = ['augmask', '--help']\n"
        "from augmask.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'sklearn', 'lightgbm', 'pyarrow'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_inspect_says_what_each_column_is(desk, run_cli):
    frame = make_frame().assign(
        empty=None, country="DE", job=lambda f: f.job.fillna("?")
    )
    frame.to_csv("t.csv", index=False)
    shown = run_cli("inspect", "t.csv")
    assert shown.code == 0
    assert "t.csv: 60 rows, 6 columns" in shown.out
    lines = {line.split()[0]: line for line in shown.out.splitlines() if line}
    assert "integer" in lines["age"]
    assert "int64" in lines["age"]
    assert "boolean" in lines["smokes"]
    assert "constant" in lines["country"]
    assert "all-missing" in lines["empty"]
    assert "'?'" in lines["job"]
    notes = [line for line in shown.err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 3
    assert shown.err.count("\n") == 3
    assert list(Path().iterdir()) == [Path("t.csv")]


def test_inspect_as_one_document(desk, run_cli):
    shown = run_cli("inspect", "t.csv", "--json")
    document = json.loads(shown.out)
    assert shown.err == ""
    assert [c["label"] for c in document["columns"]] == list(make_frame())
    rates = make_frame().isna().mean()
    assert document["missing"]["column_rates"] == pytest.approx(rates.to_dict())
    assert document["notes"] == []


def test_a_saved_schema_is_read_again_and_obeyed(desk, run_cli):
    first = json.loads(run_cli("inspect", "t.csv", "--json").out)["columns"]
    assert run_cli("inspect", "t.csv", "--save-schema", "s.toml").code == 0
    again = run_cli("inspect", "t.csv", "--schema", "s.toml", "--json")
    second = json.loads(again.out)["columns"]
    assert [c["kind"] for c in second] == [c["kind"] for c in first]
    assert [c["dtype"] for c in second] == [c["dtype"] for c in first]

    text = Path("s.toml").read_text()
    assert tomllib.loads(text)["columns"]["age"]["kind"] == "integer"
    Path("s.toml").write_text(text.replace('kind = "integer"', 'kind = "float"'))
    third = json.loads(run_cli("inspect", "t.csv", "--schema", "s.toml", "--json").out)[
        "columns"
    ]
    assert third[0]["kind"] == "float"
    fitted = run_cli("fit", "t.csv", "--out", "m.augmask", "--schema", "s.toml", *TINY)
    assert fitted.code == 0, fitted.err
    run_cli("sample", "m.augmask", "-n", 9, "--out", "rows.parquet")
    assert read_frame("rows.parquet")["age"].dtype == "float64"


def test_fit_then_sample_as_documents(desk, run_cli):
    fitted = run_cli("fit", "t.csv", "--out", "m.augmask", "--json", *TINY)
    facts = json.loads(fitted.out)
    assert facts["model"] == "m.augmask"
    assert facts["steps"] == 20
    assert facts["stopped"] == "steps"
    assert facts["held_out"] > 0
    reports = [json.loads(line) for line in fitted.err.splitlines()]
    assert {r["phase"] for r in reports} >= {"train"}
    assert reports[-1] | {"done": 20, "total": 20} == reports[-1]

    drawn = run_cli("sample", "m.augmask", "-n", 30, "--out", "r.csv", "--json")
    facts = json.loads(drawn.out)
    assert (facts["rows"], facts["file"]) == (30, "r.csv")
    assert [json.loads(line)["phase"] for line in drawn.err.splitlines()] == ["sample"]
    rows = pd.read_csv("r.csv")
    assert rows.shape == (30, 4)
    assert not rows.isna().any().any()


def test_fit_and_sample_say_one_line_each(desk, run_cli):
    fitted = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY, "--holdout", 0)
    assert fitted.out.count("\n") == 1
    assert fitted.out.startswith("m.augmask: ")
    assert fitted.err == ""
    drawn = run_cli("sample", "m.augmask", "-n", 30, "--out", "r.csv")
    assert drawn.out.startswith("r.csv: 30 complete rows")
    assert drawn.err == ""


def test_notes_are_said_once_before_the_work_or_stand_in_the_document(desk, run_cli):
    make_frame().assign(id=range(60)).to_csv("t.csv", index=False)
    command = ["fit", "t.csv", "--out", "m.augmask", *TINY]
    said = run_cli(*command).err
    assert said.startswith("note: not learned, because taken for identifiers: 'id'")
    assert said.count("\n") == 1
    fitted = run_cli(*command, "--json")
    assert json.loads(fitted.out)["notes"] == [said.removeprefix("note: ").strip()]
    assert all(json.loads(line) for line in fitted.err.splitlines())
    # it is said before training starts, while there is time to stop it
    failed = run_cli(*command, "--set", "lr=1e9")
    assert failed.err.splitlines()[0] == said.strip()


def test_the_seed_decides(desk, run_cli):
    for model, seed in (("a.augmask", 0), ("b.augmask", 0), ("c.augmask", 1)):
        run_cli("fit", "t.csv", "--out", model, "--seed", seed, *TINY)
    same, other = Path("b.augmask").read_bytes(), Path("c.augmask").read_bytes()
    assert Path("a.augmask").read_bytes() == same != other
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run_cli(
            "sample", "a.augmask", "-n", 50, "--out", f"{name}.csv.gz", "--seed", seed
        )
    same, other = Path("b.csv.gz").read_bytes(), Path("c.csv.gz").read_bytes()
    assert Path("a.csv.gz").read_bytes() == same != other


def test_a_finished_fit_removes_its_checkpoint(desk, run_cli, monkeypatch):
    from augmask.train.checkpoint import Checkpoint

    saved = []
    save = Checkpoint.save

    def spy(self, tensors, facts):
        save(self, tensors, facts)
        saved.append(self.path.stat().st_size)

    monkeypatch.setattr(Checkpoint, "save", spy)
    monkeypatch.setattr(Checkpoint, "due", True)
    run_cli("fit", "t.csv", "--out", "m.augmask", "--checkpoint", "run.ckpt", *TINY)
    assert saved
    assert sorted(p.name for p in desk.iterdir()) == ["m.augmask", "t.csv"]


@pytest.mark.parametrize("place", [0, 99])
def test_debug_shows_the_traceback_wherever_it_stands(place, desk, run_cli):
    arguments = ["inspect", "absent.csv"]
    arguments.insert(place, "--debug")
    shown = run_cli(*arguments)
    assert shown.code == 3
    assert "Traceback" in shown.err
    assert shown.err.splitlines()[-1] == "augmask: no such file: absent.csv"


def test_settings_reach_the_model(desk, run_cli):
    from augmask import load

    run_cli(
        *("fit", "t.csv", "--out", "m.augmask", "--supervise", "all", *TINY),
        *("--set", "lr=0.004", "--set", "completions=stack:3"),
    )
    model = load("m.augmask")
    assert model.settings_.lr == 0.004
    assert model.settings_.completions == "stack:3"
    assert model.settings_.steps == 20
    assert (model.supervise, model.augmenter) == ("all", "ecdf")


@pytest.mark.parametrize(
    ("backbone", "name", "text", "value"),
    [
        ("tabdiff", "anneal", "false", False),
        ("tabdiff", "learnable", "TRUE", True),
        ("tabddpm", "log_onehot", "false", False),
        ("tabddpm", "log_onehot", "on", True),
        ("tabddpm", "clip", "1", 1.0),
    ],
)
def test_text_becomes_what_the_keyword_is(backbone, name, text, value, desk, run_cli):
    from augmask import load

    given = ("--backbone", backbone, "--set", f"{name}={text}")
    fitted = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY, *given)
    assert fitted.code == 0, fitted.err
    found = load("m.augmask").settings_.network[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_what_nobody_foresaw_is_one_sentence_too(debug, desk, run_cli, monkeypatch):
    def stumble(*args):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("augmask.inspection.read_frame", stumble)
    told = run_cli("inspect", "t.csv", *debug)
    assert told.code == 1
    assert ("Traceback" in told.err) is bool(debug)
    last = told.err.splitlines()[-1]
    assert last.startswith(
        "augmask: internal error (ZeroDivisionError: division by zero)"
    )
    assert "--debug" in last
    assert bool(debug) or told.err.splitlines() == [last]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_too_little_memory_is_said(error, desk, run_cli, monkeypatch):
    def run_out(*args):
        raise error

    monkeypatch.setattr("augmask.inspection.read_frame", run_out)
    told = run_cli("inspect", "t.csv")
    assert (told.code, told.out) == (3, "")
    assert told.err == "augmask: out of memory; use fewer rows or columns\n"


def test_an_interrupted_fit_says_so_and_leaves_nothing(desk, run_cli, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("augmask.model.train", interrupt)
    stopped = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY)
    said = "augmask: stopped before the training began; nothing was saved\n"
    assert (stopped.code, stopped.err) == (130, said)
    assert [p.name for p in desk.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_training_says_what_was_saved(
    name, code, desk, run_cli, monkeypatch
):
    steps = []

    def late(*report):
        steps.append(report[1])
        if report[1] >= 120:
            signal.raise_signal(getattr(signal, name))

    monkeypatch.setattr("augmask.train.loop.REPORT_SECONDS", 0.0)
    monkeypatch.setattr("augmask.progress.JsonLines.__call__", lambda _, *r: late(*r))
    command = ["fit", "t.csv", "--out", "m.augmask", *TINY, "--checkpoint", "run"]
    command += ["--steps", "100000", "--json"]
    stopped = run_cli(*command)
    assert (stopped.code, stopped.out) == (code, "")
    (line,) = stopped.err.splitlines()
    assert "augmask: the training was stopped; " in line
    assert "up to step 100 is in run; to resume it, start again" in line
    assert sorted(p.name for p in desk.iterdir()) == ["run", "t.csv"]


def test_help_names_every_choice(run_cli):
    from augmask.augmentation import AUGMENTERS
    from augmask.config import SUPERVISE
    from augmask.diffusion import BACKBONES
    from augmask.presets import PRESETS

    shown = run_cli("fit", "--help").out
    joined = "".join(shown.split())
    names = [
        *BACKBONES,
        *AUGMENTERS,
        *PRESETS,
        *SUPERVISE,
        "auto",
        "cpu",
        "cuda",
        "mps",
    ]
    assert [name for name in names if name not in joined] == []


@pytest.mark.parametrize(
    ("option", "value", "names"),
    [
        ("--backbone", "cdtdd", "did you mean 'cdtd'? known: cdtd, tabdiff, tabddpm"),
        ("--backbone", "gan", "known: cdtd, tabdiff, tabddpm"),
        ("--augmenter", "lgbm", "known: auto, zero, mean, noise, ecdf, mice, lgbm-d"),
        ("--preset", "quick", "known: auto, paper, best, balanced, fast"),
        ("--device", "gpu", "'auto', 'cpu', 'cuda' or 'mps'"),
        ("--supervise", "some", "one of 'observed', 'all'"),
    ],
)
def test_an_unknown_choice_is_answered_with_all(option, value, names, desk, run_cli):
    told = run_cli("fit", "t.csv", "--out", "m.augmask", option, value)
    assert told.code == 2
    assert names in told.err


def test_evaluate_shows_numbers_with_references_and_the_worst(desk, run_cli):
    make_frame(400).to_csv("t.csv", index=False)
    rows = make_frame(900).dropna()
    rows[:150].assign(job="cook").to_csv("s.csv", index=False)
    rows[150:].to_csv("test.csv", index=False)
    command = ["evaluate", "t.csv", "s.csv", "--test", "test.csv", "--target", "smokes"]
    shown = run_cli(*command)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].startswith("Poor: ")
    assert lines[2].split() == ["score", "value", "reference", "floor"]
    titles = [line.split("  ")[0] for line in lines]
    assert {"Shape, re-masked", "Shape", "DCR share, observed cells"} <= set(titles)
    at = next(i for i, line in enumerate(lines) if line.startswith("worst columns"))
    assert lines[at + 1].startswith("job ")
    assert "two random halves of the real table" in shown.out
    assert all(line.startswith("note: ") for line in shown.err.splitlines())

    made = run_cli(*command, "--json", "--out", "scores.json")
    document = json.loads(made.out)
    assert document == json.loads(Path("scores.json").read_text())
    assert f"{document['shape_remasked']['value']:.4f}" in shown.out
    assert document["facts"]["target"] == "smokes"
    reports = [json.loads(line) for line in made.err.splitlines()]
    assert reports[-1]["phase"] == "evaluate"
    assert reports[-1]["done"] == reports[-1]["total"]


def test_evaluate_obeys_the_schema_and_the_subsample(desk, run_cli):
    make_frame(200).fillna({"age": -9}).to_csv("t.csv", index=False)
    make_frame(600).dropna().to_csv("s.csv", index=False)
    Path("s.toml").write_text('[columns."age"]\nna_values = [-9]\n')
    made = run_cli(
        *("evaluate", "t.csv", "s.csv", "--schema", "s.toml"),
        *("--subsample", 100, "--json"),
    )
    document = json.loads(made.out)
    assert document["facts"]["rows"] == {"real": 100, "synthetic": 100}
    rates = {c["column"]: c["real_rate"] for c in document["tables"]["columns"]}
    assert rates["age"] > 0.1


def test_every_command_reads_files_as_they_are(tmp_path, monkeypatch, run_cli):
    """From a table with five quirks to a report; each option is named once."""
    monkeypatch.chdir(tmp_path)
    lines = [
        f"{i % 28 + 1:02}/{i % 12 + 1:02}/2021;{'?' if i % 9 == 0 else i % 40};"
        f"{-999 if i % 11 == 0 else i % 23};{'ü' if i % 2 else 'o'}"
        for i in range(120)
    ]
    Path("t.txt").write_bytes("\n".join(lines).encode("cp1252"))
    shown = run_cli("inspect", "t.txt")
    assert shown.code == 3
    assert "--encoding cp1252" in shown.err
    options = ["--sep", ";", "--no-header", "--encoding", "cp1252"]
    shown = run_cli("inspect", "t.txt", *options)
    assert shown.code == 0
    assert "--na 'column_2=?'" in shown.err
    assert "--na column_3=-999" in shown.err
    assert run_cli("fit", "t.txt", *options, "--out", "m.augmask", *TINY).code == 3
    options += ["--na", "?", "--na", "column_3=-999"]
    fitted = run_cli("fit", "t.txt", *options, "--out", "m.augmask", *TINY)
    assert fitted.code == 0, fitted.err
    filled = run_cli("impute", "m.augmask", "t.txt", *options, "--out", "f.csv")
    assert filled.code == 0, filled.err
    frame = pd.read_csv("f.csv", dtype=str)
    assert not frame.isna().any().any()
    assert frame["column_1"].tolist() == [line.split(";")[0] for line in lines]
    known = [line.split(";")[1] for line in lines]
    assert all(
        a == b for a, b in zip(frame["column_2"], known, strict=True) if b != "?"
    )
    assert run_cli("sample", "m.augmask", "-n", "60", "--out", "s.csv").code == 0
    scored = run_cli("evaluate", "t.txt", "s.csv", *options, "--json")
    assert scored.code == 0, scored.err
    page = run_cli("report", "t.txt", "s.csv", *options, "--out", "p.html")
    assert page.code == 0, page.err


def test_auto_takes_what_looks_like_a_code_and_says_so(tmp_path, monkeypatch, run_cli):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{'?' if i % 9 == 0 else i % 40},x{i % 3}\n" for i in range(99))
    Path("t.csv").write_text("age,b\n" + rows)
    shown = run_cli("inspect", "t.csv", "--na", "auto")
    assert shown.code == 0
    assert "'?' in 'age'" in shown.err
    assert "integer" in shown.out


def test_a_saved_schema_fits_the_table_it_came_from(tmp_path, monkeypatch, run_cli):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{'?' if i % 9 == 0 else i % 40},${i % 29},?\n" for i in range(99))
    Path("t.csv").write_text("age,price,job\n" + rows.replace("$3,?", "$3,cook"))
    assert run_cli("inspect", "t.csv", "--save-schema", "s.toml").code == 0
    columns = tomllib.loads(Path("s.toml").read_text())["columns"]
    assert columns["price"]["format"] == "$0"
    assert columns["age"]["na_values"] == ["?"]
    assert "levels" not in columns["job"]
    out = run_cli("fit", "t.csv", "--schema", "s.toml", "--out", "m.augmask", *TINY)
    assert out.code == 0, out.err
