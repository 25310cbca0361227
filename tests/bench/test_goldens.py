"""A change of rows under an unchanged version is detected; see `golden.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.bench import golden
from tests.bench.golden import FOLDER, Golden, differs, goldens, methods, rows_of

EVERY = goldens()
BACKBONES = ("cdtd", "tabdiff", "tabddpm")


@pytest.mark.parametrize("one", EVERY, ids=str)
def test_rows_are_those_of_the_declared_version(one):
    if one.why_unavailable:
        pytest.skip(one.why_unavailable)
    problem = one.problem(one.make(), one.stored())
    assert not problem, problem


def test_there_is_one_golden_for_each():
    assert {path.name for path in FOLDER.glob("*")} == {one.path.name for one in EVERY}


@pytest.mark.parametrize("name", BACKBONES)
def test_strategies_presets_and_seeds_are_distinguished(name):
    stored = Golden("generator", name).stored()["cases"]
    sds = golden.scales(augmenter=False)
    cases = list(stored.values())
    assert all(differs(a, b, sds) for i, a in enumerate(cases) for b in cases[i + 1 :])
    mask = methods(name)["paper, AugMask"]
    faster = ("lr", 1.05 * dict(mask.options)["lr"])
    for change in (
        {"supervise": "all"},
        {"augmenter": "ecdf"},
        {"options": (*mask.options, faster)},
        {"options": (*mask.options, ("ties", "dequantize"))},
    ):
        assert differs(rows_of(replace(mask, **change)), stored["paper, AugMask"], sds)


@pytest.mark.parametrize(
    "change",
    [
        {"version": "another"},
        {"cases": {}},
        {"cases": {"draw": []}},
    ],
)
def test_a_golden_of_another_version_or_case_is_refused(change):
    one = Golden("augmenter", "mean")
    rows = one.make()
    assert one.problem(rows, one.stored()) == ""
    assert one.problem(rows, {**one.stored(), **change})
    assert "has no golden" in one.problem(rows, {})


def test_the_message_names_the_fix():
    one = Golden("generator", "fill")
    reversed_rows = {case: rows[::-1] for case, rows in one.make().items()}
    assert one.problem(reversed_rows, one.stored()) == (
        "the rows of generator fill changed (ecdf; mean); raise its version and "
        "remake the golden with `make goldens`"
    )
    assert Golden("generator", "arf").command == "make goldens-baselines"


def test_only_rounding_is_tolerated():
    rows = [[float(i), "a"] for i in range(40)]
    near = [[x + 0.9e-3, level] for x, level in rows]
    assert not differs(near, rows, [1.0])
    assert differs([[x + 1.1e-3, level] for x, level in rows], rows, [1.0])
    # a thousandth of the standard deviation
    assert differs(near, rows, [0.5])
    odd = [[x, "b" if x < 2 else level] for x, level in rows]
    assert not differs(odd, rows, [1.0])
    assert differs([[x, "b" if x < 3 else "a"] for x, _ in rows], rows, [1.0])
    assert differs(rows[:39], rows, [1.0])


def test_remaking_refuses_an_unchanged_version(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    one = Golden("augmenter", "mean")
    monkeypatch.setattr(golden, "goldens", lambda: [one])
    (tmp_path / "augmenter-gone.json").touch()
    assert golden.main() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["augmenter-mean.json"]
    before = one.path.read_text()
    changed = {case: rows[::-1] for case, rows in one.make().items()}
    monkeypatch.setattr(Golden, "make", lambda _: changed)
    assert golden.main() == 1
    assert "raise its version" in capsys.readouterr().err
    assert one.path.read_text() == before
    monkeypatch.setattr(Golden, "version", "2")
    assert golden.main() == 0
    assert one.stored() == {"version": "2", "cases": changed}
