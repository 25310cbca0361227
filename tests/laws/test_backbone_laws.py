"""What every backbone must satisfy.

A backbone returns one loss per cell without knowing which cells were observed. What
follows from that, and what the rest of the package relies on, is checked here for all
of `BACKBONES`; a new one needs only the name of its network's last module.
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
# presets differ in CDTD's preconditioning, so each one counts as a backbone here
KINDS: dict[str, tuple[str, dict[str, str]]] = {name: (name, {}) for name in BACKBONES}
KINDS["cdtd"] = ("cdtd", {"precondition": "cell"})
KINDS["cdtd-table"] = ("cdtd", {"precondition": "table"})
KINDS["cdtd-joint"] = ("cdtd", {"precondition": "joint"})
# the module whose output are numbers, then logits
LAST = {
    "cdtd": "net.head",
    "cdtd-table": "net",
    "cdtd-joint": "net",
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
    """Treat all tables as wide, so that the tests reach the direct path."""
    monkeypatch.setattr(cdtd, "WIDE", 0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(table: Table) -> Batch:
    return Batch(
        torch.from_numpy(table.num).double(), torch.from_numpy(table.cat).long()
    )


def build(backbone: str, table: Table):
    """Return a float64 model whose weights have all moved from their start."""
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


def gradients(model, loss: torch.Tensor) -> list[torch.Tensor]:
    return torch.autograd.grad(
        loss, list(model.parameters()), allow_unused=True, materialize_grads=True
    )


def output_columns(layout: Layout) -> list[int]:
    """Return the column of every entry of the network's output."""
    levels = np.repeat(np.arange(layout.n_cat), layout.cards)
    return [*range(layout.n_num), *(layout.n_num + levels)]


@contextmanager
def hooked_output(model, backbone: str, change=lambda out: out):
    """Pass the network's output through `change`; yield a list of the outputs."""
    outputs: list[torch.Tensor] = []

    def hook(_module, _inputs, out):
        parts = out if isinstance(out, tuple) else (out,)
        outputs.append(torch.cat(parts, 1))
        changed = change(outputs[-1])
        split = changed.split([part.shape[1] for part in parts], 1)
        return split if isinstance(out, tuple) else changed

    handle = model.get_submodule(LAST[backbone]).register_forward_hook(hook)
    try:
        yield outputs
    finally:
        handle.remove()


@contextmanager
def all_predictions(model, backbone: str, instead=None):
    """Yield all predictions of a model; predict `instead` if given."""
    if backbone not in ("cdtd-table", "cdtd-joint"):
        change = (lambda out: out) if instead is None else (lambda _: instead)
        with hooked_output(model, backbone, change) as outputs:
            yield outputs
        return
    # noisy numbers also bypass the network here and reach other columns: that is
    # input too, so the prediction is the denoised row
    outputs, inner = [], model.denoise

    def denoise(*inputs):
        outputs.append(inner(*inputs) if instead is None else instead)
        return outputs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "denoise", denoise)
        yield outputs


def refilled(table: Table) -> Table:
    """Return the table with other values in every missing cell."""
    num = np.where(table.num_observed, table.num, table.num + 1.5)
    turned = (table.cat + 1) % np.array(table.layout.cards, dtype=int)
    return table.filled(num, np.where(table.cat_observed, table.cat, turned))


# -- missing cells are context, never targets --------------------------------------


@everywhere
@every_mix
def test_predictions_of_missing_cells_get_no_gradient(
    make_table, backbone, n_num, cards
):
    table = make_table(n=40, n_num=n_num, cards=cards, missing=0.5)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)
    with hooked_output(model, backbone) as outputs:
        cell = model.cell_loss(batch_of(table), seeded())
    (output,) = outputs
    missing = ~observed[:, output_columns(table.layout)]
    parts = {"main": CellLoss(cell.main)}
    parts |= {name: CellLoss(aux) for name, aux in cell.aux.items()}
    for name, part in parts.items():
        (gradient,) = torch.autograd.grad(
            reduced(model, part, observed, n_num),
            output,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        assert not gradient[missing].any(), name
        # losses of schedules must not train the network
        assert gradient[~missing].any() == (name == "main"), name


@everywhere
@every_mix
def test_predictions_of_missing_cells_change_no_loss_and_no_gradient(
    make_table, backbone, n_num, cards
):
    """Learned schedules regress on losses per cell, of observed cells only."""
    table = make_table(n=40, n_num=n_num, cards=cards, missing=0.5)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)
    missing = ~observed[:, output_columns(table.layout)]
    junk = 5 * torch.randn(missing.shape, generator=seeded(9), dtype=torch.float64)
    cells, results = [], []
    for change in (lambda out: out, lambda out: torch.where(missing, junk, out)):
        with hooked_output(model, backbone, change):
            cells.append(model.cell_loss(batch_of(table), seeded()))
        loss = reduced(model, cells[-1], observed, n_num)
        results.append([loss, *gradients(model, loss)])
    assert not torch.equal(cells[0].main, cells[1].main)
    for plain, changed in zip(*results, strict=True):
        assert torch.equal(plain, changed)


@everywhere
@every_mix
def test_filled_values_act_through_the_input_alone(make_table, backbone, n_num, cards):
    table = make_table(n=40, n_num=n_num, cards=cards, missing=0.5)
    other = refilled(table)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)

    def loss_of(rows: Table, instead=None):
        with all_predictions(model, backbone, instead) as outputs:
            cell = model.cell_loss(batch_of(rows), seeded())
        return reduced(model, cell, observed, n_num), outputs[0], cell

    loss, output, cell = loss_of(table)
    # the targets change, and the network still predicts what it did before
    same, _, changed = loss_of(other, output)
    assert torch.equal(loss, same)
    # a network that predicts noise has no numbers in its targets
    if cards or backbone != "tabddpm":
        assert not torch.equal(cell.main, changed.main)
    # and they are input: otherwise a filled value would not be context
    assert not torch.equal(loss, loss_of(other)[0])


@everywhere
def test_rows_are_independent(make_table, backbone):
    """A filled cell is context of its own row only: no statistics over the batch."""
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
def test_duplicated_rows_leave_loss_and_gradient_unchanged(
    make_table, monkeypatch, backbone, n_num, cards
):
    # as many as share a sigma in `cdtd-joint`
    table = make_table(n=16, n_num=n_num, cards=cards, missing=0.4)
    model, observed = build(backbone, table), torch.from_numpy(table.observed)
    batch, n = batch_of(table), len(table)

    def loss_of(batch: Batch, observed: torch.Tensor):
        loss = reduced(model, model.cell_loss(batch, seeded(3)), observed, n_num)
        return [loss, *gradients(model, loss)]

    def twice(draw):
        # both copies of a row get the noise of the original
        def draw_twice(shape, **kind):
            if not len(shape):
                return draw(shape, **kind)
            assert shape[0] == 2 * n
            return torch.cat(2 * [draw((n, *shape[1:]), **kind)])

        return draw_twice

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
        duplicated = loss_of(both, observed.repeat(2, 1))
    for one, two in zip(once, duplicated, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-11)


# -- every table, every batch ----------------------------------------------------

SMALL = {"steps": 12, "warmup": 2, "batch_size": 16, "sampling_steps": 4, **NETWORK}


def fitted(backbone: str, frame: pd.DataFrame, options=(), **changes) -> AugMask:
    name, keywords = KINDS[backbone]
    settings = {**SMALL, "validation_fraction": 0.05, **keywords, **dict(options)}
    arguments = {"augmenter": "ecdf", "device": "cpu", **changes}
    return AugMask(name, options=settings, **arguments).fit(frame)


FRAMES = {
    "mixed": make_frame(),
    "numbers": make_frame()[["kg", "age"]],
    "categories": make_frame()[["job", "smokes"]],
    "one level": make_frame().assign(land="DE"),
    "nothing observed": make_frame().assign(land=np.nan),
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
        observed = frame[column].dropna()
        if observed.empty:
            assert rows[column].isna().all()
        elif pd.api.types.is_numeric_dtype(observed) and observed.nunique() > 2:
            assert rows[column].between(observed.min(), observed.max()).all()
        else:
            assert set(rows[column]) <= set(observed)


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
    """A `Table` may hold columns that `fit` would leave out."""
    table = make_table(n=50, n_num=2, cards=(3, 1, 2), missing=0.3)
    table.observed[:, [1, 4]] = False
    trainer = run_of(backbone, table, batch_size=batch)
    run = train(trainer)
    assert np.isfinite(run.history[-1]["loss"])
    num, cat = trainer.backbone.sample(40, seeded(), steps=4)
    assert num.isfinite().all()
    assert (cat.amax(0) < torch.tensor([3, 1, 2])).all()


@everywhere
def test_every_epoch_uses_every_row(make_table, monkeypatch, backbone):
    table = make_table(n=60, n_num=1, cards=(), missing=0.0)
    trainer, batches = run_of(backbone, table, batch_size=49, steps=3), []
    inner = trainer.backbone.cell_loss

    def watched(batch, generator):
        batches.append(batch.num[:, 0])
        return inner(batch, generator)

    monkeypatch.setattr(trainer.backbone, "cell_loss", watched)
    train(trainer)
    values, rows = torch.cat(batches).numpy(), np.sort(table.num[:, 0].astype("f4"))
    # a batch may span two epochs: no remainder is dropped
    for start in (0, 60):
        np.testing.assert_array_equal(np.sort(values[start : start + 60]), rows)


@every_solver
@pytest.mark.parametrize("reserved", [False, True])
def test_every_solver_gives_valid_rows_that_depend_on_the_seed(
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
def test_invalid_sampler_settings_are_refused(make_table, backbone, options, message):
    model = build(backbone, make_table())
    with pytest.raises(UsageError, match=message):
        model.sample(3, seeded(), **{"steps": 4} | options)


# -- fit, save, load and sample, bit for bit ---------------------------------------


def assert_same(one: AugMask, two: AugMask) -> None:
    first, second = one.backbone_.state_dict(), two.backbone_.state_dict()
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert torch.equal(array, second[name]), name
    pd.testing.assert_frame_equal(one.sample(40, seed=1), two.sample(40, seed=1))


@everywhere
def test_without_missing_values_all_strategies_are_the_same(backbone):
    frame = make_frame(missing=0)
    no_aug = fitted(backbone, frame, augmenter="mean", supervise="all")
    for supervise in ("all", "observed"):
        assert_same(no_aug, fitted(backbone, frame, supervise=supervise))


@everywhere
def test_same_seed_same_file_and_loading_it_gives_the_model(backbone, tmp_path):
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
def test_a_column_that_is_left_out_changes_no_other(backbone, extra):
    frame, wider = make_frame(), make_frame()
    wider.insert(1, "extra", extra)
    plain = fitted(backbone, frame).sample(40, seed=1)
    rows = fitted(backbone, wider).sample(40, seed=1)
    pd.testing.assert_frame_equal(rows.drop(columns="extra"), plain)
