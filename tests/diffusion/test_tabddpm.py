"""TabDDPM against Bayes' rule on explicit transition matrices, and exact denoisers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from augmask.diffusion.base import Batch
from augmask.diffusion.tabddpm import Step, TabDDPM, cosine_signal, sampling_times
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

SIZES = {"width": 12, "depth": 2, "time_width": 8}
MIXES = [(2, (3, 2)), (2, ()), (0, (3, 2)), (1, ()), (0, (4,)), (0, (1,)), (1, (1, 3))]


def batch_of(table: Table, dtype: torch.dtype = torch.float32) -> Batch:
    return Batch(
        torch.from_numpy(table.num).to(dtype), torch.from_numpy(table.cat).long()
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def perturbed(table: Table, **settings) -> TabDDPM:
    """Return a float64 model with weights far enough from zero to matter."""
    model = TabDDPM(table.layout, **SIZES, **settings).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.4 * torch.randn(p.shape, generator=seeded(1)))
    return model


def betas_of(timesteps: int) -> list[float]:
    def cosine(r: float) -> float:
        return math.cos((r + 0.008) / 1.008 * math.pi / 2) ** 2

    return [
        min(1 - cosine((t + 1) / timesteps) / cosine(t / timesteps), 0.999)
        for t in range(timesteps)
    ]


def one_step(beta: float, card: int) -> np.ndarray:
    """Return the matrix of one forward step, from level (row) to level (column)."""
    return (1 - beta) * np.eye(card) + beta * np.full((card, card), 1 / card)


def slow_cell_losses(model: TabDDPM, table: Table, seed: int) -> torch.Tensor:
    """Compute the losses with loops; posteriors by Bayes' rule."""
    g = seeded(seed)
    n, layout, timesteps = len(table), table.layout, model.timesteps
    kind = {"generator": g, "dtype": torch.float64}
    start = torch.rand((), **kind).item()
    eps = torch.randn(n, layout.n_num, **kind)
    keep = torch.rand(n, layout.n_cat, **kind)
    other = torch.rand(n, layout.n_cat, **kind)
    betas = betas_of(timesteps)
    # created in float32: right to 1e-7, and then the same for both
    frequencies = model.time.frequencies
    published = torch.tensor([10000 ** (-k / 4) for k in range(4)], dtype=torch.float64)
    torch.testing.assert_close(frequencies, published, rtol=1e-6, atol=0)

    out = torch.zeros(n, layout.n_features, dtype=torch.float64)
    for b in range(n):
        t = int((start + b / n) % 1.0 * timesteps)
        signal = math.prod(1 - beta for beta in betas[: t + 1])
        inputs: list[float] = []
        for j in range(layout.n_num):
            noise = math.sqrt(1 - signal) * eps[b, j].item()
            inputs.append(math.sqrt(signal) * table.num[b, j] + noise)
        codes = []
        for j, card in enumerate(layout.cards):
            unchanged = keep[b, j].item() < signal
            codes.append(
                table.cat[b, j] if unchanged else int(other[b, j].item() * card)
            )
            yes, no = (0.0, math.log(1e-30)) if model.log_onehot else (1.0, 0.0)
            inputs += [yes if k == codes[j] else no for k in range(card)]
        angles = t * frequencies
        time = model.time.layers(torch.cat([angles.cos(), angles.sin()]))
        row = torch.tensor(inputs, dtype=torch.float64)
        output = model.head(model.hidden(model.project(row) + time))
        for j in range(layout.n_num):
            out[b, j] = (output[j].item() - eps[b, j].item()) ** 2
        logits = output[layout.n_num :].split(layout.cards)
        for j, card in enumerate(layout.cards):
            p = logits[j].softmax(0).detach().numpy()
            before = np.eye(card)
            for beta in betas[:t]:
                before = before @ one_step(beta, card)
            likelihood = one_step(betas[t], card)[:, codes[j]]
            true = likelihood * before[table.cat[b, j]]
            predicted = likelihood * (p @ before)
            true, predicted = true / true.sum(), predicted / predicted.sum()
            loss = sum(
                true[k] * math.log(true[k] / predicted[k])
                for k in range(card)
                if true[k] > 0
            )
            if t == 0:
                assert loss == pytest.approx(-math.log(predicted[table.cat[b, j]]))
            out[b, layout.n_num + j] = timesteps * loss
    return out


@pytest.mark.parametrize("timesteps", [4, 1000])
@pytest.mark.parametrize("log_onehot", [False, True])
def test_cell_losses_equal_the_slow_reference(make_table, timesteps, log_onehot):
    table = make_table(n=11, n_num=2, cards=(2, 1, 5))
    model = perturbed(table, timesteps=timesteps, log_onehot=log_onehot)
    if log_onehot:
        with torch.no_grad():
            model.project.weight /= 50  # or else every softmax is saturated
    with torch.no_grad():
        fast = model.cell_loss(batch_of(table, torch.float64), seeded(3))
        slow = slow_cell_losses(model, table, 3)
    assert not fast.aux
    assert (slow[:, [0, 1, 2, 4]] > 0).all()
    # a divergence of 1e-9 is all that is left at the last time: hence atol
    torch.testing.assert_close(fast.main, slow, rtol=1e-6, atol=1e-10)


def step_at(model: TabDDPM, t: int, rows: int) -> Step:
    coefficients = model.step_table.sum(0)[t]
    return Step(*coefficients[:, None, None].expand(-1, rows, 1))


def losses_at(model: TabDDPM, batch: Batch, t: int) -> torch.Tensor:
    times = torch.full((len(batch.num),), t)
    with torch.no_grad():
        return model.losses_at(batch, times, seeded())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_divergence_is_never_negative_and_zero_for_the_truth(
    make_table, monkeypatch, dtype
):
    table = make_table(n=200, n_num=0, cards=(2, 4, 30))
    batch = batch_of(table, dtype)
    model = perturbed(table).to(dtype)
    for t in (0, 1, 10, 500, 990, 999):
        assert losses_at(model, batch, t).min() >= 0
    logits = 1e3 * model.ragged.one_hot(batch.cat, batch.num)
    monkeypatch.setattr(model, "predict", lambda x_num, *_: (x_num, logits))
    for t in (0, 1, 10, 500, 990, 999):
        assert losses_at(model, batch, t).max() < 1e-9


def test_float32_keeps_the_divergence(make_table):
    table = make_table(n=400, n_num=1, cards=(2, 7, 42))
    model = perturbed(table)
    exact, single = [], []
    for t in (0, 1, 3, 30, 300, 700, 950, 998):
        # both get the same noise
        wide = Batch(torch.from_numpy(table.num), torch.from_numpy(table.cat).long())
        noise = model.add_noise(wide, step_at(model, t, len(table)), seeded(t))
        for dtype, losses in ((torch.float64, exact), (torch.float32, single)):
            copy = perturbed(table).to(dtype)
            cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in noise)
            copy.add_noise = lambda *_, cast=cast: cast
            losses.append(losses_at(copy, batch_of(table, dtype), t).double())
    error = (torch.stack(exact) - torch.stack(single)).abs()
    # measured: at most 4e-5, of losses around 5; a cumulative log-sum-exp has 0.8
    assert error.max() < 2e-4


@pytest.mark.parametrize("t", [0, 200, 500, 999])
def test_noise_has_the_distribution_of_the_forward_process(t):
    cards, n = (2, 6), 60_000
    layout = Layout(("x",), ("a", "b"), cards)
    model = TabDDPM(layout, **SIZES)
    codes = torch.tensor([1, 4]).expand(n, -1)
    batch = Batch(torch.full((n, 1), 2.0), codes)
    x_num, eps, x_cat = model.add_noise(batch, step_at(model, t, n), seeded(t))
    signal = math.prod(1 - beta for beta in betas_of(1000)[: t + 1])
    for j, card in enumerate(cards):
        share = torch.bincount(x_cat[:, j], minlength=card) / n
        p = torch.full((card,), (1 - signal) / card)
        p[codes[0, j]] += signal
        assert ((share - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert x_num.mean().item() == pytest.approx(2 * math.sqrt(signal), abs=5 / n**0.5)
    assert x_num.std().item() == pytest.approx(math.sqrt(1 - signal), rel=0.02)
    assert abs(eps.mean().item()) < 5 / n**0.5


def test_times_of_a_batch_are_spread_and_cover_both_ends(monkeypatch):
    model = TabDDPM(Layout(("x",), (), ()), **SIZES)
    times = []
    monkeypatch.setattr(model, "losses_at", lambda _, t, __: times.append(t) or t)
    batch = Batch(torch.zeros(1000, 1), torch.zeros(1000, 0, dtype=torch.long))
    model.cell_loss(batch, seeded())
    model.validation_loss(batch, seeded())
    assert len(times[0].unique()) > 950
    assert times[0].min() <= 1
    assert times[0].max() >= 998
    assert times[1].tolist() == list(range(1000))


def test_parameter_count_of_the_papers_size():
    cards = (2, 9, 16, 7, 15, 6, 5, 2, 42)
    model = TabDDPM(Layout(tuple("abcdef"), tuple("ghijklmno"), cards))
    assert sum(p.numel() for p in model.parameters()) == 240_110


# -- sampling -----------------------------------------------------------------------


class RawTime(torch.nn.Module):
    """Replaces the embedding, so that an exact denoiser gets t itself."""

    def forward(self, times: torch.Tensor) -> torch.Tensor:
        return times[:, None]


MU, SD = 1.5, 0.5
JOINT = torch.tensor([[0.30, 0.05, 0.10], [0.02, 0.38, 0.15]], dtype=torch.float64)


def exact_model(sd: float = SD) -> tuple[TabDDPM, list[int]]:
    """Return the exact model of x ~ N(MU, sd²) and (a, b) ~ JOINT, and its times.

    h(p) multiplies p by the evidence of the column's own x_t, so the right p is the
    distribution of a category given the *other* columns of the noisy row.
    """
    model = TabDDPM(Layout(("x",), ("a", "b"), (2, 3)), **SIZES).double()
    model.time = RawTime()
    signals = cosine_signal(1000)
    visited: list[int] = []

    def exact(x_num, onehot, time, _step):
        visited.append(int(time))
        signal = float(signals[int(time)])
        noise = 1 - signal
        spread = signal * sd**2 + noise
        eps = math.sqrt(noise) * (x_num - math.sqrt(signal) * MU) / spread
        a, b = onehot.split([2, 3], 1)
        evidence_a = signal * a + noise / 2
        evidence_b = signal * b + noise / 3
        p = torch.cat([evidence_b @ JOINT.T, evidence_a @ JOINT], 1)
        return eps, p.log()

    model.predict = exact
    return model, visited


@pytest.mark.parametrize(
    ("steps", "solver", "sd_error"),
    # the error of the step size at this SD, known in closed form, is below sd_error
    [(1000, "ancestral", 0.002), (100, "ancestral", 0.012), (100, "ddim", 0.018)],
)
def test_an_exact_denoiser_reproduces_the_data(steps, solver, sd_error):
    n = 8_000
    model, visited = exact_model()
    num, cat = model.sample(n, seeded(4), steps=steps, solver=solver)
    assert num.mean().item() == pytest.approx(MU, abs=5 * SD / n**0.5)
    five_errors = 5 / (2 * n) ** 0.5
    assert num.std().item() == pytest.approx(SD, rel=sd_error + five_errors)
    share = torch.bincount(cat[:, 0] * 3 + cat[:, 1], minlength=6).view(2, 3) / n
    error = 5 * (JOINT * (1 - JOINT) / n).sqrt()
    # columns are drawn independently within a step: a small error in long steps
    assert ((share - JOINT).abs() <= error + (0.01 if steps < 1000 else 0)).all()
    assert len(visited) == steps
    if steps == 1000:
        assert visited == list(range(999, -1, -1))


def test_random_steps_of_any_length_are_exact_for_data_of_variance_one():
    n = 20_000
    model, _ = exact_model(sd=1.0)
    num = model.sample(n, seeded(6), steps=8).num
    assert num.mean().item() == pytest.approx(MU, abs=5 / n**0.5)
    assert num.std().item() == pytest.approx(1.0, rel=5 / (2 * n) ** 0.5)


def test_interpolated_variance_keeps_the_spread_in_few_steps():
    def excess(solver, sd=0.2):
        model, _ = exact_model(sd=sd)
        rows = model.sample(20_000, seeded(6), steps=40, solver=solver).num
        return float(rows.std() / sd - 1)

    # the variances of a linear recursion, in closed form, and five standard errors
    five = 5 / (2 * 20_000) ** 0.5
    assert excess("ancestral") == pytest.approx(0.080, abs=five)
    for sd, short in [(0.1, -0.030), (0.2, -0.020), (0.5, -0.016), (1.0, -0.020)]:
        assert excess("interpolated_variance", sd) == pytest.approx(short, abs=five)
    assert excess("ddim") < excess("interpolated_variance")


@pytest.mark.parametrize("solver", ["ancestral", "ddim"])
def test_with_normal_start_an_output_of_zero_means_standard_normal_numbers(solver):
    n = 20_000
    model = TabDDPM(Layout(("x",), (), ()), normal_start=True, **SIZES)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    num = model.sample(n, seeded(7), steps=50, solver=solver).num
    assert num.mean().item() == pytest.approx(0, abs=5 / n**0.5)
    # DDIM's long steps have a small error
    slack = 0.02 if solver == "ddim" else 0.0
    assert num.std().item() == pytest.approx(1, rel=5 / (2 * n) ** 0.5 + slack)
    # and its loss is what remains to learn: Var(ε | x_t) = ᾱ, half of it on average
    rows = torch.randn(n, 1, generator=seeded(8))
    loss = model.cell_loss(Batch(rows, torch.zeros(n, 0).long()), seeded(9)).main
    assert loss.mean().item() == pytest.approx(model.signal.mean(), abs=0.02)


def test_fewer_steps_visit_distinct_times_from_last_to_first():
    for steps in (2, 3, 10, 137, 999, 1000):
        times = sampling_times(1000, steps)
        assert len(times) == steps
        assert (np.diff(times) < 0).all()
        assert (times[0], times[-1]) == (999, 0)


@pytest.mark.parametrize("solver", TabDDPM.solvers)
@pytest.mark.parametrize(("n_num", "cards"), MIXES)
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_samples_are_valid_for_any_mix_of_columns(
    make_table, n_num, cards, solver, clip
):
    table = make_table(n=20, n_num=n_num, cards=cards)
    model = TabDDPM(table.layout, **SIZES, clip=clip)
    model.init_from_data(table)
    samples = [
        model.sample(33, seeded(5), steps=steps, solver=solver) for steps in (4, 4, 1)
    ]
    for num, cat in samples:
        assert num.shape == (33, n_num)
        assert cat.shape == (33, len(cards))
        assert num.isfinite().all()
        assert ((cat >= 0) & (cat < torch.tensor(cards, dtype=torch.long))).all()
    assert torch.equal(samples[0].num, samples[1].num)
    assert torch.equal(samples[0].cat, samples[1].cat)
    loss = model.cell_loss(Batch(num[:1], cat[:1]), seeded()).main
    assert loss.shape == (1, n_num + len(cards))
    assert loss.isfinite().all()


def test_clipping_bounds_numbers_by_the_largest_observed_one(make_table):
    table = make_table(n=50, n_num=2, cards=(), missing=0.5)
    outliers = np.where(table.num_observed, table.num, 99.0)
    model = TabDDPM(table.layout, **SIZES, clip=1.0)
    model.init_from_data(table.filled(outliers, table.cat))
    limit = np.where(table.num_observed, np.abs(table.num), 0).max(0)
    largest = model.sample(300, seeded(), steps=20).num.abs().amax(0).numpy()
    assert (largest <= limit * (1 + 1e-6)).all()
    assert "largest" in model.state_dict()
    assert "largest" not in TabDDPM(table.layout, **SIZES).state_dict()


def test_a_reserved_level_is_never_emitted(monkeypatch):
    model = TabDDPM(Layout((), ("a", "b"), (3, 2), reserved=True), **SIZES)
    # even if the network predicts the placeholder everywhere
    logits = torch.tensor([0.0, 0.0, 50.0, 0.0, 50.0])
    monkeypatch.setattr(
        model, "predict", lambda x_num, *_: (x_num, logits.expand(len(x_num), -1))
    )
    cat = model.sample(500, seeded(), steps=5).cat
    assert cat.amax(0).tolist() == [1, 0]


@pytest.mark.parametrize("steps", [0, 1001])
def test_more_steps_than_timesteps_are_refused(steps):
    model = TabDDPM(Layout(("x",), (), ()), **SIZES)
    with pytest.raises(UsageError, match=f"between 1 and 1000.*got {steps}"):
        model.sample(3, seeded(), steps=steps)


def test_an_unknown_solver_is_refused():
    model = TabDDPM(Layout(("x",), (), ()), **SIZES)
    with pytest.raises(UsageError, match=r"one of .*'ddim'.*, got 'dddim'"):
        model.sample(3, seeded(), steps=10, solver="dddim")
    with pytest.raises(UsageError, match="timesteps must be at least 2, got 1"):
        TabDDPM(Layout(("x",), (), ()), timesteps=1)
