"""The paper's baselines in the benchmark: presets, options, holes, and what is absent.

Those that need a package run where it is installed (`make test-baselines`); elsewhere
they are recorded as unable.
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
from augmask.table.encode import Codec
from augmask.table.infer import infer_schema
from augmask_bench.baseline_generators import BASELINES, resolved
from augmask_bench.baselines.plain import unscaled
from augmask_bench.data import Source, split
from augmask_bench.generator import Request
from augmask_bench.methods import Method, complete_method, find_generator
from augmask_bench.peers import why_not
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
    "diffputer": "iterations = 2, trials = 1, levels = 4, repeats = 2, units = 8, "
    "max_steps = 3",
    "forestdiff": "n_t = 3, duplicate_K = 1, n_estimators = 2",
    "tvae": "steps = 3, batch = 50, embedding_dim = 8, widths = [8]",
    "ctgan": "steps = 3, batch = 50, embedding_dim = 8, widths = [8]",
    "arf": "num_trees = 2, max_iters = 1",
    "tabsyn": "vae_steps = 3, steps = 3, units = 8, embedding = 8, levels = 4",
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
def test_a_baseline_goes_all_the_way_or_says_what_it_lacks(name, write_plan, tmp_path):
    lacks = find_generator(name).why_unavailable("cpu")
    runs = read_plan(write_plan(HEAD + entry(name))).runs
    assert [run.method.label for run in runs] == LABELS[name]
    # the last is AugFull where there is a choice
    record = execute(runs[-1], tmp_path)
    if lacks:
        assert (record["status"], record["reason"]) == ("unable", lacks)
        return
    assert record["status"] == "done", record
    assert all(isinstance(record[metric], float) for metric in METRICS)
    assert record["device"] == "cpu"
    assert (record["augment_seconds"] > 0) == find_generator(name).complete
    json.dumps(record)
    rows = pd.read_parquet(sample_file(tmp_path, runs[-1]))
    assert len(rows) == 90
    assert rows.notna().all().all()
    again = execute(runs[-1], tmp_path)
    assert [again[m] for m in METRICS] == [record[m] for m in METRICS]


@pytest.fixture
def learned_from(monkeypatch):
    """Let baselines learn nothing; return the tables that they were given."""
    seen = {}

    class Model:
        def __init__(self, table):
            self.table, self.facts = table, {}

        def sample(self, n, _seed):
            return self.table.num[:n], self.table.cat[:n]

    def fit_as(name):
        def fit(table, *_):
            seen[name] = table
            return Model(table)

        return fit

    for name in NAMES:
        module = {"forestdiff": "forest"}.get(name, name)
        monkeypatch.setattr(f"augmask_bench.baselines.{module}.fit", fit_as(name))
        monkeypatch.setattr("augmask_bench.generator.why_not", lambda _: "")
    return seen


def test_the_aware_ones_meet_the_holes_and_the_others_a_filled_table(
    write_plan, tmp_path, learned_from
):
    seen = learned_from
    for run in read_plan(write_plan(HEAD + entry("miwae") + entry("tabsyn"))).runs:
        assert execute(run, tmp_path)["status"] == "done"
    holes = 1 - seen["miwae"].observed.mean()
    assert holes == pytest.approx(0.4, abs=0.02)
    assert seen["tabsyn"].observed.all()


def incomplete() -> tuple[pd.DataFrame, Codec]:
    """Return the table that runs of `HEAD` learn from, and its own scaling."""
    data = Source("clinic-stay", rows=150).load()
    train, _ = split(data.frame, None, 0)
    holed = am.ampute(train, "mcar", 0.4, 0)
    return holed, Codec.fit(holed, infer_schema(holed, data.kinds))


@pytest.mark.parametrize("name", ["tvae", "ctgan", "arf", "tabsyn"])
@pytest.mark.parametrize("strategy", ["NoAug", "AugFull"])
def test_a_filled_table_is_scaled_by_what_was_observed(
    name, strategy, write_plan, tmp_path, learned_from
):
    more = f'strategy = "{strategy}"\n'
    (run,) = read_plan(write_plan(HEAD + entry(name, more))).runs
    record = execute(run, tmp_path)
    assert record["status"] == "done", record
    holed, codec = incomplete()
    given, observed = learned_from[name], codec.encode(holed)
    if name != "tabsyn":
        # peers scale by themselves; the roles and levels are still those of the holed
        codec = unscaled(codec.schema)
        observed = codec.encode(holed)
    assert given.layout == observed.layout
    here = observed.num_observed
    np.testing.assert_array_equal(given.num[here], observed.num[here])
    here = observed.cat_observed
    np.testing.assert_array_equal(given.cat[here], observed.cat[here])


def test_observed_scores_have_unit_deviation_whatever_fills_the_rest(
    write_plan, tmp_path, learned_from
):
    (run,) = read_plan(write_plan(HEAD + entry("tabsyn", 'strategy = "NoAug"\n'))).runs
    assert execute(run, tmp_path)["status"] == "done"
    holed, codec = incomplete()
    mask = codec.encode(holed).num_observed
    num = learned_from["tabsyn"].num
    for j in range(num.shape[1]):
        seen = num[mask[:, j], j]
        assert seen.std() == pytest.approx(1)
        # the mean of the scores, which stand in the other cells
        assert num[~mask[:, j], j] == pytest.approx(seen.mean())


@pytest.mark.parametrize("name", NAMES)
def test_presets_are_those_of_the_method_s_file(name):
    module = {"forestdiff": "forest"}.get(name, name)
    there = import_module(f"augmask_bench.baselines.{module}")
    assert resolved(module, Method(name)) == there.PAPER
    assert resolved(module, Method(name, preset="small")) == there.SMALL
    assert there.PAPER != there.SMALL


@pytest.mark.parametrize("name", NAMES)
def test_identity_holds_every_setting(name):
    method = complete_method(Method(name, LABELS[name][0].partition(" + ")[2]))
    paper = method.identity()
    # it is written down, and must come back as it is
    assert json.loads(json.dumps(paper))["settings"].keys() == paper["settings"].keys()
    small = dataclasses.replace(method, preset="small").identity()
    assert small["settings"] != paper["settings"]
    option = next(k for k, v in paper["settings"].items() if type(v) is int)
    changed = dataclasses.replace(method, options=((option, 7),)).identity()
    assert changed["settings"] == {**paper["settings"], option: 7}
    same = dataclasses.replace(method, options=((option, paper["settings"][option]),))
    assert same.identity() == paper


def test_settings_of_tabsyn_s_autoencoder_have_names_of_their_own():
    options = (("vae_steps", 7), ("vae_beta", 1), ("steps", 9))
    settings = resolved("tabsyn", Method("tabsyn", options=options))
    assert (settings.vae.steps, settings.vae.beta, settings.steps) == (7, 1.0, 9)
    assert settings.vae.batch == 4096


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
        (Method("tabsyn", completions="stack:2"), "learns from one table"),
        (Method("miwae", augmenter="mean"), "handles holes itself"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_grid_starts(method, message):
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


def test_a_rule_of_ones_own_fills_for_those_that_want_a_complete_table():
    own = complete_method(Method("tabsyn", "AugFull", augmenter="ecdf"))
    assert own.label == "TabSyn + AugFull (ECDF)"


@pytest.mark.skipif(why_not("hyperimpute") == "", reason="hyperimpute works here")
def test_a_rule_that_cannot_be_used_here_is_no_failure(write_plan, tmp_path):
    text = HEAD + '[[methods]]\ngenerator = "fill"\naugmenter = "hyperimpute"\n'
    (run,) = read_plan(write_plan(text)).runs
    record = execute(run, tmp_path)
    assert record["status"] == "unable"
    assert "hyperimpute" in record["reason"]
    assert run.method.label == "fill: HyperImpute"


@pytest.mark.parametrize("name", ["miwae", "missdiff", "diffputer", "tabsyn"])
def test_what_is_left_of_the_time_is_all_that_a_baseline_takes(
    name, write_plan, tmp_path, monkeypatch
):
    given = []
    module = import_module(f"augmask_bench.baselines.{name}")
    whole = module.fit

    def fit(table, settings, seed, device, seconds):
        given.append(seconds)
        return whole(table, settings, seed, device, seconds)

    monkeypatch.setattr(module, "fit", fit)
    text = "max_minutes = 0.001\n" + HEAD + entry(name)
    record = execute(read_plan(write_plan(text)).runs[-1], tmp_path)
    assert record["status"] == "done", record
    assert 0 <= given[0] <= 0.06
    # a rule's time is the method's, too
    assert (given[0] < 0.06) == find_generator(name).complete


def test_devices_are_handed_down(monkeypatch):
    import torch

    seen = {}

    class Stop(Exception):
        pass

    def fit(table, settings, seed, device, seconds):
        seen.update(device=device, seconds=seconds)
        raise Stop

    monkeypatch.setattr("augmask_bench.baselines.miwae.fit", fit)
    frame = pd.DataFrame({"x": [1.5, 2.5, None], "y": ["a", None, "b"]})
    request = Request(frame, {}, 3, "y", Method("miwae", preset="small"), 0, "cpu")
    with pytest.raises(Stop):
        find_generator("miwae").make(request)
    assert seen == {"device": torch.device("cpu"), "seconds": None}
