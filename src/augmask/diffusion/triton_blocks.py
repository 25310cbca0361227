"""The Triton kernels of `token_kernels`.

Matrices are padded to 16 × 16, the least that tensor cores take. Tokens get a constant
1 as a further number, so a bias is one more row of weights.

A program of a gradient adds up what its tokens give for the weights, and writes it to a
row of its own: first the weights of the layer, then its bias, then those of the norm.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from augmask.diffusion.token_kernels import EPS, HIDDEN, WIDTH

PAD = 16
# Tokens at a time in the feed-forward kernels; the gradient needs more registers.
TILE, GRADIENT_TILE = 64, 32


# -- tokens and their norm -----------------------------------------------------------


@triton.jit
def _normalised(tokens, W: tl.constexpr, EPS: tl.constexpr, PAD: tl.constexpr):
    """Return tokens of mean 0 and variance 1, and by what they were multiplied."""
    c = tl.arange(0, PAD)[None, :]
    mean = tl.sum(tokens, 1)[:, None] / W
    centred = tl.where(c < W, tokens - mean, 0.0)
    variance = tl.sum(centred * centred, 1)[:, None] / W
    factor = 1.0 / tl.sqrt(variance + EPS)
    return centred * factor, factor


@triton.jit
def _layer_input(
    tokens,
    gamma,
    beta,
    NORM: tl.constexpr,
    W: tl.constexpr,
    EPS: tl.constexpr,
    PAD: tl.constexpr,
):
    """Return what a layer reads: normed tokens, with a constant 1 behind each."""
    c = tl.arange(0, PAD)[None, :]
    if NORM:
        unit, _ = _normalised(tokens, W, EPS, PAD)
        scale = tl.load(gamma + c, mask=c < W, other=0.0)
        tokens = unit * scale + tl.load(beta + c, mask=c < W, other=0.0)
    return tl.where(c == W, 1.0, tokens)


@triton.jit
def _through_norm(
    grad, tokens, gamma, W: tl.constexpr, EPS: tl.constexpr, PAD: tl.constexpr
):
    """Return the gradients of the tokens, of gamma and of beta, by that of a layer."""
    c = tl.arange(0, PAD)[None, :]
    unit, factor = _normalised(tokens, W, EPS, PAD)
    grad = tl.where(c < W, grad, 0.0)
    d_unit = grad * tl.load(gamma + c, mask=c < W, other=0.0)
    along = tl.sum(d_unit * unit, 1)[:, None] / W
    d_tokens = factor * (d_unit - tl.sum(d_unit, 1)[:, None] / W - unit * along)
    return tl.where(c < W, d_tokens, 0.0), tl.sum(grad * unit, 0), tl.sum(grad, 0)


# -- attention ---------------------------------------------------------------------


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
def _store_weights(own, values, part, W: tl.constexpr, PAD: tl.constexpr):
    """Write the gradient of what `_load_weights` returns."""
    r, c = tl.arange(0, PAD)[:, None], tl.arange(0, PAD)[None, :]
    place = part * W + c
    tl.store(own + place * W + r, values, mask=(r < W) & (c < W))
    tl.store(own + 3 * W * W + place + 0 * r, values, mask=(r == W) & (c < W))


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
    gamma,
    beta,
    weight,
    bias,
    out,
    n,
    d,
    scale,
    ROWS: tl.constexpr,
    NORM: tl.constexpr,
    W: tl.constexpr,
    EPS: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wq = _load_weights(weight, bias, 0, W, PAD)
    wk = _load_weights(weight, bias, 1, W, PAD)
    wv = _load_weights(weight, bias, 2, W, PAD)
    i, c = tl.arange(0, ROWS)[:, None], tl.arange(0, PAD)[None, :]
    inside = (i < d) & (c < W)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        place = (row * d + i) * W + c
        tokens = tl.load(x + place, mask=inside, other=0.0)
        given = _layer_input(tokens, gamma, beta, NORM, W, EPS, PAD)
        q = tl.dot(given, wq, input_precision=PRECISION)
        k = tl.dot(given, wk, input_precision=PRECISION)
        v = tl.dot(given, wv, input_precision=PRECISION)
        p = _softmax(q, k, d, scale, ROWS, PRECISION)
        values = tl.dot(p, v, input_precision=PRECISION)
        tl.store(out + place, tokens + values, mask=inside)


@triton.jit
def _attend_backward(
    grad,
    x,
    gamma,
    beta,
    weight,
    bias,
    d_x,
    parts,
    n_parts,
    n,
    d,
    scale,
    ROWS: tl.constexpr,
    NORM: tl.constexpr,
    W: tl.constexpr,
    EPS: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wq = _load_weights(weight, bias, 0, W, PAD)
    wk = _load_weights(weight, bias, 1, W, PAD)
    wv = _load_weights(weight, bias, 2, W, PAD)
    d_wq = tl.zeros((PAD, PAD), tl.float32)
    d_wk = tl.zeros((PAD, PAD), tl.float32)
    d_wv = tl.zeros((PAD, PAD), tl.float32)
    d_gamma = tl.zeros((PAD,), tl.float32)
    d_beta = tl.zeros((PAD,), tl.float32)
    i, c = tl.arange(0, ROWS)[:, None], tl.arange(0, PAD)[None, :]
    inside = (i < d) & (c < W)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        place = (row * d + i) * W + c
        tokens = tl.load(x + place, mask=inside, other=0.0)
        given = _layer_input(tokens, gamma, beta, NORM, W, EPS, PAD)
        q = tl.dot(given, wq, input_precision=PRECISION)
        k = tl.dot(given, wk, input_precision=PRECISION)
        v = tl.dot(given, wv, input_precision=PRECISION)
        p = _softmax(q, k, d, scale, ROWS, PRECISION)
        # rows behind the d-th have no gradient, and columns behind the d-th no share
        g = tl.load(grad + place, mask=inside, other=0.0)
        d_p = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        d_s = scale * p * (d_p - tl.sum(d_p * p, 1)[:, None])
        d_q = tl.dot(d_s, k, input_precision=PRECISION)
        d_k = tl.dot(tl.trans(d_s), q, input_precision=PRECISION)
        d_v = tl.dot(tl.trans(p), g, input_precision=PRECISION)
        d_given = tl.dot(d_q, tl.trans(wq), input_precision=PRECISION)
        d_given += tl.dot(d_k, tl.trans(wk), input_precision=PRECISION)
        d_given += tl.dot(d_v, tl.trans(wv), input_precision=PRECISION)
        turned = tl.trans(given)
        d_wq += tl.dot(turned, d_q, input_precision=PRECISION)
        d_wk += tl.dot(turned, d_k, input_precision=PRECISION)
        d_wv += tl.dot(turned, d_v, input_precision=PRECISION)
        if NORM:
            d_given, one_gamma, one_beta = _through_norm(
                d_given, tokens, gamma, W, EPS, PAD
            )
            d_gamma += one_gamma
            d_beta += one_beta
        tl.store(d_x + place, g + d_given, mask=inside)
    own = parts + tl.program_id(0) * n_parts
    _store_weights(own, d_wq, 0, W, PAD)
    _store_weights(own, d_wk, 1, W, PAD)
    _store_weights(own, d_wv, 2, W, PAD)
    if NORM:
        e = tl.arange(0, PAD)
        tl.store(own + 3 * W * (W + 1) + e, d_gamma, mask=e < W)
        tl.store(own + 3 * W * (W + 1) + W + e, d_beta, mask=e < W)


def _attend_options(x: Tensor, gamma: Tensor | None, precision: str) -> dict[str, Any]:
    d = x.shape[1]
    rows = max(triton.next_power_of_2(d), PAD)
    return {
        "n": len(x),
        "d": d,
        "scale": WIDTH**-0.5,
        "ROWS": rows,
        "NORM": gamma is not None,
        "W": WIDTH,
        "EPS": EPS,
        "PAD": PAD,
        "PRECISION": precision,
        "num_warps": rows // PAD,
    }


def attend(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    out: Tensor,
    programs: int,
    precision: str,
) -> None:
    """Write the tokens after attention to `out`."""
    _attend[(programs,)](
        *(x, gamma, beta, weight, bias, out), **_attend_options(x, gamma, precision)
    )


def attend_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    d_x: Tensor,
    parts: Tensor,
    precision: str,
) -> None:
    """Write the gradient of x, and those of the weights in a row per program."""
    programs, n_parts = parts.shape
    _attend_backward[(programs,)](
        *(grad, x, gamma, beta, weight, bias, d_x, parts, n_parts),
        **_attend_options(x, gamma, precision),
    )


# -- feed-forward layer ------------------------------------------------------------


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
    gamma,
    beta,
    up,
    up_bias,
    down,
    down_bias,
    out,
    n,
    TILE: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    EPS: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wide = _load_up(up, up_bias, W, H, PAD)
    h, c = tl.arange(0, H)[:, None], tl.arange(0, PAD)[None, :]
    narrow = tl.load(down + c * H + h, mask=(c < W) & (h < H), other=0.0)
    shift = tl.load(down_bias + c, mask=c < W, other=0.0)
    step = tl.num_programs(0) * TILE
    for first in range(tl.program_id(0) * TILE, n, step):
        i = first + tl.arange(0, TILE)[:, None]
        place, inside = i * W + c, (i < n) & (c < W)
        tokens = tl.load(x + place, mask=inside, other=0.0)
        given = _layer_input(tokens, gamma, beta, True, W, EPS, PAD)
        hidden = tl.maximum(tl.dot(given, wide, input_precision=PRECISION), 0.0)
        values = tl.dot(hidden, narrow, input_precision=PRECISION) + shift
        tl.store(out + place, tokens + values, mask=inside)


@triton.jit
def _feed_forward_backward(
    grad,
    x,
    gamma,
    beta,
    up,
    up_bias,
    down,
    d_x,
    parts,
    n_parts,
    n,
    TILE: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    EPS: tl.constexpr,
    PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    wide = _load_up(up, up_bias, W, H, PAD)
    r, h = tl.arange(0, PAD)[:, None], tl.arange(0, H)[None, :]
    narrow = tl.load(down + r * H + h, mask=(r < W) & (h < H), other=0.0)
    d_up = tl.zeros((PAD, H), tl.float32)
    d_down = tl.zeros((PAD, H), tl.float32)
    d_bias = tl.zeros((PAD,), tl.float32)
    d_gamma = tl.zeros((PAD,), tl.float32)
    d_beta = tl.zeros((PAD,), tl.float32)
    c = tl.arange(0, PAD)[None, :]
    step = tl.num_programs(0) * TILE
    for first in range(tl.program_id(0) * TILE, n, step):
        i = first + tl.arange(0, TILE)[:, None]
        place, inside = i * W + c, (i < n) & (c < W)
        tokens = tl.load(x + place, mask=inside, other=0.0)
        # tokens behind the n-th have no gradient
        g = tl.load(grad + place, mask=inside, other=0.0)
        given = _layer_input(tokens, gamma, beta, True, W, EPS, PAD)
        hidden = tl.maximum(tl.dot(given, wide, input_precision=PRECISION), 0.0)
        d_down += tl.dot(tl.trans(g), hidden, input_precision=PRECISION)
        d_hidden = tl.dot(g, narrow, input_precision=PRECISION)
        d_hidden = tl.where(hidden > 0, d_hidden, 0.0)
        d_up += tl.dot(tl.trans(given), d_hidden, input_precision=PRECISION)
        d_bias += tl.sum(g, 0)
        d_given = tl.dot(d_hidden, tl.trans(wide), input_precision=PRECISION)
        d_tokens, one_gamma, one_beta = _through_norm(
            d_given, tokens, gamma, W, EPS, PAD
        )
        d_gamma += one_gamma
        d_beta += one_beta
        tl.store(d_x + place, g + d_tokens, mask=inside)
    own = parts + tl.program_id(0) * n_parts
    tl.store(own + h * W + r, d_up, mask=(r < W) & (h < H))
    own += H * W
    tl.store(own + h + 0 * r, d_up, mask=(r == W) & (h < H))
    own += H
    tl.store(own + r * H + h, d_down, mask=(r < W) & (h < H))
    own += W * H
    e = tl.arange(0, PAD)
    tl.store(own + e, d_bias, mask=e < W)
    tl.store(own + W + e, d_gamma, mask=e < W)
    tl.store(own + 2 * W + e, d_beta, mask=e < W)


def _feed_forward_options(precision: str) -> dict[str, Any]:
    return {
        "H": HIDDEN,
        "W": WIDTH,
        "EPS": EPS,
        "PAD": PAD,
        "PRECISION": precision,
        "num_warps": 4,
    }


def feed_forward(inputs: tuple[Tensor, ...], out: Tensor, most: int, pr: str) -> None:
    """Write the tokens after the feed-forward layer to `out`."""
    n = out.shape[0] * out.shape[1]
    programs = min(triton.cdiv(n, TILE), most)
    _feed_forward[(programs,)](*inputs, out, n, TILE=TILE, **_feed_forward_options(pr))


def feed_forward_backward(
    grad: Tensor, inputs: tuple[Tensor, ...], d_x: Tensor, parts: Tensor, pr: str
) -> None:
    """Write the gradient of x, and those of the weights in a row per program."""
    programs, n_parts = parts.shape
    _feed_forward_backward[(programs,)](
        *(grad, *inputs, d_x, parts, n_parts, d_x.shape[0] * d_x.shape[1]),
        TILE=GRADIENT_TILE,
        **_feed_forward_options(pr),
    )
