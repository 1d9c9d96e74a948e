"""CPU functions for operations that only have a CUDA kernel, or whose CPU kernel takes other arguments.

Each takes the arguments of the operation that it stands for, and returns values of the same shapes where it can: what
has another shape stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def _aten() -> Any:
    import torch

    return torch.ops.aten


def _convolution(x: Any, w: Any, padding: Any, stride: Any, dilation: Any, groups: int, *_: Any, **__: Any) -> Any:
    return _aten().convolution(x, w, None, stride, padding, dilation, False, [0] * len(list(stride)), groups)


def _convolution_transpose(
    x: Any, w: Any, padding: Any, output_padding: Any, stride: Any, dilation: Any, groups: int, *_: Any, **__: Any
) -> Any:
    return _aten().convolution(x, w, None, stride, padding, dilation, True, output_padding, groups)


def _depthwise(x: Any, w: Any, kernel: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return _aten().convolution(x, w, bias, stride, padding, dilation, False, [0] * len(list(stride)), x.shape[1])


def _batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
    out = _aten().native_batch_norm(x, w, b, mean, var, training, momentum, eps)
    return (*out, x.new_empty(0, device="cpu"))


def _batch_norm_backward(
    x: Any, grad: Any, w: Any, mean: Any, var: Any, save: Any, invstd: Any, eps: float, *_: Any
) -> Any:
    return _aten().native_batch_norm_backward(grad, x, w, mean, var, save, invstd, True, eps, [True, True, True])


def _softmax(name: str) -> Callable[..., Any]:
    def softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
        import torch

        compute = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        value = getattr(_aten(), name)(compute, dim, False)
        return value if half_to_float else value.to(x.dtype)

    return softmax


def _wide(*values: Any) -> list[Any]:
    """Returns tensors of less than single precision in single precision; other values as they are."""
    import torch

    narrow = (torch.float16, torch.bfloat16)
    return [value.float() if isinstance(value, torch.Tensor) and value.dtype in narrow else value for value in values]


def _layer_norm(x: Tensor, *args: Any) -> Any:
    """Normalises a layer; like the GPU's kernel it keeps mean and deviation in single precision."""
    out, mean, rstd = _aten().native_layer_norm(*_wide(x, *args))
    return out.to(x.dtype), mean, rstd


def _layer_norm_backward(grad: Tensor, x: Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, *rest: Any) -> Any:
    gradients = _aten().native_layer_norm_backward(*_wide(grad, x, shape, mean, rstd, weight, *rest))
    return tuple(None if gradient is None else gradient.to(x.dtype) for gradient in gradients)


def _lstm_cell(inputs: Tensor, hidden: Tensor, cell: Tensor, bias: Any = None, hidden_bias: Any = None) -> Any:
    """Computes one step of an LSTM. The third result, which is kept for the backward pass, is the four gates."""
    import torch

    gates = inputs + hidden + (0 if bias is None else bias + hidden_bias)
    one, forget, new, out = gates.chunk(4, 1)
    one, forget, new, out = one.sigmoid(), forget.sigmoid(), new.tanh(), out.sigmoid()
    cell = forget * cell + one * new
    return out * cell.tanh(), cell, torch.cat([one, forget, new, out], 1)


def _lstm_cell_backward(grad: Any, grad_cell: Any, before: Tensor, cell: Tensor, kept: Tensor, has_bias: bool) -> Any:
    import torch

    one, forget, new, out = kept.chunk(4, 1)
    tanh = cell.tanh()
    by_out = cell.new_zeros(cell.shape, device="cpu") if grad is None else grad
    by_cell = by_out * out * (1 - tanh * tanh) + (0 if grad_cell is None else grad_cell)
    gates = [
        by_cell * new * one * (1 - one),
        by_cell * before * forget * (1 - forget),
        by_cell * one * (1 - new * new),
        by_out * tanh * out * (1 - out),
    ]
    by_gates = torch.cat(gates, 1)
    return by_gates, by_cell * forget, by_gates.sum(0) if has_bias else None


def _svd(x: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> Any:
    return _aten()._linalg_svd(x, full_matrices, compute_uv)


def _bags(name: str) -> Callable[..., Any]:
    """Returns the function for an operation of `EmbeddingBag`. Like the GPU's kernel it always returns each index's bag
    and each bag's size, for the backward pass.
    """

    def bags(
        weight: Tensor,
        indices: Tensor,
        offsets: Tensor,
        scaled: bool = False,
        mode: int = 0,
        sparse: bool = False,
        weights: Tensor | None = None,
        last: bool = False,
        padding: int = -1,
    ) -> Any:
        import torch

        arguments = (weight, indices, offsets, scaled, mode, sparse, weights, last, padding)
        out, _, sizes, most = getattr(_aten(), name)(*arguments)
        ends = offsets.new_tensor([indices.numel()], device="cpu")
        lengths = (offsets if last else torch.cat([offsets, ends])).diff()
        bag = torch.repeat_interleave(lengths).to(indices.dtype)
        counted = torch.zeros_like(sizes).index_add_(0, bag, (indices != padding).to(sizes.dtype))
        return out, bag, counted, most

    return bags


def _with_dtype(name: str) -> Callable[..., Any]:
    """Returns the function for a product of small floats with a larger output."""

    def product(*args: Any, **kwargs: Any) -> Any:
        import torch

        dtype = next(a for a in args if isinstance(a, torch.dtype))
        tensors = [a.to(dtype) for a in args if isinstance(a, torch.Tensor)]
        return getattr(_aten(), name)(*tensors, **kwargs)

    return product


# ---- attention -------------------------------------------------------------------------------------------------------


def _scores(
    q: Tensor, k: Tensor, bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, float]:
    """Returns attention scores with and without the softmax, in single precision or higher."""
    import torch

    factor = 1.0 / math.sqrt(q.size(-1)) if scale is None else scale
    wide = torch.promote_types(q.dtype, torch.float32)
    if k.size(1) != q.size(1):
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    scores = q.to(wide) @ k.to(wide).transpose(-1, -2) * factor
    if bias is not None:
        scores = scores + bias
    if causal:
        rows, columns = scores.shape[-2:]
        hidden = torch.ones(rows, columns, dtype=torch.bool, device="cpu").triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores, scores.softmax(-1), factor


def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Any, Any]:
    scores, weights, _ = _scores(q, k, bias, causal, scale)
    if v.size(1) != q.size(1):
        v = v.repeat_interleave(q.size(1) // v.size(1), 1)
    return (weights @ v.to(weights.dtype)).to(q.dtype), scores.logsumexp(-1)


def _no_dropout(dropout: float) -> None:
    if dropout:
        raise NotImplementedError("the mask comes from the kernel's own random numbers")


def _rest(n: int) -> tuple[Any, ...]:
    return (None,) * n


def _flash(
    q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, debug: bool = False, *, scale: Any = None
) -> Any:
    _no_dropout(dropout)
    return (*_attention(q, k, v, None, causal, scale), *_rest(7))


def _efficient(
    q: Any, k: Any, v: Any, bias: Any, lse: bool, dropout: float = 0.0, causal: bool = False, *, scale: Any = None
) -> Any:
    _no_dropout(dropout)
    return (*_attention(q, k, v, bias, causal, scale), *_rest(2))


def _cudnn(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    lse: bool,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: Any = None,
) -> Any:
    _no_dropout(dropout)
    out, sums = _attention(q, k, v, bias, causal, scale)
    return (out, sums[..., None], *_rest(7))


def _attention_backward(grad: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, causal: bool, scale: Any) -> Any:
    if k.size(1) != q.size(1):
        raise NotImplementedError("grouped queries")
    _, weights, factor = _scores(q, k, bias, causal, scale)
    wide = weights.dtype
    grad, out = grad.to(wide), out.to(wide)
    by_weight = weights * (grad @ v.to(wide).transpose(-1, -2) - (grad * out).sum(-1, keepdim=True))
    return (
        (by_weight @ k.to(wide) * factor).to(q.dtype),
        (by_weight.transpose(-1, -2) @ q.to(wide) * factor).to(k.dtype),
        (weights.transpose(-1, -2) @ grad).to(v.dtype),
    )


def _flash_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    cq: Any,
    ck: Any,
    mq: Any,
    mk: Any,
    dropout: float,
    causal: bool,
    *_: Any,
    scale: Any = None,
) -> Any:
    _no_dropout(dropout)
    return _attention_backward(grad, q, k, v, None, out, causal, scale)


def _efficient_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    out: Any,
    lse: Any,
    seed: Any,
    offset: Any,
    dropout: float,
    mask: Any,
    causal: bool = False,
    *,
    scale: Any = None,
) -> Any:
    _no_dropout(dropout)
    if bias is not None and mask[3]:
        raise NotImplementedError("the gradient of a bias")
    return (*_attention_backward(grad, q, k, v, bias, out, causal, scale), None)


def _fused_rms_norm_backward(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Any:
    wide = rstd.dtype
    dims = tuple(range(-len(list(shape)), 0))
    hat = x.to(wide) * rstd
    g = grad.to(wide) * (1 if weight is None else weight.to(wide))
    dx = (g - hat * (g * hat).mean(dims, keepdim=True)) * rstd
    dw = (
        (grad.to(wide) * hat).flatten(0, x.dim() - len(dims) - 1).sum(0) if x.dim() > len(dims) else grad.to(wide) * hat
    )
    return dx.to(x.dtype), (dw.to(weight.dtype) if weight is not None and mask[1] else None)


def _histc(values: Tensor, *args: Any, out: Tensor | None = None, **kwargs: Any) -> Tensor:
    """Computes a histogram of integers as well, of which the CPU's operation takes floats alone."""
    import torch

    counts = torch.histc(values.double(), *args, **kwargs).to(values.dtype)
    return counts if out is None else out.copy_(counts)


EQUIVALENTS: dict[str, Callable[..., Any]] = {
    "aten::histc": _histc,
    "aten::histc.out": _histc,
    "aten::cudnn_convolution": _convolution,
    "aten::cudnn_convolution_transpose": _convolution_transpose,
    "aten::_conv_depthwise2d": _depthwise,
    "aten::conv_depthwise3d": _depthwise,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm_backward": _batch_norm_backward,
    "aten::_softmax": _softmax("_softmax"),
    "aten::_log_softmax": _softmax("_log_softmax"),
    "aten::native_layer_norm": _layer_norm,
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "aten::_embedding_bag": _bags("_embedding_bag"),
    "aten::_embedding_bag_forward_only": _bags("_embedding_bag_forward_only"),
    "aten::_linalg_svd": _svd,
    "aten::mm.dtype": _with_dtype("mm"),
    "aten::bmm.dtype": _with_dtype("bmm"),
    "aten::addmm.dtype": _with_dtype("addmm"),
    "aten::baddbmm.dtype": _with_dtype("baddbmm"),
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention": _efficient,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_scaled_dot_product_cudnn_attention": _cudnn,
    "aten::_fused_rms_norm_backward": _fused_rms_norm_backward,
}
"""For each operation, by its name: its function."""
