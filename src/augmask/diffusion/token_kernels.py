"""Transformer blocks of narrow tokens as a few GPU kernels, in Triton.

TabDiff's tokens are four numbers wide. As plain layers, a block writes and reads its
hidden layer of 128 numbers a token about ten times, and multiplies matrices so thin
that a GPU is idle most of the time. Here each half of a block (norm, layer, residual)
is one kernel, and one for its gradient: only tokens are read and written, and what lies
between is computed again for the gradient. Sums over tokens are taken in a fixed order.

`nets.Block` uses these kernels on GPUs where `usable` says that they work. Triton comes
with torch's builds for GPUs, and is imported on first use.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from augmask.diffusion.cuda_graph import first_line

log = logging.getLogger("augmask")

WIDTH = 4  # of a token
HIDDEN = 128
EPS = 1e-5  # of the norms
MAX_TOKENS = 64  # in a row: its scores are in registers
# Programs per multiprocessor: few, so that weights are loaded seldom, and enough to
# hide how long memory takes. A row of attention is one warp, a tile of tokens is four.
ATTENTION_PROGRAMS, TILE_PROGRAMS = 16, 4

_WORKS: dict[str, bool] = {}  # by device, what was tried in this process


@cache
def _kernels() -> Any:
    """Import the kernels, and with them Triton."""
    from augmask.diffusion import triton_blocks

    return triton_blocks


def usable(device: torch.device) -> bool:
    """Whether the kernels work on a device: tried once, never while compiling.

    Triton needs a C compiler, which a machine may not have.
    """
    if device.type != "cuda":
        return False
    if str(device) not in _WORKS and not torch.compiler.is_compiling():
        _WORKS[str(device)] = find_spec("triton") is not None and _try(device)
    return _WORKS.get(str(device), False)


def _try(device: torch.device) -> bool:
    try:
        with torch.enable_grad():
            x = torch.ones(2, 3, WIDTH, device=device, requires_grad=True)
            norm = (x.new_ones(WIDTH), x.new_zeros(WIDTH))
            qkv = (x.new_ones(3 * WIDTH, WIDTH), x.new_ones(3 * WIDTH))
            up = (x.new_ones(HIDDEN, WIDTH), x.new_ones(HIDDEN))
            down = (x.new_ones(WIDTH, HIDDEN), x.new_ones(WIDTH))
            out = feed_forward(attend(x, *norm, *qkv), *norm, *up, *down)
            torch.autograd.grad(out.sum(), x)
            torch.cuda.synchronize(device)
    except Exception as error:
        log.warning("Triton kernels failed (%s); using plain layers", first_line(error))
        return False
    return True


def fits(tokens: Tensor) -> bool:
    """Whether tokens [B, d, e] are such as the kernels take."""
    n, d, width = tokens.shape
    return (
        tokens.is_cuda
        and tokens.dtype == torch.float32
        and width == WIDTH
        and 0 < d <= MAX_TOKENS
        and n > 0
    )


def _programs(per_multiprocessor: int, x: Tensor) -> int:
    """Return how many programs fill the device of a tensor."""
    if x.device.type != "cuda":
        return 3  # Triton's interpreter
    properties = torch.cuda.get_device_properties(x.device)
    return per_multiprocessor * properties.multi_processor_count


def _precision() -> str:
    """Return how the kernels multiply: as torch's own products do."""
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _split(flat: Tensor, *like: Tensor) -> list[Tensor]:
    """Return views of a flat gradient in the shapes of tensors."""
    parts = torch.split(flat, [tensor.numel() for tensor in like])
    return [part.view(t.shape) for part, t in zip(parts, like, strict=True)]


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


# -- attention ---------------------------------------------------------------------


@torch.library.custom_op("augmask::attend", mutates_args=())
def attend(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return x + softmax(q kᵀ / √e) v of one head.

    q, k, v are parts of norm(x) weightᵀ + bias. The norm has weights `gamma` and
    `beta`; without them there is none.

    Shape
    -----
    - x and out: [B, d, e], gamma, beta: [e], weight: [3 e, e], bias: [3 e]
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    programs = min(len(x), _programs(ATTENTION_PROGRAMS, x))
    _kernels().attend(x, gamma, beta, weight, bias, out, programs, _precision())
    return out


@torch.library.custom_op("augmask::attend_backward", mutates_args=())
def _attend_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    weight: Tensor,
    bias: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and those of weight, bias, gamma, beta in one row."""
    x, grad = x.contiguous(), grad.contiguous()
    d_x = torch.empty_like(x)
    programs = min(len(x), _programs(ATTENTION_PROGRAMS, x))
    parts = x.new_empty(programs, _count(weight, bias, gamma, beta))
    _kernels().attend_backward(
        grad, x, gamma, beta, weight, bias, d_x, parts, _precision()
    )
    return d_x, parts.sum(0)


def _count(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() for tensor in tensors if tensor is not None)


@attend.register_fake
def _(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor, bias: Tensor
) -> Tensor:
    del gamma, beta, weight, bias
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_attend_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    weight: Tensor,
    bias: Tensor,
) -> tuple[Tensor, Tensor]:
    del grad
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return d_x, x.new_empty(_count(weight, bias, gamma, beta))


def _attend_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, gamma, beta, weight, bias = ctx.saved_tensors
    d_x, flat = _attend_backward(grad, x, gamma, beta, weight, bias)
    if gamma is None:
        return d_x, None, None, *_split(flat, weight, bias)
    d_weight, d_bias, d_gamma, d_beta = _split(flat, weight, bias, gamma, beta)
    return d_x, d_gamma, d_beta, d_weight, d_bias


attend.register_autograd(_attend_gradients, setup_context=_save)


# -- feed-forward layer ------------------------------------------------------------


@torch.library.custom_op("augmask::feed_forward", mutates_args=())
def feed_forward(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
) -> Tensor:
    """Return x + relu(norm(x) upᵀ + up_bias) downᵀ + down_bias.

    Shape
    -----
    - x and out: [B, d, e], gamma, beta: [e], up: [H, e], down: [e, H]
    """
    inputs = (x.contiguous(), gamma, beta, up, up_bias, down, down_bias)
    out = torch.empty_like(inputs[0])
    _kernels().feed_forward(inputs, out, _programs(TILE_PROGRAMS, x), _precision())
    return out


@torch.library.custom_op("augmask::feed_forward_backward", mutates_args=())
def _feed_forward_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and in one row those of up, down, gamma and beta."""
    x, grad = x.contiguous(), grad.contiguous()
    d_x = torch.empty_like(x)
    tiles = -(-x.shape[0] * x.shape[1] // _kernels().GRADIENT_TILE)
    programs = min(tiles, _programs(TILE_PROGRAMS, x))
    parts = x.new_empty(programs, _count(up, up_bias, down, gamma, gamma, beta))
    inputs = (x, gamma, beta, up, up_bias, down)
    _kernels().feed_forward_backward(grad, inputs, d_x, parts, _precision())
    return d_x, parts.sum(0)


@feed_forward.register_fake
def _(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
) -> Tensor:
    del gamma, beta, up, up_bias, down, down_bias
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_feed_forward_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
) -> tuple[Tensor, Tensor]:
    del grad
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return d_x, x.new_empty(_count(up, up_bias, down, gamma, gamma, beta))


def _feed_forward_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    x, gamma, beta, up, up_bias, down, down_bias = ctx.saved_tensors
    d_x, flat = _feed_forward_backward(grad, x, gamma, beta, up, up_bias, down)
    layer = (up, up_bias, down, down_bias)
    *d_layer, d_gamma, d_beta = _split(flat, *layer, gamma, beta)
    return d_x, d_gamma, d_beta, *d_layer


feed_forward.register_autograd(_feed_forward_gradients, setup_context=_save)
