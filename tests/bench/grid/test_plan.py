"""Plans: combinations, invalid values, and the names of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from augmask.errors import AugMaskError, UsageError
from augmask_bench.plan import read_plan

SMALL = """
ratios = [0.3, 0.7]
seeds = [0, 1]
[[datasets]]
name = "clinic"
rows = 100
[[methods]]
generator = "cdtd"
preset = "fast"
"""
SHIPPED = {
    "smoke": 32,
    "laptop": 168,
    "main-table": 84,
    "main-table-third": 84,
    "main-table-small": 84,
    "complete": 8,
    "paper-mcar": 810,
    "paper-mar": 810,
    "augmenters": 522,
    "misspecification": 300,
    "completions": 84,
    "paper-setting": 104,
    "p60": 1260,
    "p60-oracles": 72,
    "p60-full": 54,
}


def names(path) -> list[str]:
    return [run.name for run in read_plan(path).runs]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_plans_can_be_read(name):
    folder = Path(__file__).parents[3] / "benchmarks"
    plan = read_plan(folder / f"{name}.toml")
    assert len(plan.runs) == SHIPPED[name]
    assert len({run.name for run in plan.runs}) == len(plan.runs)
    assert {p.stem for p in folder.glob("*.toml")} == SHIPPED.keys()


def test_lists_are_combined_and_blocks_stay_together(write_plan):
    plan = read_plan(
        write_plan(
            """
mechanisms = ["mcar", "mar"]
ratios = [0.3, 0.7]
datasets = ["clinic", "clinic-stay"]
[[methods]]
generator = ["cdtd", "tabddpm"]
strategy = ["AugFull", "AugMask"]
augmenter = ["ecdf", "lgbm-s"]
preset = "fast"
[[methods]]
generator = "fill"
augmenter = ["mean", "lgbm-d"]
"""
        )
    )
    assert len(plan.methods) == 2 * 2 * 2 + 2
    assert len(plan.runs) == 2 * 2 * 2 * 10
    blocks = [run.block for run in plan.runs]
    # a block ends before the next one begins
    assert len({b: i for i, b in enumerate(blocks)}) == 8
    assert blocks == sorted(blocks, key=blocks.index)
    assert plan.runs[0].source.name == "clinic"


def test_names_follow_content_and_nothing_else(write_plan):
    before = names(write_plan(SMALL))
    same = [
        SMALL.replace("seeds", "keep = true\nseeds"),
        SMALL.replace("[[datasets]]", "# a remark\n[[datasets]]"),
        SMALL.replace("[0.3, 0.7]", "[0.3, 0.70]"),
        SMALL + 'strategy = ["NoAug", "AugFull", "AugMask"]\n',
    ]
    for text in same:
        assert names(write_plan(text)) == before
    for old, new in [
        ("rows = 100", "rows = 101"),
        ("clinic", "clinic-stay"),
        ("seeds = [0, 1]", "seeds = [2, 3]"),
        ("[0.3, 0.7]", "[0.2, 0.8]"),
        ('preset = "fast"', 'preset = "balanced"'),
        ('preset = "fast"', 'preset = "fast"\noptions = { steps = 5 }'),
        ("seeds", "metrics = { rows = 50 }\nseeds"),
        ("seeds", 'mechanisms = ["mar"]\nseeds'),
        ("seeds", "max_minutes = 3\nseeds"),
        ("cdtd", "tabddpm"),
    ]:
        assert not set(names(write_plan(SMALL.replace(old, new)))) & set(before), new
    # the MAR variant matters for MAR only
    assert names(write_plan('mar = "diffputer"\n' + SMALL)) == before
    # more seeds keep the existing runs
    more = names(write_plan(SMALL.replace("[0, 1]", "[0, 1, 2]")))
    assert set(before) < set(more)


def test_a_method_may_have_a_limit_of_time_of_its_own(write_plan):
    text = (
        SMALL + 'max_minutes = 5\n[[methods]]\ngenerator = "fill"\naugmenter = "mean"'
    )
    limits = {
        run.method.label: run.max_minutes for run in read_plan(write_plan(text)).runs
    }
    assert limits.pop("fill: Mean") is None
    assert set(limits.values()) == {5.0}
    # named as if the plan said so
    plan = names(write_plan("max_minutes = 5\n" + SMALL))
    assert names(write_plan(SMALL + "max_minutes = 5\n")) == plan
    assert not set(plan) & set(names(write_plan(SMALL)))


def test_paths_are_relative_to_the_plan(write_plan, own_table, monkeypatch, tmp_path):
    plan = write_plan(
        '[[datasets]]\npath = "mine.csv"\ntarget = "grade"\n'
        '[[methods]]\ngenerator = "cheap"\n'
    )
    monkeypatch.chdir("/")
    (run,) = read_plan(plan).runs
    assert run.source.name == "mine"
    assert run.source.path == str(own_table)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds", "sedes", "a plan has no key 'sedes'; did you mean 'seeds'"),
        ("rows", "row", "a dataset of the plan has no key 'row'; did you mean 'rows'"),
        ("preset", "prest", "a method of the plan has no key 'prest'"),
        ("cdtd", "ctdt", "did you mean 'cdtd'"),
        ("clinic", "clinik", "did you mean 'clinic'"),
        ("[0.3, 0.7]", "[0.3, 1.7]", "below 1"),
        ("[0.3, 0.7]", '["much"]', "ratios must be a number"),
        ("[0, 1]", "[0.5]", "seeds must be a whole number"),
        ("[0, 1]", "[]", "seeds must not be an empty list"),
        ("seeds", 'mechanisms = ["mcra"]\nseeds', "did you mean 'mcar'"),
        ("seeds", 'mar = "equl"\nseeds', "did you mean 'equal'"),
        ("seeds", "metrics = { row = 3 }\nseeds", r"\[metrics\] has no key 'row'"),
        (
            "[[methods]]",
            '[[datasets]]\nname = "clinic"\n[[methods]]',
            "must be unique in a plan",
        ),
        ("preset", 'label = "x"\npreset', "is for one method"),
        ('"cdtd"', '["cdtd"', "not valid TOML"),
        ('preset = "fast"', 'supervise = "all"', "needs a name for its strategy"),
        ('preset = "fast"', "options = { steps = [1] }", "steps must be a whole"),
        ('generator = "cdtd"', "", "needs a generator"),
        ('name = "clinic"', "", "needs a name or a path"),
        ("[0, 1]", "[-1]", "seeds must be at least 0, got -1"),
        ("seeds", "max_minutes = -1\nseeds", "max_minutes must be above 0"),
        ("seeds", "metrics = { rows = 0 }\nseeds", "must be at least 50, got 0"),
        ("seeds", "metrics = { trend = 5 }\nseeds", "trend must be text, got 5"),
        (
            '"fast"',
            '"fast"\naugmenter = "lgbm-s"\neta = 5',
            "eta must be between",
        ),
        ('"fast"', '"fast"\naugmenter = "lgbm-s"\nlam = -1', "lam must be finite and"),
        ('"fast"', '"fast"\naugmenter = "lgbm-s"\neta = nan', "eta must be between"),
        ("rows = 100", "drop = [1]", "drop must be text, got 1"),
        ("rows = 100", "kinds = { age = 3 }", "age must be text, got 3"),
        ("rows = 100", "kinds = { age = [1] }", r"age must be text, got \[1\]"),
        (
            '"clinic"',
            '"../x"\npath = "plan.toml"\ntarget = "y"',
            "files are named by it",
        ),
    ],
)
def test_mistakes_are_one_sentence(write_plan, old, new, message):
    assert old in SMALL
    with pytest.raises(AugMaskError, match=message) as caught:
        read_plan(write_plan(SMALL.replace(old, new, 1)))
    assert "Traceback" not in str(caught.value)


def test_the_same_method_does_not_run_under_two_labels(write_plan):
    twice = SMALL + (
        '[[methods]]\ngenerator = "cdtd"\nstrategy = "AugFull"\naugmenter = "mean"\n'
        'preset = "fast"\n'
    )
    with pytest.raises(UsageError, match=r"'CDTD \+ NoAug' and .* are the same"):
        read_plan(write_plan(twice))


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("[1]", "modules must be text, got 1"),
        ('["nosuch"]', "cannot load the module nosuch of the plan"),
        ('["nosuch.py"]', "no such file"),
        ('["broken.py"]', "cannot load .*broken.py of the plan .ValueError: oh"),
    ],
)
def test_modules_that_cannot_be_loaded(tmp_path, modules, message):
    (tmp_path / "broken.py").write_text("raise ValueError('oh')\n")
    path = tmp_path / "plan.toml"
    path.write_text(f"modules = {modules}\n{SMALL}")
    with pytest.raises(AugMaskError, match=message):
        read_plan(path)


def test_a_module_may_define_dataclasses(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from augmask_bench.generators import Generator, Generated\n"
        "from augmask_bench.methods import register\n"
        "@dataclass\nclass Size:\n    n: int = 1\n"
        "register(Generator('mine', 'Mine', lambda r: Generated(r.table)))\n"
    )
    path = tmp_path / "plan.toml"
    path.write_text('modules = ["mine.py"]\n' + SMALL.replace("cdtd", "mine"))
    assert len(read_plan(path).runs) == 4
