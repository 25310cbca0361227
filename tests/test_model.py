from __future__ import annotations

import dataclasses
import inspect
import io
import json
import re
import signal
import sys
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

import augmask
from augmask import AugMask, fit_many, load
from augmask.augmentation import AUGMENTERS
from augmask.augmentation.marginal import Ecdf
from augmask.container import read_container
from augmask.diffusion import BACKBONES
from augmask.diffusion.cdtd import CDTD
from augmask.errors import (
    ArtifactError,
    AugMaskError,
    AugMaskWarning,
    DataError,
    UsageError,
)
from augmask.presets import PRESETS

TINY = {
    "steps": 20,
    "width": 16,
    "depth": 1,
    "time_width": 8,
    "batch_size": 32,
    "sampling_steps": 4,
    "warmup": 5,
}


def make_model(**changes) -> AugMask:
    options = TINY | changes.pop("options", {})
    parameters = {"augmenter": "ecdf", "preset": "fast", "device": "cpu"} | changes
    return AugMask(options=options, **parameters)


def make_frame(n: int = 80, missing: float = 0.2) -> pd.DataFrame:
    """Return every learned kind of column, with missing values."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "kg": rng.normal(70, 12, n).round(1),
            "when": pd.Timestamp("2021-03-01")
            + pd.to_timedelta(rng.integers(0, 400, n), "D"),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "grade": pd.Categorical(
                rng.choice(["low", "high"], n), ["low", "mid", "high"], ordered=True
            ),
            "smokes": rng.random(n) < 0.3,
        }
    )
    return frame.mask(rng.random(frame.shape) < missing)


COMPLETE = {
    "age": "int64",
    "kg": "float64",
    "job": str(pd.Series(["text"]).dtype),
    "grade": "category",
    "smokes": "bool",
}


# -- conventions -------------------------------------------------------------------


def test_parameters_are_kept_as_given_and_cloned():
    options = {"steps": 3}
    model = AugMask(augmenter="mean", supervise="all", options=options, seed=5)
    assert model.get_params()["options"] is options
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert twin.set_params(seed=6).seed == 6
    # nonsense is only an error when it is used
    assert AugMask(preset="no such", seed=-1).preset == "no such"


def test_fit_returns_self_and_leaves_parameters_and_data_alone():
    frame = make_frame()
    kept = frame.copy()
    model = make_model()
    before = dict(model.get_params())
    assert model.fit(frame) is model
    assert model.get_params() == before
    pd.testing.assert_frame_equal(frame, kept)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, _: model.sample(3),
        lambda model, _: model.sample_batches(3),
        lambda model, path: model.sample_to(path / "x.csv", 3),
        lambda model, path: model.save(path / "x.augmask"),
    ],
)
def test_nothing_works_before_fit(use, tmp_path):
    with pytest.raises(NotFittedError, match="call fit first"):
        use(make_model(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "positional"),
    [
        (AugMask.fit, ["self", "data"]),
        (AugMask.sample, ["self", "n"]),
        (AugMask.sample_batches, ["self", "n"]),
        (AugMask.sample_to, ["self", "path", "n"]),
        (AugMask.impute, ["self", "data"]),
        (load, ["path"]),
        (fit_many, ["models", "tables"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_options_are_keywords(function, positional):
    parameters = inspect.signature(function).parameters.values()
    assert positional == [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]


def test_the_tags_say_what_the_model_accepts():
    tags = get_tags(AugMask())
    inputs = tags.input_tags
    assert inputs.allow_nan
    assert inputs.categorical
    assert inputs.string
    assert inputs.two_d_array
    assert not inputs.sparse
    assert not tags.target_tags.required
    assert not tags.non_deterministic
    assert tags.requires_fit


def test_every_public_name_is_there():
    assert len(set(augmask.__all__)) == len(augmask.__all__)
    for name in augmask.__all__:
        assert getattr(augmask, name).__name__ == name
    for error in ("UsageError", "DataError", "SchemaError", "ConditionError"):
        assert issubclass(getattr(augmask, error), augmask.AugMaskError)
    with pytest.raises(AttributeError, match="no attribute 'AugMsk'"):
        _ = augmask.AugMsk


def test_a_second_fit_forgets_the_first():
    model = make_model().fit(make_frame()[["job"]])
    model.fit(make_frame())
    once = make_model().fit(make_frame())
    pd.testing.assert_frame_equal(model.sample(20), once.sample(20))


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.sample(0),
        lambda model: model.sample(-1),
        lambda model: model.sample(2.5),
        lambda model: model.sample(True),
        lambda model: model.sample(3, seed=-1),
        lambda model: model.sample_batches(0),
    ],
)
def test_impossible_numbers_of_rows_and_seeds(call):
    model = make_model().fit(make_frame())
    with pytest.raises(UsageError, match="whole number of at least"):
        call(model)


# -- what comes out ------------------------------------------------------------

PARTS = {
    "one number": ["kg"],
    "one whole number": ["age"],
    "one category": ["job"],
    "one flag": ["smokes"],
    "one date": ["when"],
    "numbers": ["age", "kg", "when"],
    "categories": ["job", "grade", "smokes"],
    "everything": ["smokes", "age", "job", "kg", "grade", "when"],
}


@pytest.mark.parametrize("columns", PARTS.values(), ids=PARTS.keys())
def test_complete_rows_of_the_right_types(columns):
    frame = make_frame()[columns]
    rows = make_model().fit(frame).sample(50, seed=3)
    assert rows.columns.tolist() == columns
    assert len(rows) == 50
    assert rows.index.tolist() == list(range(50))
    assert not rows.isna().any().any()
    for name in columns:
        assert str(rows[name].dtype) == COMPLETE.get(name, str(frame[name].dtype))
        if name in ("age", "kg", "when"):
            assert rows[name].between(frame[name].min(), frame[name].max()).all()
        else:
            assert set(rows[name]) <= set(frame[name].dropna())


def test_a_complete_table_is_learned_too():
    frame = make_frame(missing=0)
    rows = make_model(augmenter="lgbm-s").fit(frame).sample(20)
    assert rows.dtypes.equals(frame.dtypes)


@pytest.mark.parametrize("augmenter", ["zero", "mean", "noise", "mice", "lgbm-s"])
@pytest.mark.parametrize("supervise", ["observed", "all"])
def test_every_strategy_gives_complete_rows(augmenter, supervise):
    model = make_model(augmenter=augmenter, supervise=supervise)
    rows = model.fit(make_frame()).sample(30)
    assert not rows.isna().any().any()
    assert set(rows["job"]) <= {"cook", "smith", "clerk"}


def test_missing_values_that_are_a_level_are_generated():
    frame = make_frame(200, missing=0.5)[["kg", "job", "age", "smokes"]]
    enough = {"steps": 300, "lr": 3e-3, "ema": 0.98, "sampling_steps": 20}
    enough |= {"width": 64, "time_width": 32, "batch_size": 128}
    kept = {"kg": {"missing_as": "level"}, "job": {"missing_as": "level"}}
    share = make_model(options=enough).fit(frame, schema=kept).sample(300).isna().mean()
    # about half; five seeds gave 0.46 to 0.55
    assert share[["kg", "job"]].between(0.3, 0.7).all()
    assert (share[["age", "smokes"]] == 0).all()


def test_sampling_in_batches_gives_the_same_rows(tmp_path):
    model = make_model(options={"sampling_batch": 16}).fit(make_frame())
    whole = model.sample(50, seed=9)
    pieces = list(model.sample_batches(50, seed=9, progress=True))
    assert [len(piece) for piece in pieces] == [16, 16, 16, 2]
    pd.testing.assert_frame_equal(pd.concat(pieces, ignore_index=True), whole)
    assert model.sample_to(tmp_path / "rows.parquet", 50, seed=9) == 50
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), whole)


def test_identifiers_continue_over_batches():
    frame = make_frame().assign(id=[f"P{i:04d}" for i in range(80)])
    model = make_model(options={"sampling_batch": 16})
    with pytest.warns(AugMaskWarning, match="'id'"):
        model.fit(frame)
    fresh = model.sample(50)["id"]
    assert fresh.is_unique
    assert not set(fresh) & set(frame["id"])
    assert fresh.str.fullmatch(r"P\d{4}").all()


def test_each_warning_is_given_once():
    frame = make_frame().assign(id=range(80), country="DE")
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        make_model().fit(frame)
    ours = [str(w.message) for w in record if w.category is AugMaskWarning]
    assert len(ours) == len(record) == 2
    assert "'id'" in ours[0]
    assert "'country'" in ours[1]
    assert record[0].filename == __file__


# -- what goes in --------------------------------------------------------------


def test_every_kind_of_table_gives_the_same_rows(tmp_path):
    frame = make_frame()[["kg", "job", "when"]]
    frame.to_parquet(tmp_path / "t.parquet")
    sources = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "lazy": pl.from_pandas(frame).lazy(),
        "arrow": pa.Table.from_pandas(frame),
        "path": tmp_path / "t.parquet",
        "text": str(tmp_path / "t.parquet"),
    }
    rows = {
        name: make_model().fit(data).sample(20, output="pandas")
        for name, data in sources.items()
    }
    for name, sampled in rows.items():
        pd.testing.assert_frame_equal(
            sampled, rows["pandas"], check_dtype=name in ("pandas", "path", "text")
        )


def test_integers_and_booleans_with_missing_values_agree_over_libraries():
    frame = make_frame()[["age", "smokes"]]
    nullable = frame.astype({"age": "Int64", "smokes": "boolean"})
    expected = make_model().fit(frame).sample(20)
    for data in (pl.from_pandas(nullable), pa.Table.from_pandas(nullable)):
        rows = make_model().fit(data).sample(20, output="pandas")
        pd.testing.assert_frame_equal(rows, expected)
    # the owner of a pandas frame has chosen these types
    kept = make_model().fit(nullable).sample(20)
    pd.testing.assert_frame_equal(kept, expected.astype(nullable.dtypes))


@pytest.mark.parametrize("kind", ["polars", "lazy", "arrow"])
def test_rows_come_as_the_table_did_also_from_a_file(tmp_path, kind):
    frame = pl.from_pandas(make_frame()).with_columns(
        pl.col("when").cast(pl.Date), pl.col("age").cast(pl.Int16)
    )
    if kind == "arrow":
        frame = frame.to_arrow()
    model = make_model().fit(frame.lazy() if kind == "lazy" else frame)
    rows = model.sample(20)
    assert type(rows) is type(frame)
    names = ["age", "kg", "when"]
    types = [rows.schema.field(n).type if kind == "arrow" else rows[n].dtype
             for n in names]  # fmt: skip
    assert types == [
        frame.schema.field(n).type if kind == "arrow" else frame[n].dtype for n in names
    ]
    assert all(type(batch) is type(frame) for batch in model.sample_batches(20))
    incomplete = model.sample(20, missing="learned", where="age is missing")
    incomplete = incomplete if kind != "arrow" else pl.from_arrow(incomplete)
    assert incomplete["age"].null_count() == 20
    assert incomplete["age"].dtype == pl.Int16
    model.save(tmp_path / "m.augmask")
    twin = load(tmp_path / "m.augmask")
    assert twin.sample(20).equals(rows)
    assert isinstance(twin.sample(2, output="pandas"), pd.DataFrame)
    twin.save(tmp_path / "again.augmask")
    assert (tmp_path / "again.augmask").read_bytes() == (
        tmp_path / "m.augmask"
    ).read_bytes()


def test_another_kind_of_rows_can_be_asked_for():
    model = make_model().fit(make_frame())
    expected = model.sample(9, seed=1)
    assert isinstance(expected, pd.DataFrame)
    polars = model.sample(9, seed=1, output="polars")
    assert polars["kg"].to_list() == expected["kg"].tolist()
    assert isinstance(model.sample(9, output="arrow"), pa.Table)
    for wrong in (model.sample, model.sample_batches):
        with pytest.raises(UsageError, match="'polar'; did you mean 'polars'"):
            wrong(9, output="polar")


# -- the stream of calls without a seed ------------------------------------------


def test_calls_without_a_seed_give_new_rows_that_a_script_can_repeat(tmp_path):
    frame = make_frame()
    model = make_model(seed=4).fit(frame)

    def calls(model: AugMask) -> list[pd.DataFrame]:
        model.sample_to(tmp_path / "rows.csv", 9)
        return [
            model.sample(9),
            model.sample(9),
            next(model.sample_batches(9)),
            model.sample(9, where="age > 30"),
            pd.read_csv(tmp_path / "rows.csv"),
            model.impute(frame),
            model.impute(frame),
        ]

    rows = calls(model)
    numbers = [one["kg"].tolist() for one in rows]
    assert all(a != b for i, a in enumerate(numbers) for b in numbers[:i])
    # after a fit and after a load the stream begins anew
    model.save(tmp_path / "m.augmask")
    for same in (make_model(seed=4).fit(frame), load(tmp_path / "m.augmask")):
        for one, other in zip(rows, calls(same), strict=True):
            pd.testing.assert_frame_equal(one, other)
    # the stream is no part of the file
    model.save(tmp_path / "later.augmask")
    assert (tmp_path / "later.augmask").read_bytes() == (
        tmp_path / "m.augmask"
    ).read_bytes()


def test_the_first_call_is_seed_0_and_seeds_do_not_move_the_stream():
    frame = make_frame()
    model = make_model().fit(frame)
    second = make_model().fit(frame)
    pd.testing.assert_frame_equal(model.sample(9), second.sample(9, seed=0))
    pd.testing.assert_frame_equal(second.sample(9), second.sample(9, seed=0))
    # nor does a call that fails
    for wrong in ({"n": 0}, {"n": 9, "where": "agee > 3"}, {"n": 9, "missing": "x"}):
        with pytest.raises(UsageError):
            second.sample(**wrong)
    pd.testing.assert_frame_equal(model.sample(9), second.sample(9))


# -- progress and interrupts -----------------------------------------------------


class Terminal(io.StringIO):
    """Standard error that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("progress", "shown"), [(None, True), ("auto", True), (False, False)]
)
def test_a_terminal_shows_a_bar_and_what_was_chosen(progress, shown, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    make_model().fit(make_frame(), progress=progress)
    text = screen.getvalue()
    line = "preset fast: cdtd, 20 steps, missing values filled by ecdf"
    assert (line in text) is shown
    assert ("20/20" in text) is shown


def test_nothing_is_shown_where_no_one_looks(capsys):
    model = make_model().fit(make_frame())
    model.sample(9)
    screen = capsys.readouterr()
    assert (screen.out, screen.err) == ("", "")


def test_the_choice_is_in_the_log_and_a_function_is_called(caplog):
    reports = []
    with caplog.at_level("INFO", "augmask"):
        make_model(ensemble=2).fit(
            make_frame(), progress=lambda *report: reports.append(report[:3])
        )
    assert "preset fast: 2 networks cdtd, 20 steps each" in caplog.text
    assert reports[-1] == ("train", 40, 40)


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt, which a shell's background jobs ignore."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_fit_saves_a_checkpoint_and_resumes(
    name, tmp_path, monkeypatch, interruptible
):
    monkeypatch.setattr("augmask.train.loop.REPORT_SECONDS", 0.0)
    options = {"steps": 400, "sampling_steps": 4}
    path = tmp_path / "run.checkpoint"

    def interrupt(phase, done, total, numbers):
        if phase == "train" and done >= 230:
            signal.raise_signal(getattr(signal, name))

    model = make_model(options=options)
    stop = {"SIGINT": KeyboardInterrupt, "SIGTERM": SystemExit}[name]
    handler = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with pytest.raises(stop) as stopped:
            model.fit(make_frame(), checkpoint=path, progress=interrupt)
    finally:
        signal.signal(signal.SIGTERM, handler)
    (note,) = stopped.value.__notes__
    assert f"up to step 200 is in {path}; to resume it" in note
    assert not hasattr(model, "backbone_")
    resumed = model.fit(make_frame(), checkpoint=path)
    whole = make_model(options=options).fit(make_frame())
    pd.testing.assert_frame_equal(resumed.sample(20), whole.sample(20))


def test_an_interrupt_without_a_checkpoint_says_that_nothing_was_saved(
    tmp_path, monkeypatch, interruptible
):
    monkeypatch.setattr("augmask.train.loop.REPORT_SECONDS", 0.0)

    def interrupt(phase, done, total, numbers):
        if phase == "train":
            signal.raise_signal(signal.SIGINT)

    model = make_model(options={"steps": 10**6})
    for checkpoint in (None, tmp_path / "run.checkpoint"):
        with pytest.raises(KeyboardInterrupt) as stopped:
            model.fit(make_frame(), checkpoint=checkpoint, progress=interrupt)
        (note,) = stopped.value.__notes__
        assert "nothing was saved" in note
    assert not (tmp_path / "run.checkpoint").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_integer_names_stay_integers(tmp_path):
    frame = make_frame()[["age", "job"]].set_axis([0, 1], axis=1)
    model = make_model().fit(frame)
    assert model.sample(3).columns.tolist() == [0, 1]
    model.save(tmp_path / "m.augmask")
    assert load(tmp_path / "m.augmask").sample(3).columns.tolist() == [0, 1]


def flat(model) -> dict:
    """Return all settings of a fitted model as options."""
    settings = dataclasses.asdict(model.settings_)
    return settings | settings.pop("network")


def test_an_augmenter_object_a_backbone_class_and_a_module():
    named = make_model().fit(make_frame())
    options = flat(named)
    custom = make_model(augmenter=Ecdf(), backbone=CDTD, options=options)
    pd.testing.assert_frame_equal(custom.fit(make_frame()).sample(20), named.sample(20))
    # a module is copied: what the user holds stays as it was
    module = CDTD(named.layout_, width=8, depth=1)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    kept = {k: v for k, v in options.items() if k not in named.settings_.network}
    own = AugMask(module, "ecdf", preset="fast", options=kept, device="cpu")
    own.fit(make_frame())
    assert not own.sample(20).isna().any().any()
    assert own.backbone_ is not module
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_model_with_custom_parts_is_saved_and_loaded(tmp_path):
    path = tmp_path / "m.augmask"
    options = {"steps": 5, "width": 8, "depth": 1}
    model = make_model(augmenter=Ecdf(), backbone=CDTD, options=options)
    model.fit(make_frame()).save(path)
    with pytest.raises(UsageError, match=r"custom backbone CDTD, .*backbone=\.\.\."):
        load(path)
    again = load(path, backbone=CDTD)
    pd.testing.assert_frame_equal(again.sample(20), model.sample(20))
    with pytest.raises(UsageError, match="unknown augmenter 'custom:Ecdf'"):
        again.fit(make_frame())
    make_model().fit(make_frame()).save(path)
    with pytest.raises(UsageError, match="augmask's backbone 'cdtd'; load it without"):
        load(path, backbone=CDTD)


class NoBackbone(torch.nn.Module):
    def __init__(self, *_, **__):
        super().__init__()


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (NoBackbone, "NoBackbone lacks cell_loss, sample"),
        (3, "a name, a class, or a module with the methods cell_loss and sample"),
    ],
)
def test_an_object_that_is_no_backbone_is_told_what_it_lacks(backbone, message):
    with pytest.raises(UsageError, match=message):
        make_model(backbone=backbone, options={"steps": 2}).fit(make_frame())


def test_the_docstring_names_every_augmenter_backbone_and_preset():
    for name in ["auto", *AUGMENTERS, *BACKBONES, *PRESETS]:
        assert re.search(rf"[`\"]{name}[`\"]", AugMask.__doc__), name


WRONG = {
    "augmenter like no other": (
        {"augmenter": "xyz"},
        f"known: auto, .*{next(iter(AUGMENTERS))}, ",
    ),
    "auto, nearly": ({"augmenter": "atuo"}, "did you mean 'auto'"),
    "augmenter": ({"augmenter": "lgbms"}, "did you mean 'lgbm-s'"),
    "backbone": ({"backbone": "ctdt"}, "did you mean 'cdtd'"),
    "supervise": ({"supervise": "obsreved"}, "did you mean 'observed'"),
    "preset": ({"preset": "fsat"}, "did you mean 'fast'"),
    "option": ({"options": {"stpes": 3}}, "did you mean 'steps'"),
    "keyword of another backbone": (
        {"backbone": "tabddpm", "options": {"low_noise": 3.0}},
        "no setting 'low_noise'",
    ),
    "width below 1": ({"options": {"width": -1}}, "width must be a whole number of"),
    "width as text": ({"options": {"width": "64"}}, "width must be .* got '64'"),
    "infinite depth": ({"options": {"depth": float("inf")}}, "depth must be a whole"),
    "no depth": ({"options": {"depth": 0}}, "depth must be .* at least 1 .* got 0"),
    "boolean as text": (
        {"backbone": "tabdiff", "options": {"anneal": "false"}},
        "anneal must be true or false, got 'false'",
    ),
    "solver": ({"options": {"solver": "heun"}}, "'euler', 'dpmpp_2m'"),
    "too many sampling steps": (
        {"backbone": "tabddpm", "options": {"sampling_steps": 2000}},
        "steps must be between 1 and 1000",
    ),
    "too few sampling steps": (
        {"backbone": "tabdiff", "options": {"sampling_steps": 1}},
        "steps must be at least 2 for TabDiff",
    ),
    "device": ({"device": "gpu"}, "must be 'auto', 'cpu', 'cuda' or 'mps'"),
    "absent device": ({"device": "xpu"}, "not available on this machine"),
    "seed": ({"seed": 1.5}, "seed must be a whole number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameters_are_errors_before_any_work(name, monkeypatch):
    changes, message = WRONG[name]

    def never(*args):
        raise AssertionError("the table was read")

    monkeypatch.setattr("augmask.prepare.read_frame", never)
    with pytest.raises(UsageError, match=message):
        make_model(**changes).fit(make_frame())


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match=r"'cuda' is not available.*'auto'"):
        make_model(device="cuda").fit(make_frame())


@pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")
@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (make_frame(9), "at least 10 rows"),
        (pd.DataFrame({"a": [None] * 20}), "no column can be learned"),
        (pd.DataFrame({"a": [1.0] * 20}), "no column can be learned"),
    ],
)
def test_tables_without_anything_to_learn(frame, message):
    with pytest.raises(DataError, match=message):
        make_model().fit(frame)


# -- budgets -------------------------------------------------------------------


def test_the_history_follows_the_training():
    model = make_model(options={"steps": 120, "validation_fraction": 0.1}).fit(
        make_frame()
    )
    history = model.history_
    names = ["step", "loss", "held_out", "lr", "seconds"]
    assert history.columns.tolist()[:5] == names
    assert history["step"].tolist() == [100, 120]
    assert np.isfinite(history[["loss", "lr", "seconds"]]).all().all()
    assert np.isfinite(history["held_out"].iloc[-1])
    assert model.training_["stopped"] == "steps"
    assert 0 < model.training_["best_step"] <= 120


def test_max_minutes_ends_the_training():
    began = time.monotonic()
    model = make_model(options={"steps": 10**8, "patience": 0})
    model.fit(make_frame(), max_minutes=1.5 / 60)
    assert time.monotonic() - began < 6
    assert model.training_["stopped"] == "time"
    assert 0 < model.history_["step"].iloc[-1] < 10**8
    assert not model.sample(5).isna().any().any()


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), 1e-9])
def test_too_little_time_is_an_error(minutes):
    model = make_model()
    with pytest.raises(UsageError, match="max_minutes"):
        model.fit(make_frame(), max_minutes=minutes)
    assert not hasattr(model, "backbone_")


def test_a_budget_of_less_than_a_step_is_an_error(monkeypatch):
    monkeypatch.setattr("augmask.train.loop._Budget.fraction_used", lambda *_: 1.0)
    with pytest.raises(UsageError, match="before the first training step"):
        make_model().fit(make_frame(), max_minutes=1)


def test_a_run_shorter_than_one_evaluation_has_a_history(monkeypatch):
    monkeypatch.setattr(
        "augmask.train.loop._Budget.fraction_used", lambda _, step: min(step / 7, 1.0)
    )
    model = make_model(options={"validation_fraction": 0.1}).fit(
        make_frame(), max_minutes=1
    )
    assert model.history_["step"].tolist() == [7]
    assert np.isfinite(model.history_.to_numpy()).all()


# -- files ---------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "best", "balanced", "fast"])
def test_auto_is_the_papers_augmenter_and_the_file_names_it(tmp_path, preset):
    expected = "lgbm-s"
    tiny = {"steps": 2, "batch_size": 32, "width": 8, "depth": 1, "time_width": 8}
    model = AugMask(preset=preset, options=tiny, device="cpu")
    model.fit(make_frame())
    assert (model.augmenter, model.augmenter_) == ("auto", expected)
    model.save(tmp_path / "m.augmask")
    assert load(tmp_path / "m.augmask").augmenter_ == expected
    same = AugMask(augmenter=expected, preset=preset, options=tiny, device="cpu")
    same.fit(make_frame())
    pd.testing.assert_frame_equal(same.sample(20), model.sample(20))


@pytest.mark.parametrize("augmenter", ["ecdf", "zero"])
def test_a_loaded_model_is_the_model(tmp_path, augmenter):
    path = tmp_path / "m.augmask"
    frame = make_frame().assign(id=range(80))
    model = make_model(augmenter=augmenter, seed=4)
    with pytest.warns(AugMaskWarning):
        model.fit(frame, schema={"kg": {"missing_as": "level"}})
    model.save(path)
    twin = load(path)
    pd.testing.assert_frame_equal(twin.sample(40, seed=2), model.sample(40, seed=2))
    assert twin.schema_ == model.schema_
    assert twin.settings_ == model.settings_
    assert (twin.preset_, twin.seed, twin.augmenter) == ("fast", 4, augmenter)
    kept = model.history_.drop(columns="seconds")
    pd.testing.assert_frame_equal(twin.history_[list(kept)], kept)
    twin.save(tmp_path / "again.augmask")
    assert (tmp_path / "again.augmask").read_bytes() == path.read_bytes()


@pytest.mark.filterwarnings("ignore:a table of 80 rows is very small")
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"augmenter": "auto", "preset": "auto", "options": TINY},
        {"preset": "balanced", "augmenter": "ecdf", "options": TINY | {"lr": 0.004}},
        {"augmenter": "mean", "supervise": "all", "seed": 3, "options": TINY},
        {"augmenter": "ecdf", "ensemble": 2, "options": TINY | {"low_noise": 5}},
        {
            "backbone": "tabdiff",
            "augmenter": "ecdf",
            # what numpy counts is as good
            "seed": np.int64(2),
            "options": TINY | {"anneal": np.False_, "batch_size": np.int64(16)},
        },
    ],
    ids=["plain", "auto", "balanced", "all", "ensemble", "tabdiff"],
)
def test_a_loaded_model_has_its_parameters(parameters, tmp_path, monkeypatch):
    if "options" not in parameters:
        # the defaults are larger than a test should train
        monkeypatch.setattr("augmask.presets.SMALL_STEPS", ((10**6, 3),))
    path, frame = tmp_path / "m.augmask", make_frame()
    model = AugMask(**parameters, device="cpu").fit(frame)
    expected = model.get_params()
    model.save(path)
    # what is set later is for the next fit
    model.set_params(seed=99, preset="paper", options={"steps": 1}).save(path)
    twin = load(path, device="cpu")
    assert twin.get_params() == expected
    assert (twin.preset_, twin.augmenter_) == (model.preset_, model.augmenter_)
    again = clone(twin).fit(frame)
    assert again.settings_ == twin.settings_
    pd.testing.assert_frame_equal(again.sample(20), twin.sample(20))


FITTED = ["schema_", "settings_", "preset_", "augmenter_", "ensemble_", "history_"]
FITTED += ["training_", "missing_model_", "constraints_", "backbone_"]
FITTED += ["codec_", "layout_"]


def test_fit_and_load_set_the_documented_attributes(tmp_path):
    model = make_model().fit(make_frame())
    model.save(tmp_path / "m.augmask")
    twin = load(tmp_path / "m.augmask", device="cpu")
    for each in (model, twin):
        assert sorted(k for k in vars(each) if k.endswith("_")) == sorted(FITTED)
    for name in FITTED:
        assert re.search(rf"\b{name}\b", AugMask.__doc__), name


def test_several_models_are_fitted_as_each_alone():
    frames = [make_frame(), make_frame(60)]
    models = fit_many([make_model(seed=seed) for seed in (0, 1)], frames)
    for seed, (model, frame) in enumerate(zip(models, frames, strict=True)):
        single = make_model(seed=seed).fit(frame)
        pd.testing.assert_frame_equal(model.sample(20), single.sample(20))


def test_several_models_share_constraints_and_a_budget():
    frame = make_frame()[["age", "job"]].assign(later=lambda f: f["age"] + 1)
    models = [make_model(seed=seed, options={"steps": 10**8}) for seed in (0, 1)]
    started = time.monotonic()
    fit_many(models, [frame, frame], constraints=["age <= later"], max_minutes=2 / 60)
    assert time.monotonic() - started < 8
    for model in models:
        assert model.training_["stopped"] == "time"
        rows = model.sample(40)
        assert (rows["age"] <= rows["later"]).all()


@pytest.mark.parametrize(
    ("models", "tables", "message"),
    [(1, 2, "1 models and 2 tables"), ("same", 2, "a model occurs twice")],
)
def test_models_and_tables_must_go_together(models, tables, message):
    model = make_model()
    models = [model, model] if models == "same" else [model] * models
    with pytest.raises(UsageError, match=message):
        fit_many(models, [make_frame()] * tables)


def test_broken_weights_are_not_loaded(tmp_path):
    model = make_model().fit(make_frame())
    next(iter(model.backbone_.parameters())).data.fill_(float("nan"))
    model.save(tmp_path / "m.augmask")
    with pytest.raises(ArtifactError, match=r"weight .* is not finite"):
        load(tmp_path / "m.augmask")


def test_a_model_file_is_plain_and_holds_no_clock_times(tmp_path):
    make_model().fit(make_frame()).save(tmp_path / "m.augmask")
    manifest, arrays = read_container(tmp_path / "m.augmask", "model")
    assert manifest["parameters"]["augmenter"] == "ecdf"
    assert "seconds" not in json.dumps(manifest)
    assert "history/loss" in arrays
    assert "history/seconds" not in arrays


# -- ensembles -----------------------------------------------------------------


def test_the_first_of_an_ensemble_is_the_single_model(tmp_path):
    frame = make_frame()
    single = make_model().fit(frame)
    several = make_model(ensemble=3).fit(frame)
    first = several.history_.query("member == 0")["loss"].to_numpy()
    np.testing.assert_array_equal(first, single.history_["loss"].to_numpy())
    rows = several.sample(9, seed=1)
    assert len(np.unique(several.history_["loss"])) == 3
    several.save(tmp_path / "three.augmask")
    again = load(tmp_path / "three.augmask")
    assert again.ensemble == 3
    pd.testing.assert_frame_equal(again.sample(9, seed=1), rows)
    assert not again.impute(frame).isna().any().any()
    assert (again.sample(4, where={"job": "cook"})["job"] == "cook").all()


@pytest.mark.parametrize("members", [0, -1, 1.5, "two"])
def test_an_ensemble_has_a_whole_number_of_members(members):
    with pytest.raises(UsageError, match="ensemble must be a whole number"):
        make_model(ensemble=members).fit(make_frame())


def test_a_checkpoint_of_an_ensemble_is_refused(tmp_path):
    with pytest.raises(UsageError, match="a checkpoint holds one model"):
        make_model(ensemble=2).fit(make_frame(), checkpoint=tmp_path / "run")


def test_the_learned_warp_is_in_the_history_and_in_the_file(tmp_path):
    names = {
        f"warp_{what}_{kind}"
        for what in ("location", "steepness")
        for kind in ("num", "cat")
    }
    model = make_model(options={"steps": 250}).fit(make_frame())
    assert names <= set(model.history_)
    moved = model.history_["warp_location_num"]
    assert moved.nunique() == len(moved) > 1
    last = model.backbone_.warp.location.detach()
    model.save(tmp_path / "m.augmask")
    twin = load(tmp_path / "m.augmask")
    pd.testing.assert_series_equal(twin.history_["warp_location_num"], moved)
    # history has the latest weights, the model their average
    assert abs(moved.iloc[-1] - float(last[0])) < 1
    other = make_model(backbone="tabddpm").fit(make_frame())
    assert not names & set(other.history_)


UNWRITABLE = {
    "a NaN code": ({"x": {"na_values": [float("nan")]}}, {}, "column 'x'"),
    "an infinite code": ({"x": {"na_values": [1e400]}}, {}, "column 'x'"),
    "an infinite level": (
        {"y": {"levels": ["a", "b", 1e400]}},
        {},
        "column 'y': levels",
    ),
}


@pytest.mark.parametrize("case", UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_what_cannot_be_written_is_refused_before_training(case, monkeypatch):
    schema, options, named = case
    monkeypatch.setattr("augmask.model.train", lambda *_: pytest.fail("trained"))
    frame = pd.DataFrame({"x": [1.5, None, 2.5, 3] * 9, "y": ["a", "b", None, "b"] * 9})
    model = AugMask(augmenter="ecdf", preset="fast", options={"steps": 2} | options)
    with pytest.raises(AugMaskError, match=named):
        model.fit(frame, schema=schema)


@pytest.mark.parametrize("label", [float("nan"), float("inf"), True])
def test_labels_that_no_file_has_are_refused(label):
    frame = pd.DataFrame({"x": [1.5, None, 2.5, 3] * 9, "y": ["a", "b", None, "b"] * 9})
    frame.columns = pd.Index(["x", label], dtype=object)
    with pytest.raises(DataError, match="column names"):
        AugMask(augmenter="ecdf", preset="fast", options={"steps": 2}).fit(frame)


def test_parameters_of_numpy_are_written(tmp_path):
    frame = pd.DataFrame({"x": [1.5, None, 2.5, 3] * 9, "y": ["a", "b", None, "b"] * 9})
    model = AugMask(
        augmenter="ecdf",
        preset="fast",
        options={"steps": 2},
        seed=np.int64(3),
        ensemble=np.int64(1),
    )
    model.fit(frame).save(tmp_path / "m.augmask")
    assert load(tmp_path / "m.augmask").seed == 3


BOUNDS = {
    "n": lambda model: model.sample(10**12),
    "n_draws": lambda model: model.impute(pd.DataFrame({"x": [1.0]}), n_draws=10**9),
    "seed": lambda model: model.sample(1, seed=10**5000),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_that_no_machine_serves_are_refused(name):
    frame = pd.DataFrame({"x": [1.5, None, 2.5, 3] * 9, "y": ["a", "b", None, "b"] * 9})
    model = AugMask(augmenter="ecdf", preset="fast", options={"steps": 2}).fit(frame)
    with pytest.raises(UsageError, match=rf"{name} must be .* at most [\d,]+, got"):
        BOUNDS[name](model)


@pytest.mark.parametrize(
    ("options", "ensemble"),
    [({"batch_size": 10**9}, 1), ({"sampling_batch": 10**8}, 1), ({}, 10**6)],
)
def test_sizes_that_no_machine_serves_are_refused(options, ensemble):
    frame = pd.DataFrame({"x": [1.5, None, 2.5, 3] * 9, "y": ["a", "b", None, "b"] * 9})
    model = AugMask(augmenter="ecdf", options=options, ensemble=ensemble)
    with pytest.raises(UsageError, match="at most"):
        model.fit(frame)
