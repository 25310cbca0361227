"""GPU kernels for transformers of narrow tokens, in Triton.

TabDiff's tokens are four numbers wide. As plain layers, a block writes and reads its
hidden layer of 128 numbers a token about ten times, and multiplies matrices so thin
that a GPU is idle most of the time. Here attention and the feed-forward layer are one
kernel each, and one for the gradient: only tokens are read and written, and what lies
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
MAX_TOKENS = 64  # in a row: its scores are in registers
TILE = 32  # tokens at a time in the feed-forward kernels
PROGRAMS = 16  # per multiprocessor, at most

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
            out = attend(x, x.new_ones(3 * WIDTH, WIDTH), x.new_ones(3 * WIDTH))
            wide, bias = x.new_ones(HIDDEN, WIDTH), x.new_ones(HIDDEN)
            out = feed_forward(out, wide, bias, wide.T.contiguous(), x.new_ones(WIDTH))
            torch.autograd.grad(out.sum(), x)
            torch.cuda.synchronize(device)
    except Exception as error:
        log.warning("Triton kernels failed (%s); using plain layers", first_line(error))
        return False
    return True


def fits(tokens: Tensor) -> bool:
    """Whether tokens [B, d, e] are such as the kernels take."""
    _, d, width = tokens.shape
    return (
        tokens.is_cuda
        and tokens.dtype == torch.float32
        and width == WIDTH
        and 0 < d <= MAX_TOKENS
    )


def _programs(most: int, x: Tensor) -> int:
    """Return how many programs share the work: enough to fill the device."""
    if x.device.type != "cuda":
        return min(most, 3)  # Triton's interpreter
    count = torch.cuda.get_device_properties(x.device).multi_processor_count
    return min(most, PROGRAMS * count)


def _precision() -> str:
    """Return how the kernels multiply: as torch's own products do."""
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


# -- attention ---------------------------------------------------------------------


@torch.library.custom_op("augmask::attend", mutates_args=())
def attend(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return softmax(q kᵀ / √e) v of one head, where q, k, v = x weightᵀ + bias.

    Shape
    -----
    - x and out: [B, d, e], weight: [3 e, e], bias: [3 e]
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    n = len(x)
    if n:
        _kernels().attend(x, weight, bias, out, _programs(n, x), _precision())
    return out


@torch.library.custom_op("augmask::attend_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    x, grad = x.contiguous(), grad.contiguous()
    d_x = torch.empty_like(x)
    n = len(x)
    programs = _programs(n, x)
    # by program, for q, k and v: the weights of all inputs, and of a constant
    parts = x.new_empty(programs, 3, WIDTH + 1, WIDTH)
    if n:
        _kernels().attend_backward(
            grad, x, weight, bias, d_x, parts, programs, _precision()
        )
    total = parts.sum(0)
    return d_x, total[:, :WIDTH].mT.reshape(weight.shape), total[:, WIDTH].reshape(-1)


@attend.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del weight, bias
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_attend_backward.register_fake
def _(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del grad
    contiguous = torch.contiguous_format
    return (
        torch.empty_like(x, memory_format=contiguous),
        torch.empty_like(weight, memory_format=contiguous),
        torch.empty_like(bias, memory_format=contiguous),
    )


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


attend.register_autograd(
    lambda ctx, grad: _attend_backward(grad, *ctx.saved_tensors), setup_context=_save
)


# -- feed-forward layer ------------------------------------------------------------


@torch.library.custom_op("augmask::feed_forward", mutates_args=())
def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
) -> Tensor:
    """Return relu(x upᵀ + up_bias) downᵀ + down_bias.

    Shape
    -----
    - x and out: [B, d, e], up: [H, e], down: [e, H]
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.shape[0] * x.shape[1]
    if n:
        _kernels().feed_forward(x, up, up_bias, down, down_bias, out, n, _precision())
    return out


@torch.library.custom_op("augmask::feed_forward_backward", mutates_args=())
def _feed_forward_backward(
    grad: Tensor, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of all inputs of `feed_forward`."""
    x, grad = x.contiguous(), grad.contiguous()
    d_x = torch.empty_like(x)
    n = x.shape[0] * x.shape[1]
    programs = _programs(-(-n // TILE), x)
    d_up = x.new_empty(programs, HIDDEN, WIDTH + 1)
    d_down = x.new_empty(programs, WIDTH, HIDDEN)
    d_bias = x.new_empty(programs, WIDTH)
    if n:
        _kernels().feed_forward_backward(
            *(grad, x, up, up_bias, down, d_x, d_up, d_down, d_bias),
            *(n, programs, _precision()),
        )
    total = d_up.sum(0)
    # an output may not be a view of another one
    d_up_weight, d_up_bias = total[:, :WIDTH].contiguous(), total[:, WIDTH].contiguous()
    return d_x, d_up_weight, d_up_bias, d_down.sum(0), d_bias.sum(0)


@feed_forward.register_fake
def _(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
) -> Tensor:
    del up, up_bias, down, down_bias
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_feed_forward_backward.register_fake
def _(
    grad: Tensor, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    del grad
    contiguous = torch.contiguous_format
    return (
        torch.empty_like(x, memory_format=contiguous),
        torch.empty_like(up, memory_format=contiguous),
        torch.empty_like(up_bias, memory_format=contiguous),
        torch.empty_like(down, memory_format=contiguous),
        x.new_empty(WIDTH),
    )


feed_forward.register_autograd(
    lambda ctx, grad: _feed_forward_backward(grad, *ctx.saved_tensors[:4]),
    setup_context=_save,
)
