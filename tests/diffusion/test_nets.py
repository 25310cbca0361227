"""Networks against their plain definitions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from augmask.diffusion import nets
from augmask.diffusion.nets import (
    Block,
    DirectPath,
    Heads,
    Tokenizer,
    attention,
    bf16_matmul,
    mlp,
)
from augmask.diffusion.ragged import Ragged


def doubles(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def plain_block(block: Block, x: torch.Tensor) -> torch.Tensor:
    q, k, v = block.qkv(block.before(x)).chunk(3, -1)
    x = x + torch.softmax(q @ k.mT / 2, -1) @ v
    return x + block.down(torch.relu(block.up(block.norm(x))))


@pytest.mark.parametrize("chunk", [7, 12, 1000])
@pytest.mark.parametrize("first", [True, False])
def test_a_block_and_its_gradients_equal_the_plain_ones(monkeypatch, first, chunk):
    monkeypatch.setattr(nets, "CHUNK", chunk)
    torch.manual_seed(0)
    block = Block(4, first).double()
    with torch.no_grad():
        for i, p in enumerate(block.parameters()):
            p.add_(0.3 * doubles(*p.shape, seed=i))
    assert isinstance(block.before, nn.Identity) == first
    x, direction = doubles(4, 6, 4).requires_grad_(), doubles(4, 6, 4, seed=1)
    wanted = [x, *block.parameters()]
    ours, plain = block(x), plain_block(block, x)
    torch.testing.assert_close(ours, plain)
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), wanted),
        torch.autograd.grad((plain * direction).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_attention_does_not_overflow():
    q = torch.full((1, 3, 4), 40.0)
    k = q * torch.tensor([1.0, -1.0, 0.5])[:, None]
    v = torch.eye(3, 4)[None]
    expected = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, 3, 4)
    torch.testing.assert_close(attention(q, k, v), expected)


def test_a_masked_token_does_not_depend_on_the_level():
    tokenizer = Tokenizer(1, Ragged((2, 3)), 4)
    x = torch.tensor([[0.5], [0.5]])
    # both columns differ between the rows, the second one is masked
    out = tokenizer(x, torch.tensor([[0, 2], [1, 4]]), torch.tensor([[0.0, 1.0]] * 2))
    assert torch.equal(out[0, 2], out[1, 2])
    assert torch.equal(out[0, 2], tokenizer.mask[1] + tokenizer.bias[2])
    assert torch.equal(out[1, 1], tokenizer.levels[1] + tokenizer.bias[1])
    assert torch.equal(out[0, 0], 0.5 * tokenizer.scale[0] + tokenizer.bias[0])


def test_every_output_depends_on_its_own_columns_token_only():
    cards = (2, 3)
    heads = Heads(2, Ragged(cards), 4).double()
    with torch.no_grad():
        heads.bias.copy_(doubles(5, seed=3))
    tokens = doubles(3, 4, 4)
    num, logits = heads(tokens)
    for b in range(3):
        for j in range(2):
            assert num[b, j].item() == pytest.approx(
                (heads.weight[j] * tokens[b, j]).sum().item()
            )
        for s, column in enumerate((0, 0, 1, 1, 1)):
            expected = (heads.weight[2 + s] * tokens[b, 2 + column]).sum()
            assert logits[b, s].item() == pytest.approx(
                (expected + heads.bias[s]).item()
            )


def test_a_direct_path_is_linear_in_the_row_and_initially_zero():
    path = DirectPath(3, 2, 4)
    generator = torch.Generator().manual_seed(0)
    x, time = torch.randn(5, 3, generator=generator), torch.randn(5, 4)
    assert not path(x, time).any()
    with torch.no_grad():
        for p in path.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    torch.testing.assert_close(path(3 * x, time), 3 * path(x, time))
    assert not torch.allclose(path(x, time), path(x, time[:1]))


@pytest.mark.parametrize("depth", [1, 3])
def test_hidden_layers_in_bf16_round_and_keep_the_gradient(depth):
    """Biases ride along as weights on a constant, and widths are padded."""
    torch.manual_seed(0)
    layers, head = mlp(5, 12, depth), nn.Linear(12, 3)
    x = doubles(40, 5).float()
    exact = layers.with_head(x, head)
    with bf16_matmul(layers, True):
        rounded = layers.with_head(x, head)
    assert not layers.bf16
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.02)
    bias = layers[0].bias
    one, two = (
        torch.autograd.grad(out.sum(), bias, retain_graph=True)[0]
        for out in (exact, rounded)
    )
    torch.testing.assert_close(two, one, rtol=0.1, atol=0.3)
