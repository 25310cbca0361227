"""The paper's baselines in the benchmark: presets, options, missing values, packages.

Those that need a package run where it is installed (`make test-baselines`); elsewhere
they are resulted as unable.
"""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

import augmask as am
from augmask.errors import UsageError
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask_bench.baselines.plain import unscaled_codec
from augmask_bench.data import Source, split
from augmask_bench.generators import BASELINES, Request, baseline_settings
from augmask_bench.methods import Method, complete_method, find_generator
from augmask_bench.peers import why_unusable
from augmask_bench.plan import read_plan
from augmask_bench.ranks import METRICS
from augmask_bench.results import sample_file
from augmask_bench.run import execute

HEAD = """
ratios = [0.4]
datasets = [{ name = "clinic-stay", rows = 150 }]
keep = true
"""
TINY = {
    "miwae": "epochs = 2, latent = 4, hidden = 8, k = 2",
    "missdiff": "epochs = 1, timesteps = 5, channels = 8, blocks = 1, drops = [0.5]",
    "diffputer": "iterations = 2, trials = 1, sampling_steps = 4, repeats = 2, "
    "units = 8, max_steps = 3",
    "forestdiff": "n_t = 3, duplicate_K = 1, n_estimators = 2",
    "tvae": "steps = 3, batch_size = 50, embedding_dim = 8, widths = [8]",
    "ctgan": "steps = 3, batch_size = 50, embedding_dim = 8, widths = [8]",
    "arf": "num_trees = 2, max_iters = 1",
    "tabsyn": "vae_steps = 3, steps = 3, units = 8, embedding = 8, sampling_steps = 4",
}
NAMES = [baseline.name for baseline in BASELINES]
LABELS = {
    "miwae": ["MIWAE"],
    "missdiff": ["MissDiff"],
    "diffputer": ["DiffPuter"],
    "forestdiff": ["ForestDiff"],
    "tvae": ["TVAE + NoAug", "TVAE + AugFull"],
    "ctgan": ["CTGAN + NoAug", "CTGAN + AugFull"],
    "arf": ["ARF + NoAug", "ARF + AugFull"],
    "tabsyn": ["TabSyn + NoAug", "TabSyn + AugFull"],
}


def entry(name: str, more: str = "") -> str:
    options = f"options = {{ {TINY[name]} }}\n"
    return f'[[methods]]\ngenerator = "{name}"\npreset = "small"\n{options}{more}'


@pytest.mark.parametrize("name", NAMES)
def test_a_baseline_completes_a_run_or_reports_what_is_missing(
    name, write_plan, tmp_path
):
    reason = find_generator(name).why_unavailable("cpu")
    runs = read_plan(write_plan(HEAD + entry(name))).runs
    assert [run.method.label for run in runs] == LABELS[name]
    # the last one is AugFull if there are strategies
    result = execute(runs[-1], tmp_path)
    if reason:
        assert (result["status"], result["reason"]) == ("unable", reason)
        return
    assert result["status"] == "done", result
    assert all(isinstance(result[metric], float) for metric in METRICS)
    assert result["device"] == "cpu"
    assert (result["augment_seconds"] > 0) == find_generator(name).complete
    json.dumps(result)
    rows = pd.read_parquet(sample_file(tmp_path, runs[-1]))
    assert len(rows) == 90
    assert rows.notna().all().all()
    again = execute(runs[-1], tmp_path)
    assert [again[m] for m in METRICS] == [result[m] for m in METRICS]


@pytest.fixture
def training_tables(monkeypatch):
    """Replace the fits of all baselines; return the tables that they receive."""
    tables = {}

    class Model:
        def __init__(self, table):
            self.table, self.facts = table, {}

        def sample(self, n, _seed):
            return self.table.num[:n], self.table.cat[:n]

    def fit_as(name):
        def fit(table, *_):
            tables[name] = table
            return Model(table)

        return fit

    for name in NAMES:
        module = {"forestdiff": "forest"}.get(name, name)
        monkeypatch.setattr(f"augmask_bench.baselines.{module}.fit", fit_as(name))
        monkeypatch.setattr("augmask_bench.generators.why_unusable", lambda _: "")
    return tables


def test_missing_aware_baselines_get_the_incomplete_table(
    write_plan, tmp_path, training_tables
):
    for run in read_plan(write_plan(HEAD + entry("miwae") + entry("tabsyn"))).runs:
        assert execute(run, tmp_path)["status"] == "done"
    missing = 1 - training_tables["miwae"].observed.mean()
    assert missing == pytest.approx(0.4, abs=0.02)
    assert training_tables["tabsyn"].observed.all()


def incomplete() -> tuple[pd.DataFrame, Codec]:
    """Return the training table of the runs of `HEAD`, and its codec."""
    data = Source("clinic-stay", rows=150).load()
    train, _ = split(data.frame, None, 0)
    frame = am.ampute(train, mechanism="mcar", ratio=0.4, seed=0)
    return frame, Codec.fit(frame, infer_schema(frame, data.kinds))


@pytest.mark.parametrize("name", ["tvae", "ctgan", "arf", "tabsyn"])
@pytest.mark.parametrize("strategy", ["NoAug", "AugFull"])
def test_an_augmented_table_is_scaled_by_observed_values(
    name, strategy, write_plan, tmp_path, training_tables
):
    more = f'strategy = "{strategy}"\n'
    (run,) = read_plan(write_plan(HEAD + entry(name, more))).runs
    result = execute(run, tmp_path)
    assert result["status"] == "done", result
    frame, codec = incomplete()
    table, observed = training_tables[name], codec.encode(frame)
    if name != "tabsyn":
        # these packages scale themselves; roles and levels come from the schema
        codec = unscaled_codec(codec.schema)
        observed = codec.encode(frame)
    assert table.layout == observed.layout
    here = observed.num_observed
    np.testing.assert_array_equal(table.num[here], observed.num[here])
    here = observed.cat_observed
    np.testing.assert_array_equal(table.cat[here], observed.cat[here])


def test_observed_numbers_have_unit_deviation_whatever_the_augmenter(
    write_plan, tmp_path, training_tables
):
    (run,) = read_plan(write_plan(HEAD + entry("tabsyn", 'strategy = "NoAug"\n'))).runs
    assert execute(run, tmp_path)["status"] == "done"
    frame, codec = incomplete()
    mask = codec.encode(frame).num_observed
    num = training_tables["tabsyn"].num
    for j in range(num.shape[1]):
        observed = num[mask[:, j], j]
        assert observed.std() == pytest.approx(1)
        # NoAug augments with the mean
        assert num[~mask[:, j], j] == pytest.approx(observed.mean())


@pytest.mark.parametrize("name", NAMES)
def test_presets_are_those_of_the_baseline_s_module(name):
    module = {"forestdiff": "forest"}.get(name, name)
    baseline = import_module(f"augmask_bench.baselines.{module}")
    assert baseline_settings(module, Method(name)) == baseline.PAPER
    assert baseline_settings(module, Method(name, preset="small")) == baseline.SMALL
    assert baseline.PAPER != baseline.SMALL


@pytest.mark.parametrize("name", NAMES)
def test_identity_contains_every_setting(name):
    method = complete_method(Method(name, LABELS[name][0].partition(" + ")[2]))
    paper = method.identity()
    # it must survive JSON
    assert json.loads(json.dumps(paper))["settings"].keys() == paper["settings"].keys()
    small = dataclasses.replace(method, preset="small").identity()
    assert small["settings"] != paper["settings"]
    option = next(k for k, v in paper["settings"].items() if type(v) is int)
    changed = dataclasses.replace(method, options=((option, 7),)).identity()
    assert changed["settings"] == {**paper["settings"], option: 7}
    same = dataclasses.replace(method, options=((option, paper["settings"][option]),))
    assert same.identity() == paper


def test_options_of_tabsyn_s_autoencoder_have_a_prefix():
    options = (("vae_steps", 7), ("vae_beta", 1), ("steps", 9))
    settings = baseline_settings("tabsyn", Method("tabsyn", options=options))
    assert (settings.vae.steps, settings.vae.beta, settings.steps) == (7, 1.0, 9)
    assert settings.vae.batch_size == 4096


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Method("miwae", options=(("epoch", 3),)), "did you mean 'epochs'"),
        (Method("miwae", preset="smal"), "did you mean 'small'"),
        (Method("miwae", preset="fast"), "known: paper, small"),
        (Method("miwae", options=(("epochs", 2.5),)), "whole number of at least 1"),
        (Method("miwae", options=(("epochs", True),)), "whole number of at least 1"),
        (Method("miwae", options=(("epochs", 0),)), "whole number of at least 1"),
        (Method("miwae", options=(("lr", -1.0),)), "finite number of at least 0"),
        (Method("miwae", options=(("likelihood", "odd"),)), "one of 'mixed', 'stud"),
        (Method("ctgan", options=(("widths", (64, "a")),)), "a list, each a whole"),
        (Method("ctgan", options=(("level_draw", "odd"),)), "one of 'log-freq"),
        (Method("diffputer", options=(("max_steps", "no"),)), "a whole number"),
        (Method("tabsyn", options=(("vae", 3),)), "tabsyn has no option 'vae'"),
        (Method("tabsyn", completions="stack:2"), "learns from one completion"),
        (Method("miwae", augmenter="mean"), "handles missing values itself"),
    ],
)
def test_invalid_options_are_refused_before_a_grid_starts(method, message):
    with pytest.raises(UsageError, match=message):
        find_generator(method.generator).check(method)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Method("miwae", "AugMask"), "takes no strategy"),
        (Method("tabsyn", "AugMask"), "has no strategy 'AugMask'"),
        (Method("tabsyn", "mine", "ecdf", "observed"), "counts every cell"),
    ],
)
def test_strategies_are_those_of_the_paper(method, message):
    with pytest.raises(UsageError, match=message):
        complete_method(method)


def test_the_augmenter_of_a_complete_table_can_be_chosen():
    own = complete_method(Method("tabsyn", "AugFull", augmenter="ecdf"))
    assert own.label == "TabSyn + AugFull (ECDF)"


@pytest.mark.skipif(why_unusable("hyperimpute") == "", reason="hyperimpute works here")
def test_an_unavailable_augmenter_is_not_a_failure(write_plan, tmp_path):
    text = HEAD + '[[methods]]\ngenerator = "fill"\naugmenter = "hyperimpute"\n'
    (run,) = read_plan(write_plan(text)).runs
    result = execute(run, tmp_path)
    assert result["status"] == "unable"
    assert "hyperimpute" in result["reason"]
    assert run.method.label == "fill: HyperImpute"


@pytest.mark.parametrize("name", ["miwae", "missdiff", "diffputer", "tabsyn"])
def test_a_baseline_gets_the_remaining_time(name, write_plan, tmp_path, monkeypatch):
    limits = []
    module = import_module(f"augmask_bench.baselines.{name}")
    original = module.fit

    def fit(table, settings, seed, device, seconds):
        limits.append(seconds)
        return original(table, settings, seed, device, seconds)

    monkeypatch.setattr(module, "fit", fit)
    text = "max_minutes = 0.001\n" + HEAD + entry(name)
    result = execute(read_plan(write_plan(text)).runs[-1], tmp_path)
    assert result["status"] == "done", result
    # the time of augmentation does not count: fills are made apart
    assert limits == [pytest.approx(0.06)]


def test_device_and_time_limit_reach_the_baseline(monkeypatch):
    import torch

    arguments = {}

    class Stop(Exception):
        pass

    def fit(table, settings, seed, device, seconds):
        arguments.update(device=device, seconds=seconds)
        raise Stop

    monkeypatch.setattr("augmask_bench.baselines.miwae.fit", fit)
    frame = pd.DataFrame({"x": [1.5, 2.5, None], "y": ["a", None, "b"]})
    request = Request(frame, {}, 3, "y", Method("miwae", preset="small"), 0, "cpu")
    with pytest.raises(Stop):
        find_generator("miwae").generate(request)
    assert arguments == {"device": torch.device("cpu"), "seconds": None}
