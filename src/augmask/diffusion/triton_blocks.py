"""The Triton kernels of `token_kernels`.

Matrices are padded to 16 × 16, the least that tensor cores take. Tokens get a constant
1 as a further number, so a bias is one more row of weights.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from augmask.diffusion.token_kernels import HIDDEN, TILE, WIDTH

PAD = 16


# -- attention ---------------------------------------------------------------------


@triton.jit
def _load_tokens(x, row, d, ROWS: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr):
    """Return the tokens of a row, and a constant 1 behind each."""
    i, c = tl.arange(0, ROWS)[:, None], tl.arange(0, PAD)[None, :]
    tokens = tl.load(x + (row * d + i) * W + c, mask=(i < d) & (c < W), other=0.0)
    return tl.where((c == W) & (i < d), 1.0, tokens)


@triton.jit
def _load_weights(weight, bias, part, W: tl.constexpr, PAD: tl.constexpr):
    """Return the weights of q, k or v, transposed, with the bias as a row."""
    r, c = tl.arange(0, PAD)[:, None], tl.arange(0, PAD)[None, :]
    place = part * W + c
    used = (r < W) & (c < W)
    values = tl.load(weight + place * W + r, mask=used, other=0.0)
    row = tl.load(bias + place, mask=(c < W) & (r == W), other=0.0)
    return values + row


@triton.jit
def _softmax(q, k, d, scale, ROWS: tl.constexpr, PRECISION: tl.constexpr):
    """Return softmax(scale q kᵀ) over the d keys of a row."""
    scores = scale * tl.dot(q, tl.trans(k), input_precision=PRECISION)
    scores = tl.where(tl.arange(0, ROWS)[None, :] < d, scores, float("-inf"))
    raised = tl.exp(scores - tl.max(scores, 1)[:, None])
    return raised / tl.sum(raised, 1)[:, None]


@triton.jit
def _attend(
    x,
    weight,
    bias,
    out,
    n,
    d,
    scale,
    ROWS: tl.constexpr,
    W: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wq = _load_weights(weight, bias, 0, W, PAD)
    wk = _load_weights(weight, bias, 1, W, PAD)
    wv = _load_weights(weight, bias, 2, W, PAD)
    i, c = tl.arange(0, ROWS)[:, None], tl.arange(0, PAD)[None, :]
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        tokens = _load_tokens(x, row, d, ROWS, W, PAD)
        q = tl.dot(tokens, wq, input_precision=PRECISION)
        k = tl.dot(tokens, wk, input_precision=PRECISION)
        v = tl.dot(tokens, wv, input_precision=PRECISION)
        p = _softmax(q, k, d, scale, ROWS, PRECISION)
        values = tl.dot(p, v, input_precision=PRECISION)
        tl.store(out + (row * d + i) * W + c, values, mask=(i < d) & (c < W))


@triton.jit
def _attend_backward(
    grad,
    x,
    weight,
    bias,
    d_x,
    parts,
    n,
    d,
    scale,
    ROWS: tl.constexpr,
    W: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wq = _load_weights(weight, bias, 0, W, PAD)
    wk = _load_weights(weight, bias, 1, W, PAD)
    wv = _load_weights(weight, bias, 2, W, PAD)
    d_wq = tl.zeros((PAD, PAD), tl.float32)
    d_wk = tl.zeros((PAD, PAD), tl.float32)
    d_wv = tl.zeros((PAD, PAD), tl.float32)
    i, c = tl.arange(0, ROWS)[:, None], tl.arange(0, PAD)[None, :]
    inside = (i < d) & (c < W)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        tokens = _load_tokens(x, row, d, ROWS, W, PAD)
        q = tl.dot(tokens, wq, input_precision=PRECISION)
        k = tl.dot(tokens, wk, input_precision=PRECISION)
        v = tl.dot(tokens, wv, input_precision=PRECISION)
        p = _softmax(q, k, d, scale, ROWS, PRECISION)
        g = tl.load(grad + (row * d + i) * W + c, mask=inside, other=0.0)
        # v has zeros behind its numbers, and so has g
        d_p = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        d_s = scale * p * (d_p - tl.sum(d_p * p, 1)[:, None])
        d_q = tl.dot(d_s, k, input_precision=PRECISION)
        d_k = tl.dot(tl.trans(d_s), q, input_precision=PRECISION)
        d_v = tl.dot(tl.trans(p), g, input_precision=PRECISION)
        d_tokens = tl.dot(d_q, tl.trans(wq), input_precision=PRECISION)
        d_tokens += tl.dot(d_k, tl.trans(wk), input_precision=PRECISION)
        d_tokens += tl.dot(d_v, tl.trans(wv), input_precision=PRECISION)
        tl.store(d_x + (row * d + i) * W + c, d_tokens, mask=inside)
        turned = tl.trans(tokens)
        d_wq += tl.dot(turned, d_q, input_precision=PRECISION)
        d_wk += tl.dot(turned, d_k, input_precision=PRECISION)
        d_wv += tl.dot(turned, d_v, input_precision=PRECISION)
    r = tl.arange(0, PAD)[:, None]
    own = parts + tl.program_id(0) * 3 * (W + 1) * W + r * W + c
    used = (r <= W) & (c < W)
    tl.store(own, d_wq, mask=used)
    tl.store(own + (W + 1) * W, d_wk, mask=used)
    tl.store(own + 2 * (W + 1) * W, d_wv, mask=used)


def _row_options(x: Tensor, precision: str) -> dict[str, Any]:
    d = x.shape[1]
    rows = max(triton.next_power_of_2(d), PAD)
    return {
        "n": len(x),
        "d": d,
        "scale": WIDTH**-0.5,
        "ROWS": rows,
        "W": WIDTH,
        "PAD": PAD,
        "PRECISION": precision,
        "num_warps": max(rows // 16, 1),
    }


def attend(
    x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, programs: int, precision: str
) -> None:
    """Write the attention of every row to `out`."""
    _attend[(programs,)](x, weight, bias, out, **_row_options(x, precision))


def attend_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    d_x: Tensor,
    parts: Tensor,
    programs: int,
    precision: str,
) -> None:
    """Write the gradient of x, and that of the weights in a part per program."""
    _attend_backward[(programs,)](
        grad, x, weight, bias, d_x, parts, **_row_options(x, precision)
    )


# -- feed-forward layer ------------------------------------------------------------


@triton.jit
def _load_tile(x, first, n, TILE: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr):
    i, c = first + tl.arange(0, TILE)[:, None], tl.arange(0, PAD)[None, :]
    tokens = tl.load(x + i * W + c, mask=(i < n) & (c < W), other=0.0)
    return tl.where((c == W) & (i < n), 1.0, tokens)


@triton.jit
def _load_up(up, up_bias, W: tl.constexpr, H: tl.constexpr, PAD: tl.constexpr):
    """Return the weights of the hidden layer, [PAD, H], with the bias as a row."""
    r, h = tl.arange(0, PAD)[:, None], tl.arange(0, H)[None, :]
    weights = tl.load(up + h * W + r, mask=(r < W) & (h < H), other=0.0)
    row = tl.load(up_bias + h, mask=(r == W) & (h < H), other=0.0)
    return weights + row


@triton.jit
def _feed_forward(
    x,
    up,
    up_bias,
    down,
    down_bias,
    out,
    n,
    W: tl.constexpr,
    H: tl.constexpr,
    TILE: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    first = tl.program_id(0) * TILE
    tokens = _load_tile(x, first, n, TILE, W, PAD)
    wide = _load_up(up, up_bias, W, H, PAD)
    hidden = tl.maximum(tl.dot(tokens, wide, input_precision=PRECISION), 0.0)
    h, c = tl.arange(0, H)[:, None], tl.arange(0, PAD)[None, :]
    narrow = tl.load(down + c * H + h, mask=(c < W) & (h < H), other=0.0)
    values = tl.dot(hidden, narrow, input_precision=PRECISION)
    values += tl.load(down_bias + c, mask=c < W, other=0.0)
    i = first + tl.arange(0, TILE)[:, None]
    tl.store(out + i * W + c, values, mask=(i < n) & (c < W))


@triton.jit
def _feed_forward_backward(
    grad,
    x,
    up,
    up_bias,
    down,
    d_x,
    d_up,
    d_down,
    d_bias,
    n,
    W: tl.constexpr,
    H: tl.constexpr,
    TILE: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wide = _load_up(up, up_bias, W, H, PAD)
    r, h = tl.arange(0, PAD)[:, None], tl.arange(0, H)[None, :]
    narrow = tl.load(down + r * H + h, mask=(r < W) & (h < H), other=0.0)
    sum_up = tl.zeros((PAD, H), tl.float32)
    sum_down = tl.zeros((PAD, H), tl.float32)
    sum_bias = tl.zeros((PAD,), tl.float32)
    c = tl.arange(0, PAD)[None, :]
    step = tl.num_programs(0) * TILE
    for first in range(tl.program_id(0) * TILE, n, step):
        tokens = _load_tile(x, first, n, TILE, W, PAD)
        i = first + tl.arange(0, TILE)[:, None]
        inside = (i < n) & (c < W)
        g = tl.load(grad + i * W + c, mask=inside, other=0.0)
        hidden = tl.maximum(tl.dot(tokens, wide, input_precision=PRECISION), 0.0)
        sum_down += tl.dot(tl.trans(g), hidden, input_precision=PRECISION)
        d_hidden = tl.dot(g, narrow, input_precision=PRECISION)
        d_hidden = tl.where(hidden > 0, d_hidden, 0.0)
        sum_up += tl.dot(tl.trans(tokens), d_hidden, input_precision=PRECISION)
        sum_bias += tl.sum(g, 0)
        values = tl.dot(d_hidden, tl.trans(wide), input_precision=PRECISION)
        tl.store(d_x + i * W + c, values, mask=inside)
    own = tl.program_id(0)
    place = own * H * (W + 1) + h * (W + 1) + r
    tl.store(d_up + place, sum_up, mask=(r <= W) & (h < H))
    tl.store(d_down + own * W * H + r * H + h, sum_down, mask=(r < W) & (h < H))
    k = tl.arange(0, PAD)
    tl.store(d_bias + own * W + k, sum_bias, mask=k < W)


def feed_forward(
    x: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
    out: Tensor,
    n: int,
    precision: str,
) -> None:
    """Write the outputs of n tokens to `out`."""
    _feed_forward[(triton.cdiv(n, TILE),)](
        *(x, up, up_bias, down, down_bias, out, n),
        **_tile_options(precision),
    )


def feed_forward_backward(
    grad: Tensor,
    x: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    d_x: Tensor,
    d_up: Tensor,
    d_down: Tensor,
    d_bias: Tensor,
    n: int,
    programs: int,
    precision: str,
) -> None:
    """Write the gradient of x, and those of the weights in a part per program."""
    _feed_forward_backward[(programs,)](
        *(grad, x, up, up_bias, down, d_x, d_up, d_down, d_bias, n),
        **_tile_options(precision),
    )


def _tile_options(precision: str) -> dict[str, Any]:
    return {
        "W": WIDTH,
        "H": HIDDEN,
        "TILE": TILE,
        "PAD": PAD,
        "PRECISION": precision,
        "num_warps": 4,
    }
