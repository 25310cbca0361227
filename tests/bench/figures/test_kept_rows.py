"""Figures of the rows that a grid kept."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.report.aggregates import overlap
from augmask_bench.figures import fidelity, umap


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=600)
    return pd.DataFrame(
        {
            "age": np.round(40 + 10 * shared + 4 * rng.normal(size=600)),
            "income": np.exp(10 + 0.5 * shared + 0.3 * rng.normal(size=600)),
            "weight": rng.gamma(3.0, 2e4, size=600),
            "job": np.where(shared + rng.normal(size=600) > 0, "boss", "clerk"),
        }
    )


@pytest.fixture
def shrunken(people):
    """An augmented table: 70 % of the weights and half of the incomes are the mean."""
    rng = np.random.default_rng(1)
    augmented = people.copy()
    for name, share in (("weight", 0.7), ("income", 0.5)):
        mean = augmented[name].mean()
        augmented[name] = augmented[name].mask(rng.random(600) < share, mean)
    return augmented


@pytest.fixture
def folder(tmp_path, run, people, shrunken):
    """A grid's folder with kept rows, and its table of results."""
    resampled = people.sample(600, replace=True, random_state=3)
    far = people.assign(age=people["age"] + 60, job="clerk")
    kept = [
        ({"generator": "fill", "supervise": "", "augmenter": "lgbm-d"}, shrunken),
        ({"generator": "fill", "supervise": "", "augmenter": "lgbm-s"}, resampled),
        ({"supervise": "observed"}, resampled),
        ({"supervise": "all"}, far),
    ]
    for name in ("real", "samples"):
        (tmp_path / name).mkdir()
    people.to_parquet(tmp_path / "real" / "people-0-f00d.parquet")
    lines = []
    for facts, rows in kept:
        line = run(dataset="people", ratio=0.7, **facts)
        rows.to_parquet(tmp_path / "samples" / f"{line['run']}.parquet")
        lines.append(line)
    # a block with more missing values, whose rows were not kept
    lines += [line | {"ratio": 0.9, "run": line["run"][::-1]} for line in lines]
    return tmp_path, pd.DataFrame(lines)


def principal(base, others):
    """Project on principal components; UMAP takes a minute to compile."""
    centre = base.mean(axis=0)
    axes = np.linalg.svd(base - centre, full_matrices=False)[2][:2].T
    return [10 * (rows - centre) @ axes for rows in (base, *others)]


def test_fidelity_shows_the_columns_that_lost_most(folder, people, shrunken):
    out, results = folder
    assert fidelity.needs(results) == ""
    tables = {"truth": people, "lgbm-d": shrunken, "lgbm-s": people}
    columns, pairs = fidelity.choose_columns(tables)
    assert columns[:2] == ["weight", "income"]
    assert pairs[0] == ("age", "income")
    figure = fidelity.draw(results, out)
    figure.savefig(io.BytesIO(), format="png")
    titles = [ax.get_title() for ax in figure.axes]
    share = shrunken["weight"].std() / people["weight"].std()
    assert titles[0] == f"sd {100 * share:.0f}% of true"
    true = np.corrcoef(people["age"], people["income"])[0, 1]
    assert titles[3].endswith(f"true {true:.2f}")
    texts = {figure.get_supxlabel(), *(ax.get_ylabel() for ax in figure.axes)}
    assert {"people, MCAR 0.7", "LGBM-D", "LGBM-S"} <= texts


def test_bins_of_integers_hold_equally_many_values():
    truth = np.repeat(np.arange(17.0, 91.0), 3)
    edges = fidelity.edges_of(truth, 40)
    counts, _ = np.histogram(truth, edges)
    assert len(counts) <= 41
    assert set(counts[1:-1]) == {6}
    np.testing.assert_allclose(fidelity.edges_of(np.full(9, 0.5), 4)[[0, -1]], [0, 1])


def test_contours_enclose_their_shares():
    density = np.random.default_rng(0).random((30, 30)) ** 3
    heights = fidelity.contour_heights(density)
    for height, share in zip(heights, fidelity.SHARES, strict=True):
        inside = density[density >= height].sum() / density.sum()
        assert inside == pytest.approx(share, abs=0.01)
    # all in one cell: contours still have three increasing heights
    assert (np.diff(fidelity.contour_heights(np.eye(1, 9))) > 0).all()


def test_densities_distinguish_a_good_sample_from_a_bad_one(monkeypatch, people):
    monkeypatch.setattr(umap, "embed", principal)
    tables = {
        "good": people.sample(600, replace=True, random_state=1),
        "bad": people.assign(age=people["age"] + 60, job="clerk"),
    }
    kdes = umap.densities(people, tables, np.random.default_rng(0))
    for density in (kdes.real, kdes.holdout, *kdes.synthetic.values()):
        assert density.sum() == pytest.approx(1)
    reference = overlap(kdes.real, kdes.holdout)
    assert reference > 0.75
    assert overlap(kdes.real, kdes.synthetic["good"]) > reference - 0.1
    assert overlap(kdes.real, kdes.synthetic["bad"]) < 0.6 * reference


def test_indicators_are_scaled_so_that_two_levels_are_one_apart(monkeypatch, people):
    bases = []

    def spy(base, others):
        bases.append(base)
        return principal(base, others)

    monkeypatch.setattr(umap, "embed", spy)
    umap.densities(people, {"x": people}, np.random.default_rng(0))
    (base,) = bases
    numbers, levels = base[:, :3], base[:, 3:]
    assert numbers.max() == pytest.approx(1.0)
    first, second = np.unique(levels.round(9), axis=0)
    assert np.linalg.norm(first - second) == pytest.approx(1.0, abs=1e-6)


def test_the_map_shows_other_real_rows_beside_the_methods(monkeypatch, folder):
    monkeypatch.setattr(umap, "embed", principal)
    out, results = folder
    figure = umap.draw(results, out)
    figure.savefig(io.BytesIO(), format="png")
    titles = [ax.get_title().split("\n") for ax in figure.axes[:3]]
    assert [name for name, _ in titles] == [
        "other real rows", "CDTD + AugFull", "CDTD + AugMask"
    ]  # fmt: skip
    iou = [float(text.removeprefix("IoU ")) for _, text in titles]
    assert iou[1] < 0.6 < iou[2]
    assert figure.get_supxlabel() == "UMAP of people, MCAR 0.7"


@pytest.mark.parametrize("module", [fidelity, umap])
def test_without_kept_rows_the_message_names_the_fix(module, folder, tmp_path):
    _, results = folder
    for out in (None, tmp_path / "elsewhere"):
        with pytest.raises(DataError, match="keep = true"):
            module.draw(results, out)


def test_needs_names_what_is_missing(monkeypatch, folder):
    _, results = folder
    assert "'lgbm-d'" in fidelity.needs(results[results["augmenter"] != "lgbm-d"])
    augmented = results[results["generator"] == "fill"]
    assert "completed run" in umap.needs(augmented)
    monkeypatch.setattr(umap, "find_spec", lambda _: None)
    assert "pip install" in umap.needs(results)

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(umap, "import_module", absent)
    with pytest.raises(UsageError, match="pip install umap-learn"):
        umap.embed(np.zeros((2, 2)), [])


@pytest.mark.slow
def test_umap_itself_keeps_the_order(people):
    pytest.importorskip("umap")
    tables = {"good": people.sample(600, replace=True, random_state=1)}
    tables["bad"] = people.assign(job="clerk", age=people["age"].mean())
    kdes = umap.densities(people, tables, np.random.default_rng(0))
    good, bad = (overlap(kdes.real, d) for d in kdes.synthetic.values())
    assert good > 0.8 > 0.7 > bad
