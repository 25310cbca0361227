"""The Triton kernels compute what plain layers do. They need a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from augmask.diffusion import token_kernels
from augmask.diffusion.nets import Block, transformer
from augmask.diffusion.token_kernels import (
    EPS,
    HIDDEN,
    MAX_TOKENS,
    WIDTH,
    attend,
    fits,
)

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIZES = [(5, 1), (3, 7), (7, 16), (300, 15), (5, 17), (4, MAX_TOKENS), (5000, 11)]


@pytest.fixture(autouse=True)
def exact_products():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def random(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).cuda().requires_grad_()


def assert_same_gradients(ours: Tensor, plain: Tensor, inputs: list[Tensor]) -> None:
    """Compare outputs and gradients; the plain ones are in float64."""
    direction = random(*ours.shape, seed=99).detach()
    mine = torch.autograd.grad(ours, inputs, direction)
    theirs = torch.autograd.grad(plain, inputs, direction.to(plain.dtype))
    for a, b in zip((ours, *mine), (plain, *theirs), strict=True):
        scale = b.abs().max().clamp(min=1e-6)
        assert ((a - b) / scale).abs().max() < 2e-5


def plain_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(
        x.double(), (WIDTH,), gamma.double(), beta.double(), EPS
    )


@on_gpu
@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_attention_and_its_gradient(n, d, with_norm):
    x = random(n, d, WIDTH, seed=0)
    weight, bias = random(3 * WIDTH, WIDTH, seed=1), random(3 * WIDTH, seed=2)
    norm = [random(WIDTH, seed=3), random(WIDTH, seed=4)] if with_norm else []
    given = plain_norm(x, *norm) if norm else x.double()
    q, k, v = (given @ weight.double().T + bias.double()).chunk(3, -1)
    plain = x + torch.softmax(q @ k.mT / WIDTH**0.5, -1) @ v
    ours = attend(x, *(norm or (None, None)), weight, bias)
    assert_same_gradients(ours, plain, [x, weight, bias, *norm])


@on_gpu
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_the_feed_forward_layer_and_its_gradient(n, d):
    x = random(n, d, WIDTH, seed=0)
    gamma, beta = random(WIDTH, seed=5), random(WIDTH, seed=6)
    up, up_bias = random(HIDDEN, WIDTH, seed=1), random(HIDDEN, seed=2)
    down, down_bias = random(WIDTH, HIDDEN, seed=3), random(WIDTH, seed=4)
    inputs = [x, gamma, beta, up, up_bias, down, down_bias]
    hidden = (plain_norm(x, gamma, beta) @ up.double().T + up_bias.double()).relu()
    plain = x + hidden @ down.double().T + down_bias.double()
    assert_same_gradients(token_kernels.feed_forward(*inputs), plain, inputs)


@on_gpu
def test_scores_that_are_large_do_not_overflow():
    x = torch.full((2, 3, WIDTH), 40.0, device="cuda")
    weight = torch.eye(WIDTH, device="cuda").repeat(3, 1)
    out = attend(x, None, None, weight, torch.zeros(3 * WIDTH, device="cuda"))
    torch.testing.assert_close(out, 2 * x)


# torch's own compiler uses what torch deprecates
@on_gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_transformer_with_kernels_is_the_plain_one(monkeypatch, compiled):
    torch.manual_seed(0)
    net = transformer(WIDTH, 2).cuda()
    x = random(50, 9, WIDTH, seed=0)
    assert token_kernels.usable(x.device)
    call = torch.compile(net, fullgraph=True) if compiled else net
    ours = call(x)
    monkeypatch.setattr("augmask.diffusion.token_kernels.fits", lambda _: False)
    # no gradient depends on the bias of keys: what is left there is rounding
    inputs = [x, *(p for p in net.parameters() if p.shape != (3 * WIDTH,))]
    assert_same_gradients(ours, net(x), inputs)


@on_gpu
def test_the_same_input_gives_the_same_bits():
    block, x = Block(WIDTH, first=False).cuda(), random(4096, 15, WIDTH, seed=0)
    inputs = [x, *block.parameters()]
    first, second = (torch.autograd.grad(block(x).sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, MAX_TOKENS + 1, WIDTH)])
def test_other_tokens_take_the_plain_layers(shape):
    assert not fits(torch.zeros(shape))
    # 8 numbers a token, or more tokens than the kernels take, on any device
    assert Block(shape[-1], first=True)(torch.zeros(shape)).shape == shape
