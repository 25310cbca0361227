"""TabDiff's tokens: four numbers per cell, and transformers that let cells look around.

Tokens this narrow are all overhead: on a CPU a softmax over 15 columns costs more than
the products around it, and the 32 times wider hidden layer of a block more than
everything else. So softmax and feed-forward are written out here, the same functions
as everywhere, arranged for many rows of few numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, pad

from augmask.diffusion.nets import units
from augmask.diffusion.ragged import Ragged

FEED_FORWARD_FACTOR = 32
CHUNK = 2048  # tokens whose hidden layer fits into a CPU's cache
HEAD_GAIN = 1 / math.sqrt(2)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q kᵀ / √e) v for one head, [B, d, e].

    The sum under the softmax comes out of the same product as the values, from a
    column of ones, so nothing is normalised at the size d × d.

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
        # a compiler makes one kernel of it, and a product of four numbers is no work
        scores = (q[..., :, None, :] * k[..., None, :, :]).sum(-1)
        return (scores.softmax(-1)[..., None] * v[..., None, :, :]).sum(-2)
    scores = q @ k.mT
    raised = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    out = raised @ pad(v, (0, 1), value=1.0)
    return out[..., :width] / out[..., width:]


class _FeedForward(torch.autograd.Function):
    """Product, ReLU, product without keeping the wide hidden layer between them.

    A chunk of tokens at a time, its hidden layer is computed, used and overwritten, and
    computed again for the gradient: memory is what this layer spends its time on, on
    a CPU.
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
        wide = up(x).relu() if torch.is_grad_enabled() else units(x, up)
        plain: Tensor = down(wide)
        return plain
    flat = pad(x.flatten(0, -2), (0, 1), value=1.0)
    wide = torch.cat([up.weight, up.bias[:, None]], 1)
    out: Tensor = _FeedForward.apply(flat, wide, down.weight)  # type: ignore[no-untyped-call]
    return out.view(x.shape) + down.bias


class Tokenizer(nn.Module):
    """Scaled numbers and levels to tokens; the masked token is a level of its own.

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
        """Return the tokens; `masked` is 1 where a level is hidden and 0 elsewhere."""
        # embedding(), not indexing: see CDTD on gradients and threads
        levels = embedding(slots, self.levels)
        # lerp is exact at both ends, so a hidden level cannot shine through
        seen = torch.lerp(levels, self.mask.expand_as(levels), masked[:, :, None])
        return torch.cat([x[:, :, None] * self.scale, seen], 1) + self.bias


class TokenNorm(nn.Module):
    """LayerNorm over a handful of numbers, written out.

    torch's own spends a thread block on four numbers, and its gradient on a GPU runs
    through all tokens in one.
    """

    eps = 1e-5

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
    """Attention and feed-forward, each behind a norm and added to the tokens.

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
        tokens = tokens + attention(*self.qkv(self.before(tokens)).chunk(3, -1))
        return tokens + feed_forward(self.norm(tokens), self.up, self.down)


def transformer(width: int, depth: int) -> nn.Sequential:
    """Return `depth` blocks."""
    return nn.Sequential(*(Block(width, first=i == 0) for i in range(depth)))


class Heads(nn.Module):
    """Tokens to one number per numeric column and one logit per level.

    Every output has four weights on its own column's token. Laid out block by block
    they are one matrix, mostly zeros, and all outputs one product: at these sizes that
    is faster than to gather a token for every level.

    Shape
    -----
    - tokens: [B, d_num + C, width], numbers: [B, d_num], logits: [B, S]
    """

    owner: Tensor

    def __init__(self, n_num: int, ragged: Ragged, width: int) -> None:
        super().__init__()
        self.n_num = n_num
        n_cat = len(ragged.offsets)
        # beside what `ragged` has, also where a network is built of shapes only
        numbers = torch.arange(n_num, device="cpu")
        column = torch.cat([numbers, n_num + ragged.column])
        owner = nn.functional.one_hot(column, n_num + n_cat).float()
        self.register_buffer("owner", owner[:, :, None], persistent=False)
        # Xavier as published, where a column's K logits have one more for [MASK]
        alike = torch.full_like(numbers, n_num)
        fan_out = torch.cat([alike, ragged.member.sum(0) + 1])
        bound = HEAD_GAIN * (6 / (width + fan_out)).sqrt()
        spread = bound.index_select(0, column)[:, None]
        even = 2 * torch.rand(len(column), width) - 1
        self.weight = nn.Parameter(spread.to(even.device) * even)
        self.bias = nn.Parameter(torch.zeros(ragged.n_slots))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers and logits."""
        blocks = (self.owner.to(tokens.dtype) * self.weight[:, None]).flatten(1)
        out = linear(tokens.flatten(1), blocks)
        return out[:, : self.n_num], out[:, self.n_num :] + self.bias


def _uniform(count: int, width: int) -> nn.Parameter:
    return nn.Parameter((2 * torch.rand(count, width) - 1) / math.sqrt(width))
