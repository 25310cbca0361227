"""The contract of a backbone, held by all of them.

A backbone gives one loss per cell without knowing which cells were observed. What
follows from that, and what the rest of the package relies on, is written here once; a
backbone that joins `BACKBONES` is checked without a line more, save for the name of the
module that ends its network.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch

from augmask import AugMask, load
from augmask.augmentation import resolve_augmenter
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.config import Settings
from augmask.diffusion import BACKBONES, build_backbone, cdtd, resolve_backbone
from augmask.diffusion.base import Batch, CellLoss, type_weights
from augmask.diffusion.reduce import reduce_cells
from augmask.errors import UsageError
from augmask.table.table import Layout, Table
from augmask.train.data import TrainingData
from augmask.train.loop import train
from augmask.train.trainer import Trainer

from .made_frame import make_frame

pytestmark = pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")

NETWORK = {"width": 12, "depth": 1, "time_width": 8}
MIXES = [(2, (2, 4)), (3, ()), (0, (3, 2))]
# presets differ in what CDTD starts from, so each start is a backbone of its own here
KINDS: dict[str, tuple[str, dict[str, str]]] = {name: (name, {}) for name in BACKBONES}
KINDS["cdtd"] = ("cdtd", {"precondition": "cell"})
KINDS["cdtd-table"] = ("cdtd", {"precondition": "table"})
# the module that gives the network's output: numbers, then logits
LAST = {
    "cdtd": "net.head",
    "cdtd-table": "net",
    "tabdiff": "net.heads",
    "tabddpm": "head",
}

everywhere = pytest.mark.parametrize("backbone", list(KINDS))
every_mix = pytest.mark.parametrize(("n_num", "cards"), MIXES)
every_solver = pytest.mark.parametrize(
    ("backbone", "solver"),
    [
        (kind, solver)
        for kind, (name, _) in KINDS.items()
        for solver in resolve_backbone(name).solvers
    ],
)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Let the tables here count as wide, so that the laws reach the direct path."""
    monkeypatch.setattr(cdtd, "WIDE", 0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(table: Table) -> Batch:
    return Batch(
        torch.from_numpy(table.num).double(), torch.from_numpy(table.cat).long()
    )


def build(backbone: str, table: Table):
    """Return a float64 model whose every weight has moved away from its start."""
    name, keywords = KINDS[backbone]
    model = build_backbone(name, table.layout, 0, **NETWORK, **keywords).double()
    model.init_from_data(table)
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(0.2 * torch.randn(p.shape, generator=seeded(i), dtype=p.dtype))
    return model


def reduced(model, cell: CellLoss, observed: torch.Tensor, n_num: int) -> torch.Tensor:
    weights = type_weights(model, torch.tensor(0.25))
    return reduce_cells(cell, observed, model.reduction, n_num, weights)


def slopes(model, loss: torch.Tensor) -> list[torch.Tensor]:
    return torch.autograd.grad(
        loss, list(model.parameters()), allow_unused=True, materialize_grads=True
    )


def output_columns(layout: Layout) -> list[int]:
    """Return the column that every entry of the network's output speaks of."""
    levels = np.repeat(np.arange(layout.n_cat), layout.cards)
    return [*range(layout.n_num), *(layout.n_num + levels)]


@contextmanager
def at_the_end(model, backbone: str, change=lambda out: out):
    """Pass the network's output through `change`; yield the outputs that came."""
    seen: list[torch.Tensor] = []

    def hook(_module, _inputs, out):
        parts = out if isinstance(out, tuple) else (out,)
        seen.append(torch.cat(parts, 1))
        changed = change(seen[-1])
        split = changed.split([part.shape[1] for part in parts], 1)
        return split if isinstance(out, tuple) else changed

    handle = model.get_submodule(LAST[backbone]).register_forward_hook(hook)
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def all_said(model, backbone: str, instead=None):
    """Yield all that a model makes of its input; say something else `instead`."""
    if backbone != "cdtd-table":
        change = (lambda out: out) if instead is None else (lambda _: instead)
        with at_the_end(model, backbone, change) as seen:
            yield seen
        return
    # noisy numbers also pass by the network here, and reach other columns: that is
    # input too, so what is held is the denoised row
    seen, inner = [], model._denoise

    def denoise(*inputs):
        seen.append(inner(*inputs) if instead is None else instead)
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_denoise", denoise)
        yield seen


def other_holes(table: Table) -> Table:
    """Return the table with something else in every hole."""
    num = np.where(table.num_observed, table.num, table.num + 1.5)
    turned = (table.cat + 1) % np.array(table.layout.cards, dtype=int)
    return table.filled(num, np.where(table.cat_observed, table.cat, turned))


# -- holes are context, never targets ------------------------------------------


@everywhere
@every_mix
def test_no_loss_has_a_slope_in_what_the_network_says_of_a_hole(
    make_table, backbone, n_num, cards
):
    table = make_table(n=40, n_num=n_num, cards=cards, holes=0.5)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)
    with at_the_end(model, backbone) as outputs:
        cell = model.cell_loss(batch_of(table), seeded())
    (output,) = outputs
    hole = ~observed[:, output_columns(table.layout)]
    parts = {"main": CellLoss(cell.main)}
    parts |= {name: CellLoss(aux) for name, aux in cell.aux.items()}
    for name, part in parts.items():
        (slope,) = torch.autograd.grad(
            reduced(model, part, observed, n_num),
            output,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        assert not slope[hole].any(), name
        # where the loss is meant to teach, it does; schedules must not teach the net
        assert slope[~hole].any() == (name == "main"), name


@everywhere
@every_mix
def test_what_the_network_says_of_a_hole_changes_no_loss_and_no_gradient(
    make_table, backbone, n_num, cards
):
    """Learned schedules regress on losses per cell: those of holes must not count."""
    table = make_table(n=40, n_num=n_num, cards=cards, holes=0.5)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)
    hole = ~observed[:, output_columns(table.layout)]
    junk = 5 * torch.randn(hole.shape, generator=seeded(9), dtype=torch.float64)
    cells, found = [], []
    for change in (lambda out: out, lambda out: torch.where(hole, junk, out)):
        with at_the_end(model, backbone, change):
            cells.append(model.cell_loss(batch_of(table), seeded()))
        loss = reduced(model, cells[-1], observed, n_num)
        found.append([loss, *slopes(model, loss)])
    assert not torch.equal(cells[0].main, cells[1].main)
    for plain, spoilt in zip(*found, strict=True):
        assert torch.equal(plain, spoilt)


@everywhere
@every_mix
def test_the_contents_of_a_hole_act_through_the_input_alone(
    make_table, backbone, n_num, cards
):
    table = make_table(n=40, n_num=n_num, cards=cards, holes=0.5)
    other = other_holes(table)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)

    def loss_of(rows: Table, said=None):
        with all_said(model, backbone, said) as outputs:
            cell = model.cell_loss(batch_of(rows), seeded())
        return reduced(model, cell, observed, n_num), outputs[0], cell

    loss, output, cell = loss_of(table)
    # the targets change, and the network still says what it said of the old input
    same, _, changed = loss_of(other, output)
    assert torch.equal(loss, same)
    # a network that predicts noise has targets without the number in them
    if cards or backbone != "tabddpm":
        assert not torch.equal(cell.main, changed.main)
    # and they are input: otherwise a filled hole would tell nothing
    assert not torch.equal(loss, loss_of(other)[0])


@everywhere
def test_rows_do_not_see_each_other(make_table, backbone):
    """A filled cell may speak to its own row only: no statistics over the batch."""
    table = make_table(n=20)
    model = build(backbone, table)
    num, cat = batch_of(table)
    with torch.no_grad():
        before = model.cell_loss(Batch(num, cat), seeded())
        num[7] += 3.0
        cat[7] = (cat[7] + 1) % torch.tensor(table.layout.cards)
        after = model.cell_loss(Batch(num, cat), seeded())
    others = torch.arange(20) != 7
    parts = [(cell.main, *cell.aux.values()) for cell in (before, after)]
    for one, two in zip(*parts, strict=True):
        torch.testing.assert_close(one[others], two[others], rtol=1e-9, atol=1e-12)
        assert not torch.equal(one[7], two[7])


@everywhere
@every_mix
def test_every_row_twice_is_the_same_loss_and_gradient(
    make_table, monkeypatch, backbone, n_num, cards
):
    table = make_table(n=15, n_num=n_num, cards=cards, holes=0.4)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)
    batch, n = batch_of(table), len(table)

    def loss_of(batch: Batch, observed: torch.Tensor):
        loss = reduced(model, model.cell_loss(batch, seeded(3)), observed, n_num)
        return [loss, *slopes(model, loss)]

    def twice(draw):
        # both copies of a row get the noise that the row would get alone
        def drawn(shape, **kind):
            if not len(shape):
                return draw(shape, **kind)
            assert shape[0] == 2 * n
            return torch.cat(2 * [draw((n, *shape[1:]), **kind)])

        return drawn

    once = loss_of(batch, observed)
    home = importlib.import_module(type(model).__module__)
    times_of = home.low_discrepancy
    with monkeypatch.context() as patch:
        patch.setattr(
            home, "low_discrepancy", lambda rows, g: times_of(rows[:n], g).repeat(2)
        )
        patch.setattr(torch, "rand", twice(torch.rand))
        patch.setattr(torch, "randn", twice(torch.randn))
        both = Batch(batch.num.repeat(2, 1), batch.cat.repeat(2, 1))
        renoise = loss_of(both, observed.repeat(2, 1))
    for one, two in zip(once, renoise, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-11)


# -- every table, every batch ----------------------------------------------------

SMALL = {"steps": 12, "warmup": 2, "batch_size": 16, "sampling_steps": 4, **NETWORK}


def fitted(backbone: str, frame: pd.DataFrame, options=(), **changes) -> AugMask:
    name, keywords = KINDS[backbone]
    settings = {**SMALL, "holdout": 0.05, **keywords, **dict(options)}
    given = {"augmenter": "ecdf", "device": "cpu", **changes}
    return AugMask(name, options=settings, **given).fit(frame)


FRAMES = {
    "mixed": make_frame(),
    "numbers": make_frame()[["kg", "age"]],
    "categories": make_frame()[["job", "smokes"]],
    "one level": make_frame().assign(land="DE"),
    "nothing seen": make_frame().assign(land=np.nan),
}


@everywhere
@pytest.mark.parametrize("batch", [1, 49])
@pytest.mark.parametrize("name", FRAMES)
def test_any_table_and_any_batch_from_fit_to_sample(backbone, batch, name):
    frame = FRAMES[name]
    model = fitted(backbone, frame, {"batch_size": batch})
    assert np.isfinite(model.history_["loss"]).all()
    rows = model.sample(23)
    assert rows.columns.tolist() == frame.columns.tolist()
    for column in frame:
        seen = frame[column].dropna()
        if seen.empty:
            assert rows[column].isna().all()
        elif pd.api.types.is_numeric_dtype(seen) and seen.nunique() > 2:
            assert rows[column].between(seen.min(), seen.max()).all()
        else:
            assert set(rows[column]) <= set(seen)


def run_of(backbone: str, table: Table, **changes) -> Trainer:
    settings = Settings().replace(SMALL | changes, None)
    rng = np.random.default_rng(0)
    filled = complete(resolve_augmenter("noise"), table, CompletionPlan("one"), rng)
    name, keywords = KINDS[backbone]
    model = build_backbone(name, filled.table.layout, 0, **NETWORK, **keywords)
    model.init_from_data(filled.table)
    hidden = np.zeros_like(table.observed)
    data = TrainingData(filled, "observed", hidden, 0, torch.device("cpu"))
    return Trainer(model, data, settings, 0, torch.device("cpu"))


@everywhere
@pytest.mark.parametrize("batch", [1, 49])
def test_a_column_of_one_level_and_columns_without_an_observed_cell(
    make_table, backbone, batch
):
    """Tables from elsewhere may hold what `fit` sets aside."""
    table = make_table(n=50, n_num=2, cards=(3, 1, 2), holes=0.3)
    table.observed[:, [1, 4]] = False
    trainer = run_of(backbone, table, batch_size=batch)
    run = train(trainer)
    assert np.isfinite(run.history[-1]["loss"])
    num, cat = trainer.backbone.sample(40, seeded(), steps=4)
    assert num.isfinite().all()
    assert (cat.amax(0) < torch.tensor([3, 1, 2])).all()


@everywhere
def test_every_row_is_learned_from_in_every_pass(make_table, monkeypatch, backbone):
    table = make_table(n=60, n_num=1, cards=(), holes=0.0)
    trainer, seen = run_of(backbone, table, batch_size=49, steps=3), []
    inner = trainer.backbone.cell_loss

    def watched(batch, generator):
        seen.append(batch.num[:, 0])
        return inner(batch, generator)

    monkeypatch.setattr(trainer.backbone, "cell_loss", watched)
    train(trainer)
    values, rows = torch.cat(seen).numpy(), np.sort(table.num[:, 0].astype("f4"))
    # a batch reaches over the end of a pass: no remainder is dropped
    for start in (0, 60):
        np.testing.assert_array_equal(np.sort(values[start : start + 60]), rows)


@every_solver
@pytest.mark.parametrize("reserved", [False, True])
def test_every_solver_gives_legal_rows_that_the_seed_decides(
    make_table, backbone, solver, reserved
):
    table = make_table(n=40, n_num=2, cards=(4, 1 + reserved, 2))
    layout = Layout(
        table.layout.num_names, table.layout.cat_names, table.layout.cards, reserved
    )
    model = build(backbone, table.filled(table.num, table.cat, layout))
    one, two, other = (
        model.sample(200, seeded(seed), steps=6, solver=solver) for seed in (1, 1, 2)
    )
    assert one.num.isfinite().all()
    assert one.cat.min() >= 0
    assert (one.cat.amax(0) < torch.tensor(layout.cards) - int(reserved)).all()
    assert torch.equal(one.num, two.num)
    assert torch.equal(one.cat, two.cat)
    assert not torch.equal(one.num, other.num)


@everywhere
@pytest.mark.parametrize(
    ("options", "message"), [({"solver": "eulre"}, "eulre"), ({"steps": 0}, "got 0")]
)
def test_a_sampler_that_cannot_work_says_so(make_table, backbone, options, message):
    model = build(backbone, make_table())
    with pytest.raises(UsageError, match=message):
        model.sample(3, seeded(), **{"steps": 4} | options)


# -- the whole path, to the last bit ------------------------------------------------


def assert_same(one: AugMask, two: AugMask) -> None:
    mine, yours = one.backbone_.state_dict(), two.backbone_.state_dict()
    assert mine.keys() == yours.keys()
    for name, array in mine.items():
        assert torch.equal(array, yours[name]), name
    pd.testing.assert_frame_equal(one.sample(40, seed=1), two.sample(40, seed=1))


@everywhere
def test_without_holes_all_strategies_are_one(backbone):
    frame = make_frame(holes=0)
    no_aug = fitted(backbone, frame, augmenter="mean", supervise="all")
    for supervise in ("all", "observed"):
        assert_same(no_aug, fitted(backbone, frame, supervise=supervise))


@everywhere
def test_same_seed_same_bytes_and_the_file_is_the_model(backbone, tmp_path):
    files = []
    for seed in (0, 0, 1):
        model = fitted(backbone, make_frame(), {"completions": "stack:2"}, seed=seed)
        files.append(tmp_path / f"{len(files)}.augmask")
        model.save(files[-1])
        assert_same(model, load(files[-1], device="cpu"))
    one, two, other = (path.read_bytes() for path in files)
    assert one == two
    assert one != other


@everywhere
@pytest.mark.parametrize("extra", ["DE", None])
def test_a_column_set_aside_changes_no_other(backbone, extra):
    frame, wider = make_frame(), make_frame()
    wider.insert(1, "extra", extra)
    plain = fitted(backbone, frame).sample(40, seed=1)
    rows = fitted(backbone, wider).sample(40, seed=1)
    pd.testing.assert_frame_equal(rows.drop(columns="extra"), plain)
