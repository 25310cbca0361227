"""TabDiff against a slow reference that follows the paper cell by cell."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from augmask.diffusion import build_backbone
from augmask.diffusion.base import Batch
from augmask.diffusion.tabdiff import PowerSchedules, TabDiff, straight_through_mask
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

SIZES = {"width": 12, "depth": 2, "time_width": 8}
ADULT = Layout(tuple("abcdef"), tuple("ghijklmno"), (2, 9, 16, 7, 15, 6, 5, 2, 42))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(table: Table, dtype: torch.dtype = torch.float32) -> Batch:
    return Batch(
        torch.from_numpy(table.num).to(dtype), torch.from_numpy(table.cat).long()
    )


def perturbed(layout: Layout, seed: int = 0, **keywords) -> TabDiff:
    """Return a float64 model whose weights have all moved from their start."""
    model = build_backbone("tabdiff", layout, seed, **SIZES, **keywords)
    assert isinstance(model, TabDiff)
    model.double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            step = torch.randn(p.shape, generator=generator(i), dtype=p.dtype)
            p.add_(0.3 * step)
    return model


# -- the slow reference: numpy, one row and one column at a time -------------------


def _layer_norm(x, norm):
    if isinstance(norm, torch.nn.Identity):
        return x
    weight, bias = (p.detach().numpy() for p in (norm.weight, norm.bias))
    rows = []
    for token in x:
        mean = sum(token) / len(token)
        variance = sum((v - mean) ** 2 for v in token) / len(token)
        rows.append((token - mean) / math.sqrt(variance + 1e-5) * weight + bias)
    return rows


def _linear(layer, x):
    return layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()


def _slow_transformer(blocks, tokens):
    for block in blocks:
        qkv = [_linear(block.qkv, t) for t in _layer_norm(tokens, block.before)]
        mixed = []
        for i in range(len(tokens)):
            scores = [
                sum(qkv[i][c] * qkv[j][4 + c] for c in range(4)) / 2
                for j in range(len(tokens))
            ]
            raised = [math.exp(s) for s in scores]
            total = sum(raised)
            values = [
                sum(raised[j] / total * qkv[j][8 + c] for j in range(len(tokens)))
                for c in range(4)
            ]
            mixed.append(tokens[i] + np.array(values))
        tokens = [
            t + _linear(block.down, np.maximum(_linear(block.up, n), 0))
            for t, n in zip(mixed, _layer_norm(mixed, block.norm), strict=True)
        ]
    return tokens


def _slow_network(model, layout, x_num, codes, masked, t):
    """Return outputs and lists of logits for one row."""
    net, offsets = model.net, np.concatenate([[0], np.cumsum(layout.cards)])
    scale, levels, mask, bias = (
        p.detach().numpy()
        for p in (net.tokens.scale, net.tokens.levels, net.tokens.mask, net.tokens.bias)
    )
    tokens = [x_num[j] * scale[j] + bias[j] for j in range(layout.n_num)]
    for j in range(layout.n_cat):
        level = mask[j] if masked[j] else levels[offsets[j] + codes[j]]
        tokens.append(level + bias[layout.n_num + j])
    tokens = _slow_transformer(net.encoder, tokens)

    low, high = 0.002 ** (1 / 7), 80 ** (1 / 7)
    c_noise = math.log((low + t * (high - low)) ** 7) / 4
    frequencies = net.time.frequencies.numpy()
    angles = c_noise * frequencies
    time = _linear(net.time.layers[0], np.concatenate([np.cos(angles), np.sin(angles)]))
    time = _linear(net.time.layers[2], time / (1 + np.exp(-time)))
    hidden = _linear(net.project, np.concatenate(tokens)) + time
    for layer in net.hidden:
        if isinstance(layer, torch.nn.Linear):
            hidden = np.maximum(_linear(layer, hidden), 0)
    flat = _linear(net.expand, hidden)
    tokens = [flat[4 * j : 4 * j + 4] for j in range(layout.n_features)]
    tokens = _slow_transformer(net.decoder, tokens)

    weight, bias = (p.detach().numpy() for p in (net.heads.weight, net.heads.bias))
    out = [weight[j] @ tokens[j] for j in range(layout.n_num)]
    logits = [
        [
            weight[layout.n_num + s] @ tokens[layout.n_num + j] + bias[s]
            for s in range(offsets[j], offsets[j + 1])
        ]
        for j in range(layout.n_cat)
    ]
    return out, logits


def slow_cell_losses(model: TabDiff, table: Table, seed: int) -> np.ndarray:
    g, n, layout = generator(seed), len(table), table.layout
    kind = {"generator": g, "dtype": torch.float64}
    start = torch.rand((), **kind).item()
    noise = torch.randn(n, layout.n_num, **kind).numpy()
    uniform = torch.rand(n, layout.n_cat, **kind).numpy()
    r, k = (
        [least + math.log1p(math.exp(v)) for v in raw.tolist()]
        for least, raw in (
            (5, model.schedules.raw_r),
            (1, model.schedules.raw_k),
        )
    )
    losses = np.zeros((n, layout.n_features))
    for b in range(n):
        t = max((start + b / n) % 1, 1e-5)
        sigma, noisy, scaled = [], [], []
        for j in range(layout.n_num):
            low, high = 0.002 ** (1 / r[j]), 80 ** (1 / r[j])
            sigma.append((low + t * (high - low)) ** r[j])
            noisy.append(table.num[b, j] + sigma[j] * noise[b, j])
            scaled.append(noisy[j] / math.sqrt(1 + sigma[j] ** 2))
        m = [(1 - 1e-3 - 1e-5) * t**a + 1e-5 for a in k]
        masked = [uniform[b, j] > 1 - m[j] for j in range(layout.n_cat)]
        out, logits = _slow_network(model, layout, scaled, table.cat[b], masked, t)
        for j, s in enumerate(sigma):
            denoised = noisy[j] / (1 + s**2) + s / math.sqrt(1 + s**2) * out[j]
            error = denoised - table.num[b, j]
            losses[b, j] = (1 + s**2) / s**2 * error**2
        for j in range(layout.n_cat):
            if masked[j]:
                total = sum(math.exp(v) for v in logits[j])
                entropy = -math.log(math.exp(logits[j][table.cat[b, j]]) / total)
                slope = (1 - 1e-3 - 1e-5) * k[j] * t ** (k[j] - 1)
                losses[b, layout.n_num + j] = slope / m[j] * entropy
    return losses


@pytest.mark.parametrize(("n_num", "cards"), [(2, (2, 4, 1)), (3, ()), (0, (3, 2))])
def test_cell_losses_equal_the_slow_reference(make_table, n_num, cards):
    table = make_table(n=12, n_num=n_num, cards=cards)
    model = perturbed(table.layout)
    with torch.no_grad():
        fast = model.cell_loss(batch_of(table, torch.float64), generator(3)).main
    slow = slow_cell_losses(model, table, 3)
    np.testing.assert_allclose(fast.numpy(), slow, rtol=1e-6, atol=1e-12)
    if cards:
        # both kinds of tokens are in the comparison
        assert 0 < (slow[:, n_num] > 0).sum() < 12


def test_parameter_count_of_the_papers_size():
    """2,976,882 with the published code's modules, less what they never use."""
    dead = {
        "CLS token": 4,
        # last norm (weight, bias) and head Linear(4 -> 4) of both transformers
        "last norm and head": 2 * (2 * 4 + 4 * 4 + 4),
        # a logit for [MASK] in each of nine columns: weight and bias
        "mask logits": 9 * (4 + 1),
    }
    model = TabDiff(ADULT)
    network = sum(p.numel() for p in model.net.parameters())
    assert network == 2_976_882 - sum(dead.values())
    schedules = sum(p.numel() for p in model.schedules.parameters())
    assert schedules == ADULT.n_features


# -- schedules and the mask --------------------------------------------------------


def learned_schedules() -> PowerSchedules:
    """Return float64 schedules away from their start."""
    schedules = PowerSchedules(3, 2).double()
    with torch.no_grad():
        schedules.raw_r.copy_(torch.tensor([-3.0, 2.0, 9.0]))
        schedules.raw_k.copy_(torch.tensor([-2.0, 1.5]))
    return schedules


def test_schedules_start_where_the_published_code_starts():
    schedules = PowerSchedules(1, 1).double()
    assert schedules.r.item() == pytest.approx(12.0009, abs=1e-4)
    assert schedules.k.item() == pytest.approx(1.0025, abs=1e-4)


@pytest.mark.parametrize("learnable", [True, False])
def test_schedules_have_fixed_end_points(learnable):
    schedules = learned_schedules()
    schedules.fixed.fill_(not learnable)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    expected = torch.tensor([[0.002] * 3, [80.0] * 3], dtype=torch.float64)
    torch.testing.assert_close(schedules.sigma(ends), expected)
    expected = torch.tensor([[1e-5] * 2, [0.999] * 2], dtype=torch.float64)
    torch.testing.assert_close(schedules.mask(ends), expected)


def test_schedules_follow_their_formulas():
    schedules = learned_schedules()
    t = torch.tensor([0.3], dtype=torch.float64)
    r = [5 + math.log1p(math.exp(raw)) for raw in (-3.0, 2.0, 9.0)]
    k = [1 + math.log1p(math.exp(raw)) for raw in (-2.0, 1.5)]
    sigma = [
        (0.002 ** (1 / a) + 0.3 * (80 ** (1 / a) - 0.002 ** (1 / a))) ** a for a in r
    ]
    mask = [(1 - 1e-3 - 1e-5) * 0.3**a + 1e-5 for a in k]
    weight = [
        (1 - 1e-3 - 1e-5) * a * 0.3 ** (a - 1) / m for a, m in zip(k, mask, strict=True)
    ]
    for result, expected in (
        (schedules.sigma(t), sigma),
        (schedules.mask(t), mask),
        (schedules.mask_weight(t), weight),
    ):
        assert result[0].tolist() == pytest.approx(expected, rel=1e-9)


def test_time_is_the_earliest_at_which_a_column_has_its_sigma():
    schedules = learned_schedules()
    t = torch.linspace(0, 1, 20, dtype=torch.float64)
    torch.testing.assert_close(schedules.time(schedules.sigma(t)), t)
    # a column that is ahead does not matter, one that is behind does
    ahead, behind = schedules.sigma(t[10:11]), schedules.sigma(t[10:11])
    ahead[0, 1] *= 2
    behind[0, 1] /= 2
    assert schedules.time(ahead).item() == pytest.approx(t[10].item())
    assert schedules.time(behind).item() < t[10].item() - 0.01


def test_frozen_schedules_are_fixed_and_have_no_gradient():
    schedules = learned_schedules()
    t = torch.tensor([0.3], dtype=torch.float64)
    assert schedules.freeze()
    assert not schedules.freeze()
    assert schedules.r.tolist() == [7.0] * 3
    assert schedules.k.tolist() == [1.0] * 2
    (schedules.sigma(t).sum() + schedules.mask_weight(t).sum()).backward()
    assert not schedules.raw_r.grad.any()
    assert not schedules.raw_k.grad.any()
    # also after saving and loading
    other = PowerSchedules(3, 2)
    other.load_state_dict(schedules.state_dict())
    assert other.r.tolist() == [7.0] * 3


def test_the_mask_is_hard_and_still_has_a_gradient():
    m = torch.linspace(0.01, 0.99, 99, dtype=torch.float64).requires_grad_()
    uniform = torch.rand(2000, 99, generator=generator(), dtype=torch.float64)
    masked = straight_through_mask(m, uniform)
    assert set(masked.unique().tolist()) == {0.0, 1.0}
    # the relaxed sample is steep at U = 1 - m, rising in m
    masked.sum().backward()
    assert (m.grad > 0).all()
    # and its mean over U has the slope of E[mask] = m, which is 1
    assert m.grad.mean().item() / 2000 == pytest.approx(1.0, rel=0.05)


def test_tokens_are_masked_with_the_probability_of_the_schedule(make_table):
    table = make_table(n=1, n_num=1, cards=(2, 3))
    model = perturbed(table.layout)
    n = 200_000
    for time in (0.1, 0.6):
        m = model.schedules.mask(torch.full((n,), time, dtype=torch.float64))
        uniform = torch.rand(m.shape, generator=generator(), dtype=torch.float64)
        share = straight_through_mask(m, uniform).mean(0)
        spread = (m[0] * (1 - m[0]) / n).sqrt()
        assert ((share - m[0]).abs() < 4 * spread).all()


def test_recover_stops_learning_the_schedules(make_table):
    table = make_table(n=400, n_num=2, cards=(2, 3))
    model = perturbed(table.layout)
    raw = [model.schedules.raw_r, model.schedules.raw_k]

    def gradients():
        loss = model.cell_loss(batch_of(table, torch.float64), generator()).main.sum()
        return torch.autograd.grad(loss, raw)

    assert all(g.all() for g in gradients())
    assert model.recover() == "TabDiff continues with fixed noise schedules"
    assert not any(g.any() for g in gradients())
    assert model.recover() == ""
    fixed = TabDiff(table.layout, **SIZES, learnable=False)
    assert fixed.recover() == ""


def test_gradient_reaches_k_through_the_mask_alone(make_table):
    # numeric losses have no weight m'/m: k acts only through the masked tokens
    table = make_table(n=2000, n_num=1, cards=(3,))
    model = perturbed(table.layout)
    loss = model.cell_loss(batch_of(table, torch.float64), generator()).main[:, 0].sum()
    (gradient,) = torch.autograd.grad(loss, [model.schedules.raw_k])
    assert gradient.all()


# -- weights and the validation loss -----------------------------------------------


def test_annealing_lowers_the_weight_of_numeric_losses():
    model = TabDiff(ADULT, **SIZES)
    assert model.type_weights(0.25) == (0.75, 1.0)
    numeric, categorical = model.type_weights(torch.tensor(0.25))
    assert (float(numeric), float(categorical)) == (0.75, 1.0)
    assert TabDiff(ADULT, **SIZES, anneal=False).type_weights(0.25) == (1.0, 1.0)


def test_the_validation_loss_ignores_learned_schedules(
    make_table,
):
    table = make_table(n=50, n_num=2, cards=(2, 4))
    model = perturbed(table.layout)
    before = model.validation_loss(batch_of(table, torch.float64), generator())
    with torch.no_grad():
        model.schedules.raw_r.add_(3)
        model.schedules.raw_k.add_(3)
    after = model.validation_loss(batch_of(table, torch.float64), generator())
    assert torch.equal(before, after)
    assert before.shape == (50, 4)
    assert (before > 0).all()
    assert (before < 100).all()


def test_the_validation_loss_masks_every_category_once(
    make_table,
):
    table = make_table(n=30, n_num=1, cards=(3, 2))
    model = perturbed(table.layout)
    losses = model.validation_loss(batch_of(table, torch.float64), generator())
    g, n = generator(), len(table)
    kind = {"generator": g, "dtype": torch.float64}
    start = torch.rand((), **kind).item()
    uniform = torch.rand(n, 2, **kind).numpy()
    noise = torch.randn(n, 1, **kind).numpy()
    expected = np.zeros((n, 3))
    low, high = 0.002 ** (1 / 7), 80 ** (1 / 7)
    for b in range(n):
        t = (start + b / n) % 1
        hidden = uniform[b] < (1 - 1e-3 - 1e-5) * t + 1e-5
        for time, masked in ((t, hidden), (1 - t, ~hidden)):
            s = (low + time * (high - low)) ** 7
            x = table.num[b, 0] + s * noise[b, 0]
            scaled = [x / math.sqrt(1 + s**2)]
            out, logits = _slow_network(
                model, table.layout, scaled, table.cat[b], masked, time
            )
            denoised = x / (1 + s**2) + s / math.sqrt(1 + s**2) * out[0]
            expected[b, 0] += (denoised - table.num[b, 0]) ** 2 / 2
            for j in np.flatnonzero(masked):
                p = np.exp(logits[j]) / np.exp(logits[j]).sum()
                expected[b, 1 + j] -= math.log(p[table.cat[b, j]])
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-6)


# -- sampling ----------------------------------------------------------------------


def exact_model(monkeypatch, layout, means, sds, priors):
    """Return a model that denoises independent normals and categories exactly."""
    model = perturbed(layout)
    mu, s = (torch.tensor(v, dtype=torch.float64) for v in (means, sds))
    logits = torch.tensor([p for prior in priors for p in prior]).double().log()
    calls = []

    def exact(x, cat, masked, sigma, time):
        calls.append((cat.clone(), masked.clone()))
        assert sigma.shape == (1, len(means))
        variance = sigma.square()
        mean = (s**2 * x + variance * mu) / (s**2 + variance)
        return mean, logits.expand(len(x), -1)

    monkeypatch.setattr(model, "denoise", exact)
    return model, calls


@pytest.mark.parametrize(("solver", "steps"), [("heun", 60), ("dpmpp_2m", 40)])
def test_an_exact_denoiser_reproduces_the_data(monkeypatch, solver, steps):
    layout = Layout(("x", "y"), ("a", "b"), (2, 3))
    priors = [(0.7, 0.3), (0.5, 0.1, 0.4)]
    model, calls = exact_model(monkeypatch, layout, (1.5, -1.0), (0.4, 1.0), priors)
    n = 20_000
    num, cat = model.sample(n, generator(), steps=steps, solver=solver)
    assert len(calls) == (2 * steps - 1 if solver == "heun" else steps)
    for j, (mu, s) in enumerate([(1.5, 0.4), (-1.0, 1.0)]):
        assert num[:, j].mean().item() == pytest.approx(mu, abs=4 * s / n**0.5)
        assert num[:, j].std().item() == pytest.approx(s, rel=0.03)
    for j, prior in enumerate(priors):
        share = torch.bincount(cat[:, j], minlength=len(prior)) / n
        for p, q in zip(share.tolist(), prior, strict=True):
            assert p == pytest.approx(q, abs=4 * (q * (1 - q) / n) ** 0.5)
    # independent columns stay independent
    assert torch.corrcoef(num.T)[0, 1].abs().item() < 4 / n**0.5


def test_masks_fall_along_the_schedule_and_revealed_categories_stay(monkeypatch):
    layout = Layout(("x",), ("a",), (3,))
    model, calls = exact_model(monkeypatch, layout, (0.0,), (1.0,), [(0.2, 0.3, 0.5)])
    n, steps = 20_000, 11
    model.sample(n, generator(), steps=steps, solver="dpmpp_2m")
    t = torch.linspace(1, 0, steps, dtype=torch.float64)
    expected = model.schedules.mask(t)[:, 0] / 0.999  # all are masked at the start
    shares = torch.stack([masked.mean() for _, masked in calls])
    spread = 4 * (0.25 / n) ** 0.5
    torch.testing.assert_close(shares, expected, rtol=0, atol=spread)
    for (cat, masked), (later, _) in pairwise(calls):
        assert torch.equal(cat[masked == 0], later[masked == 0])


def test_churn_masks_again_and_the_correction_keeps_the_categories(monkeypatch):
    layout = Layout(("x", "y"), ("a",), (3,))
    model, calls = exact_model(
        monkeypatch, layout, (0.0, 0.0), (1.0, 1.0), [(0.2, 0.3, 0.5)]
    )
    n, steps = 20_000, 10
    model.sample(n, generator(), steps=steps)
    first, second = calls[0::2], calls[1::2]
    for (cat, masked), (same, still) in zip(first, second, strict=False):
        assert torch.equal(cat, same)
        assert torch.equal(masked, still)

    # t_hat is later than t where there is room, and never later than 1
    t = torch.linspace(1, 0, steps, dtype=torch.float64)
    sigma = model.schedules.sigma(t)
    t_hat, sigma_hat = model.sampler(steps, "heun").churned(1 / steps)
    assert t_hat[0] == 1
    assert torch.equal(sigma_hat[0], sigma[0])
    assert (t_hat[2:] > t[2:] + 1e-3).all()
    torch.testing.assert_close(sigma_hat[2:], 1.1 * sigma[2:])
    # the share of masks is that of t_hat; at t = 1 it is 1, not 0.999
    shares = torch.stack([masked.mean() for _, masked in first])
    expected = model.schedules.mask(t_hat)[:, 0]
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.001 + 3 * 0.5 / n**0.5)
    masked_again = sum(
        bool(((before == 0) & (after == 1)).any())
        for (_, before), (_, after) in pairwise(first)
    )
    assert masked_again > 0


@pytest.mark.parametrize("solver", TabDiff.solvers)
@pytest.mark.parametrize(
    ("n_num", "cards"),
    [(2, (3, 2)), (2, ()), (0, (3, 2)), (1, ()), (0, (4,)), (0, (1,))],
)
def test_samples_are_valid_for_any_mix_of_columns(make_table, n_num, cards, solver):
    table = make_table(n=20, n_num=n_num, cards=cards)
    model = TabDiff(table.layout, **SIZES)
    samples = [model.sample(33, generator(5), steps=4, solver=solver) for _ in range(2)]
    num, cat = samples[0]
    assert num.shape == (33, n_num)
    assert cat.shape == (33, len(cards))
    assert num.isfinite().all()
    assert ((cat >= 0) & (cat < torch.tensor(cards, dtype=torch.long))).all()
    assert torch.equal(num, samples[1].num)
    assert torch.equal(cat, samples[1].cat)
    other = model.sample(33, generator(6), steps=4, solver=solver)
    assert cards == (1,) or not (
        torch.equal(num, other.num) and torch.equal(cat, other.cat)
    )


@pytest.mark.parametrize("solver", TabDiff.solvers)
def test_a_reserved_level_is_never_emitted(solver):
    model = TabDiff(Layout((), ("a",), (3,), reserved=True), **SIZES)
    with torch.no_grad():
        model.net.heads.bias[2] = 50.0  # as if it were the only level
    cat = model.sample(200, generator(), steps=3, solver=solver).cat
    assert set(cat[:, 0].tolist()) == {0, 1}


def test_a_batch_of_one_row(make_table):
    table = make_table(n=1)
    loss = TabDiff(table.layout, **SIZES).cell_loss(batch_of(table), generator()).main
    assert loss.shape == (1, 4)
    assert loss.isfinite().all()


def test_invalid_sampler_settings_are_refused():
    model = TabDiff(Layout(("x",), (), ()), **SIZES)
    with pytest.raises(UsageError, match=r"solver must be one of .*got 'euler'"):
        model.sample(1, generator(), steps=3, solver="euler")
    with pytest.raises(UsageError, match=r"steps must be at least 2 .*got 1"):
        model.sample(1, generator(), steps=1)
