"""Work of cuBLAS, cuDNN and the driver, by the fields of its signature."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .operators import Prepared, Unmeasurable
from .tensors import DEVICE, DTYPES, Json, random_tensor

aten = torch.ops.aten
_MEMSET_VALUE = 1


def prepare_library(kind: str, what: Json) -> Prepared:
    """Makes work of a library ready to run. Raises Unmeasurable, or what torch raises for work that it cannot do."""
    if kind not in _KINDS:
        raise Unmeasurable(f"work of kind {kind} cannot be executed by itself")
    return _KINDS[kind](what)


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise Unmeasurable(f"PyTorch has no products of {name}")
    return DTYPES[name]


def _gemm(what: Json) -> Prepared:
    # cuBLAS thinks in columns: its product a b is, by rows, PyTorch's product of b and a, transposed.
    left = _matrix(what["batch"], what["n"], what["k"], what["b"], turned=what["transb"] != "n")
    right = _matrix(what["batch"], what["k"], what["m"], what["a"], turned=what["transa"] != "n")
    into = _dtype(what["c"])
    if what["a"] == "f32" or what["a"] == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = what["compute"] == "tf32"
    epilogue = {part for part in what["epilogue"].split("_") if part not in ("default", "bias", "bgrada", "bgradb")}
    if epilogue - {"relu", "gelu"}:
        raise Unmeasurable(f"no operator of PyTorch has the epilogue {what['epilogue']}")
    if what["a"].startswith("f8") or what["b"].startswith("f8"):
        return _scaled(left, right, into)
    if left.dtype == torch.int8 and what["batch"] == 1:
        return Prepared(lambda: torch._int_mm(left, right), left)
    if epilogue:
        bias = random_tensor((what["m"],), left.dtype)
        return Prepared(lambda: aten._addmm_activation(bias, left, right, use_gelu="gelu" in epilogue), left)
    product = aten.bmm if what["batch"] > 1 else aten.mm
    if into != left.dtype:
        return Prepared(lambda: product.dtype(left, right, into), left)
    if what["call"] == "cublasLtMatmul" and what["batch"] == 1:
        bias = random_tensor((what["m"],), left.dtype)
        return Prepared(lambda: aten.addmm(bias, left, right), left)
    return Prepared(lambda: product(left, right), left)


def _matrix(batch: int, rows: int, columns: int, dtype: str, *, turned: bool) -> Tensor:
    stored = (columns, rows) if turned else (rows, columns)
    made = random_tensor((batch, *stored) if batch > 1 else stored, _dtype(dtype))
    return made.transpose(-1, -2) if turned else made


def _scaled(left: Tensor, right: Tensor, into: torch.dtype) -> Prepared:
    one = torch.ones((), device=DEVICE)
    return Prepared(lambda: torch._scaled_mm(left, right, one, one, out_dtype=into), left)


def _conv(what: Json) -> Prepared:
    dtype = _dtype(what["dtype"])
    torch.backends.cudnn.allow_tf32 = what["dtype"] == "tf32"
    x, w, y = (_placed(what[name], dtype, what["layout"]) for name in ("x", "w", "y"))
    how = what["stride"], what["padding"], what["dilation"]
    if what["direction"] == "fwd":
        stride, padding, dilation = how
        return Prepared(
            lambda: aten.cudnn_convolution(
                x, w, padding, stride, dilation, what["groups"], False, False, what["dtype"] == "tf32"
            ),
            x,
        )
    mask = [what["direction"] == "dgrad", what["direction"] == "wgrad", False]
    none = [0] * len(what["stride"])
    return Prepared(
        lambda: aten.convolution_backward(y, x, w, None, *how, False, none, what["groups"], mask),
        y,
    )


def _placed(shape: list[int], dtype: torch.dtype, layout: str) -> Tensor:
    made = random_tensor(tuple(shape), dtype)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return made.contiguous(memory_format=formats[len(shape)]) if layout == "nhwc" and len(shape) in formats else made


def _sdpa(what: Json) -> Prepared:
    dtype = _dtype(what["dtype"])
    # As projections leave them: heads are next to each other in memory.
    q, k, v = (random_tensor((b, t, h, d), dtype).transpose(1, 2) for b, h, t, d in (what["q"], what["k"], what["v"]))
    dropout = 0.1 if what["dropout"] else 0.0
    forward = aten._scaled_dot_product_cudnn_attention
    backward_too = what["direction"] == "bwd"

    def run_forward() -> Any:
        return forward(q, k, v, None, True, dropout, what["causal"], False)

    if not backward_too:
        return Prepared(run_forward, q)
    out, logsumexp, seq_q, seq_k, max_q, max_k, seed, offset, _ = run_forward()
    gradient = torch.randn_like(out)
    backward = aten._scaled_dot_product_cudnn_attention_backward

    def run_backward() -> Any:
        return backward(
            gradient, q, k, v, out, logsumexp, seed, offset, None, seq_q, seq_k, max_q, max_k, dropout, what["causal"]
        )

    return Prepared(run_backward, gradient)


def _norm(what: Json) -> Prepared:
    if what["mode"] not in ("spatial", "spatial_persistent", "per_activation"):
        raise Unmeasurable(f"no operator of PyTorch uses cuDNN's normalisation of mode {what['mode']}")
    x = _placed(what["x"], _dtype(what["dtype"]), what["layout"])
    channels = what["x"][1]
    weight, bias, mean = (torch.randn(channels, device=DEVICE) for _ in range(3))
    variance = torch.rand(channels, device=DEVICE) + 0.5

    def forward() -> Any:
        return aten.cudnn_batch_norm(x, weight, bias, mean, variance, True, 0.1, 1e-5)

    if what["direction"] == "fwd":
        return Prepared(forward, x)
    _, saved_mean, saved_variance, reserve = forward()
    gradient = torch.randn_like(x)
    return Prepared(
        lambda: aten.cudnn_batch_norm_backward(
            x, gradient, weight, mean, variance, saved_mean, saved_variance, 1e-5, reserve
        ),
        gradient,
    )


def _rnn(what: Json) -> Prepared:
    if what["direction"] != "fwd":
        raise Unmeasurable("cuDNN computes both gradients of a recurrent network in one call of PyTorch")
    kinds: dict[str, Any] = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    torch.backends.cudnn.allow_tf32 = what["dtype"] == "tf32"
    options: Json = {"num_layers": what["layers"], "bidirectional": bool(what["bidirectional"])}
    if what["projection"] != what["hidden"]:
        options["proj_size"] = what["projection"]
    if what["mode"] in ("relu", "tanh"):
        kinds[what["mode"]], options["nonlinearity"] = torch.nn.RNN, what["mode"]
    dtype = _dtype(what["dtype"])
    module = kinds[what["mode"]](what["input"], what["hidden"], **options).to(DEVICE, dtype)
    x = random_tensor((what["steps"], what["batch"], what["input"]), dtype)

    def run() -> Any:
        with torch.enable_grad():
            return module(x)

    return Prepared(run, x)


def _grouped(what: Json) -> Prepared:
    """Groups of equal length but for the longest one. Products whose rows are summed over have them last in the first
    operand.
    """
    shapes = [shape for shape in what["sizes"] if shape]
    if what["op"] != "aten::_grouped_mm" or len(shapes) < 3:
        raise Unmeasurable("the sizes of the grouped product are not known")
    a, b = shapes[:2]
    used, longest, rows = max(1, what["used"]), what["longest"], what["rows"]
    total = a[-1] if len(b) == 2 else a[0]
    lengths = [longest] + [(min(rows, total) - longest) // max(1, used - 1)] * (used - 1)
    lengths += [0] * (what["groups"] - used)
    lengths[used - 1] += total - sum(lengths)
    offsets = torch.tensor(lengths, device=DEVICE).cumsum(0).to(torch.int32)
    left = _matrix(1, a[0], a[1], "bf16", turned=len(b) == 2)
    right = random_tensor(tuple(b), torch.bfloat16)
    if len(b) == 3:
        right = right.transpose(-1, -2).contiguous().transpose(-1, -2)
    return Prepared(lambda: torch._grouped_mm(left, right, offs=offsets), left)


def _copy(what: Json) -> Prepared:
    nbytes, direction = max(1, what["nbytes"]), what["direction"]
    if direction not in ("h2d", "d2h", "d2d"):
        raise Unmeasurable(f"a copy {direction} needs more than one GPU")
    here = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=DEVICE)
    if direction == "d2d":
        there = torch.empty_like(here)
        return Prepared(lambda: there.copy_(here), here)
    host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=what["memory"] == "pinned").random_()
    into, source = (here, host) if direction == "h2d" else (host, here)
    return Prepared(lambda: into.copy_(source, non_blocking=True), None if direction == "h2d" else here)


def _memset(what: Json) -> Prepared:
    nbytes = max(1, what["nbytes"])
    target = torch.zeros(nbytes, dtype=torch.uint8, device=DEVICE)
    fill: Callable[..., int] = ctypes.CDLL(None).cudaMemsetAsync
    address, size = ctypes.c_void_p(target.data_ptr()), ctypes.c_size_t(nbytes)

    def run() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if error := fill(address, _MEMSET_VALUE, size, stream):
            raise RuntimeError(f"cudaMemsetAsync: error {error}")

    return Prepared(run, target)


_KINDS: dict[str, Callable[[Json], Prepared]] = {
    "gemm": _gemm,
    "conv": _conv,
    "sdpa": _sdpa,
    "norm": _norm,
    "rnn": _rnn,
    "grouped": _grouped,
    "copy": _copy,
    "memset": _memset,
}
