"""Networks: time embeddings, an MLP with a bypass, and transformers of narrow tokens.

Much of this is arranged for speed, and computes what the plain layers of torch would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, pad

from augmask.diffusion import token_kernels
from augmask.diffusion.ragged import Ragged

# Adam moves every weight by about the learning rate a step; on a direct path the output
# moves this many times as far.
DIRECT_GAIN = 20.0
FEED_FORWARD_FACTOR = 32
CHUNK = 2048  # tokens whose hidden layer fits into a CPU's cache
HEAD_GAIN = 1 / math.sqrt(2)


# -- time embeddings ---------------------------------------------------------------


class TimeEmbedding(nn.Module):
    """Sinusoids of a time, then Linear, SiLU, Linear.

    Shape
    -----
    - times: [B], embedding: [B, width]
    """

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        frequencies = torch.exp(-math.log(10_000) * torch.arange(half) / half)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(2 * half, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, times: Tensor) -> Tensor:
        """Embed a vector of times."""
        angles = times[:, None] * self.frequencies
        embedded: Tensor = self.layers(torch.cat([angles.cos(), angles.sin()], 1))
        return embedded


class RandomFourier(nn.Module):
    """A scalar function of a scalar, initially zero: random sinusoids, one layer.

    Shape
    -----
    - times: [B], value: [B]
    """

    frequencies: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        frequencies = torch.randn(count) * 2 * math.pi
        self.register_buffer("frequencies", frequencies)
        self.layer = nn.Linear(2 * count, 1)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, times: Tensor) -> Tensor:
        """Evaluate the function."""
        angles = times[:, None] * self.frequencies
        # cos x is sin (x + π/2): compiled, the two would both be computed for each half
        waves = torch.cat([angles, angles + math.pi / 2], 1).sin()
        value: Tensor = self.layer(waves)
        return value[:, 0]


# -- MLP ---------------------------------------------------------------------------


class DirectPath(nn.Module):
    """A linear bypass from input to output, initially zero and gated by the time.

    Dependence between two columns is mostly linear. On a wide table it would have to be
    learned by hidden units that all columns share. On a narrow table the bypass may
    cost more than it gains (docs/research/backbones.md).

    Shape
    -----
    - x: [B, n_in], embedded time: [B, t] or [1, t], out: [B, n_out]
    """

    def __init__(self, n_in: int, n_out: int, time_width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(time_width, n_in)
        nn.init.zeros_(self.gate.weight)
        nn.init.ones_(self.gate.bias)
        self.linear = nn.Linear(n_in, n_out, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return what to add to the output."""
        gated = x * padded_linear(time, self.gate)
        return DIRECT_GAIN * padded_linear(gated, self.linear)


class HiddenLayers(nn.Sequential):
    """Hidden layers of ReLU units, which do most of the arithmetic of a step.

    Attributes
    ----------
    bf16 : bool
        Multiply in bfloat16. Weights, inputs and outputs keep their dtype.
    """

    bf16 = False

    def __init__(self, sizes: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        super().__init__(*layers)
        self.width = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers."""
        if self.bf16:
            return self.forward_bf16(x)[:, : self.width].to(x.dtype)
        for layer in self:
            x = layer(x)
        return x

    def with_head(self, x: Tensor, head: nn.Linear) -> Tensor:
        """Apply all layers, then the head in full precision."""
        if self.bf16 and x.is_cuda and not torch.is_grad_enabled():
            # factors are rounded, sums are not, and nothing is copied
            weight = _padded_to_eights(head.weight.to(torch.bfloat16), (1, 0))
            out = torch.mm(self.forward_bf16(x), weight.t(), out_dtype=torch.float32)
            return out[:, : head.out_features] + head.bias
        return padded_linear(self(x), head)

    def forward_bf16(self, x: Tensor) -> Tensor:
        """Apply all layers in bfloat16; the width is padded to a multiple of 8."""
        layers = [layer for layer in self if isinstance(layer, nn.Linear)]
        x = x.to(torch.bfloat16)
        if x.is_cuda and not torch.is_grad_enabled():
            out = _padded_to_eights(x, (1,))
            for layer in layers:
                weight = _padded_to_eights(layer.weight.to(torch.bfloat16), (1, 0))
                bias = _padded_to_eights(layer.bias.to(torch.bfloat16), (0,))
                out = _linear_relu(out, weight, bias)
            return out
        # A bias is a weight on a constant 1, which every layer passes to the next: so
        # its gradient comes out of the same product as that of the weights.
        out = _padded_to_eights(pad(x, (0, 1), value=1.0), (1,))
        for layer in layers:
            weight = torch.cat([layer.weight, layer.bias[:, None]], 1)
            constant = pad(weight.new_ones(1, 1), (layer.in_features, 0))
            square = torch.cat([weight, constant]).to(torch.bfloat16)
            out = linear(out, _padded_to_eights(square, (1, 0))).relu()
        return out


def mlp(n_in: int, width: int, depth: int) -> HiddenLayers:
    """Return `depth` hidden layers of `width` ReLU units."""
    return HiddenLayers([n_in] + depth * [width])


def padded_linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """Return layer(x); on a GPU padded to sizes that its tensor cores support."""
    if not x.is_cuda:
        out: Tensor = layer(x)
        return out
    weight = _padded_to_eights(layer.weight, (1, 0))
    # a layer may have no bias, which torch's types do not express
    bias = _padded_to_eights(layer.bias, (0,)) if layer.bias is not None else None
    return linear(_padded_to_eights(x, (1,)), weight, bias)[:, : layer.out_features]


@contextmanager
def bf16_matmul(module: Any, enabled: bool) -> Iterator[None]:
    """Context manager: multiply in bfloat16 in the hidden layers of a module."""
    layers = [m for m in module.modules() if isinstance(m, HiddenLayers)]
    for layer in layers:
        layer.bf16 = enabled
    try:
        yield
    finally:
        for layer in layers:
            layer.bf16 = False


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return relu(x weightᵀ + bias)."""
    if x.is_cuda and not torch.is_grad_enabled():
        # a single kernel, which has no gradient
        return torch._addmm_activation(bias, x, weight.t())
    return linear(x, weight, bias).relu()


def _padded_to_eights(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Pad dimensions with zeros to multiples of 8, as fast bfloat16 products need."""
    ends = [end for dim in dims for end in (0, -x.shape[dim] % 8)]
    return pad(x, ends) if any(ends) else x


# -- transformers of narrow tokens -------------------------------------------------
#
# TabDiff's tokens are four numbers wide, so overhead dominates: on a CPU a softmax over
# 15 columns costs more than the products around it, and the 32 times wider hidden layer
# of a block more than everything else. So softmax and feed-forward are written out.


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q kᵀ / √e) v for one head, [B, d, e].

    The sum under the softmax comes out of the same product as the values, from a
    column of ones, so nothing is normalised at size d × d.

    Examples
    --------
    >>> q, k, v = torch.randn(3, 2, 5, 4)
    >>> expected = torch.softmax(q @ k.mT / 2, -1) @ v
    >>> torch.allclose(attention(q, k, v), expected, atol=1e-6)
    True
    """
    width = q.shape[-1]
    k = k / math.sqrt(width)
    if torch.compiler.is_compiling() and not torch.is_grad_enabled():
        # compiled, this is one kernel, and a product of four numbers costs nothing
        scores = (q[..., :, None, :] * k[..., None, :, :]).sum(-1)
        return (scores.softmax(-1)[..., None] * v[..., None, :, :]).sum(-2)
    scores = q @ k.mT
    raised = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    out = raised @ pad(v, (0, 1), value=1.0)
    return out[..., :width] / out[..., width:]


class _FeedForward(torch.autograd.Function):
    """Linear, ReLU, linear without storing the wide hidden layer.

    The hidden layer is computed for a chunk of tokens at a time, and again for the
    gradient: on a CPU this layer is bound by memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        ctx.save_for_backward(x, up, down)
        out = x.new_empty(len(x), len(down))
        hidden = x.new_empty(CHUNK, len(up))
        for start in range(0, len(x), CHUNK):
            part = slice(start, start + CHUNK)
            h = hidden[: len(x[part])]
            torch.mm(x[part], up.T, out=h).relu_()
            out[part] = (down @ h.T).T  # in this order it is twice as fast
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x, up, down = ctx.saved_tensors
        (grad,) = grads
        d_x = torch.empty_like(x)
        d_up, d_down = torch.zeros_like(up.T), torch.zeros_like(down)
        hidden = x.new_empty(CHUNK, len(up))
        d_hidden = torch.empty_like(hidden)
        for start in range(0, len(x), CHUNK):
            part = slice(start, start + CHUNK)
            rows, g = x[part], grad[part]
            h, d_h = hidden[: len(rows)], d_hidden[: len(rows)]
            torch.mm(rows, up.T, out=h).relu_()
            d_down.addmm_(g.T, h)
            torch.mm(g, down, out=d_h)
            d_h.mul_(h.sign_())  # ReLU passes the gradient where h is above zero
            d_up.addmm_(rows.T, d_h)
            torch.mm(d_h, up, out=d_x[part])
        return d_x, d_up.T, d_down


def feed_forward(x: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    """Return down(relu(up(x))) for tokens of any leading shape.

    The bias of the wide layer is a weight on a constant 1: it costs no pass over that
    layer, and its gradient comes out of the same product as that of the weights.

    Examples
    --------
    >>> x, up, down = torch.randn(3, 5, 4), nn.Linear(4, 8), nn.Linear(8, 4)
    >>> expected = down(torch.relu(up(x)))
    >>> torch.allclose(feed_forward(x, up, down), expected, atol=1e-6)
    True
    """
    if x.device.type != "cpu":
        if torch.is_grad_enabled():
            hidden = up(x).relu()
        else:
            flat = _linear_relu(x.flatten(0, -2), up.weight, up.bias)
            hidden = flat.view(*x.shape[:-1], -1)
        plain: Tensor = down(hidden)
        return plain
    flat = pad(x.flatten(0, -2), (0, 1), value=1.0)
    wide = torch.cat([up.weight, up.bias[:, None]], 1)
    out: Tensor = _FeedForward.apply(flat, wide, down.weight)  # type: ignore[no-untyped-call]
    return out.view(x.shape) + down.bias


class Tokenizer(nn.Module):
    """Turn scaled numbers and levels into tokens; [MASK] is one more level.

    Shape
    -----
    - x: [B, d_num], slots and masked: [B, C], out: [B, d_num + C, width]
    """

    def __init__(self, n_num: int, ragged: Ragged, width: int) -> None:
        super().__init__()
        n_cat = len(ragged.offsets)
        # as published: uniform within ± 1 / √width
        self.scale = _uniform(n_num, width)
        self.levels = _uniform(ragged.n_slots, width)
        self.mask = _uniform(n_cat, width)
        self.bias = _uniform(n_num + n_cat, width)

    def forward(self, x: Tensor, slots: Tensor, masked: Tensor) -> Tensor:
        """Return the tokens; `masked` is 1 where a level is masked and 0 elsewhere."""
        # embedding(), not indexing: see `CDTD.category_points` on threads
        levels = embedding(slots, self.levels)
        # lerp is exact at both ends, so a masked level cannot leak
        visible = torch.lerp(levels, self.mask.expand_as(levels), masked[:, :, None])
        return torch.cat([x[:, :, None] * self.scale, visible], 1) + self.bias


class TokenNorm(nn.Module):
    """LayerNorm over a few numbers.

    torch's LayerNorm uses a thread block per token, and a single one for the gradient
    of its weights.
    """

    eps = token_kernels.EPS

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return tokens of mean 0 and variance 1, then scaled and shifted."""
        centred = tokens - tokens.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias


class Block(nn.Module):
    """A pre-norm transformer block: attention and feed-forward with residuals.

    Parameters
    ----------
    width : int
    first : bool
        The first block of a transformer has no norm before its attention.
    """

    def __init__(self, width: int, first: bool) -> None:
        super().__init__()
        hidden = FEED_FORWARD_FACTOR * width
        self.before = nn.Identity() if first else TokenNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        nn.init.zeros_(self.qkv.bias)
        self.norm = TokenNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return tokens of the same shape."""
        if token_kernels.fits(tokens) and token_kernels.usable(tokens.device):
            return self._with_kernels(tokens)
        tokens = tokens + attention(*self.qkv(self.before(tokens)).chunk(3, -1))
        return tokens + feed_forward(self.norm(tokens), self.up, self.down)

    def _with_kernels(self, tokens: Tensor) -> Tensor:
        """Return the same, by two kernels."""
        qkv, norm, up, down = self.qkv, self.norm, self.up, self.down
        gamma = beta = None
        if isinstance(self.before, TokenNorm):
            gamma, beta = self.before.weight, self.before.bias
        tokens = token_kernels.attend(tokens, gamma, beta, qkv.weight, qkv.bias)
        out: Tensor = token_kernels.feed_forward(
            *(tokens, norm.weight, norm.bias),
            *(up.weight, up.bias, down.weight, down.bias),
        )
        return out


def transformer(width: int, depth: int) -> nn.Sequential:
    """Return `depth` blocks."""
    return nn.Sequential(*(Block(width, first=i == 0) for i in range(depth)))


class Heads(nn.Module):
    """Turn tokens into one number per numeric column and one logit per level.

    Every output has weights on its own column's token. As blocks of one mostly zero
    matrix, all outputs are a single product: at these sizes that is faster than
    gathering a token for every level.

    Shape
    -----
    - tokens: [B, d_num + C, width], numbers: [B, d_num], logits: [B, S]
    """

    owner: Tensor

    def __init__(self, n_num: int, ragged: Ragged, width: int) -> None:
        super().__init__()
        self.n_num = n_num
        n_cat = len(ragged.offsets)
        # on the CPU like `ragged`, also under a meta device
        numbers = torch.arange(n_num, device="cpu")
        column = torch.cat([numbers, n_num + ragged.column])
        owner = nn.functional.one_hot(column, n_num + n_cat).float()
        self.register_buffer("owner", owner[:, :, None], persistent=False)
        # Xavier as published, where a column's K logits have one more for [MASK]
        fan_out = torch.cat([torch.full_like(numbers, n_num), ragged.member.sum(0) + 1])
        bound = HEAD_GAIN * (6 / (width + fan_out)).sqrt()
        spread = bound.index_select(0, column)[:, None]
        uniform = 2 * torch.rand(len(column), width) - 1
        self.weight = nn.Parameter(spread.to(uniform.device) * uniform)
        self.bias = nn.Parameter(torch.zeros(ragged.n_slots))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers and logits."""
        blocks = (self.owner.to(tokens.dtype) * self.weight[:, None]).flatten(1)
        out = linear(tokens.flatten(1), blocks)
        return out[:, : self.n_num], out[:, self.n_num :] + self.bias


def _uniform(count: int, width: int) -> nn.Parameter:
    return nn.Parameter((2 * torch.rand(count, width) - 1) / math.sqrt(width))
