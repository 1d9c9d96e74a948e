"""The standard grid of work that a GPU is measured with, without a script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from phantora_async.gpu_profile.bench import Json
from profiles.signature import Conv, Copy, Gemm, Memset, Sdpa, format_signature

Call = Json
FAMILIES = (
    "gemm",
    "attention",
    "grouped",
    "norm",
    "softmax",
    "elementwise",
    "optimizer",
    "embedding",
    "reduction",
    "copy",
    "convolution",
)
TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
MODELS = (
    (768, 2304),
    (768, 768),
    (768, 3072),
    (3072, 768),
    (1024, 1024),
    (1024, 4096),
    (4096, 1024),
    (2048, 2048),
    (2048, 512),
    (2048, 8192),
    (8192, 2048),
    (4096, 4096),
    (4096, 14336),
    (14336, 4096),
    (5120, 13824),
    (8192, 8192),
    (8192, 28672),
    (768, 50304),
    (1024, 30522),
    (2048, 128256),
    (4096, 32000),
)
"""The inputs and outputs of linear layers: from GPT-2 to Llama 70B."""
ROWS = ((2048, 768), (8192, 768), (2048, 2048), (8192, 2048), (4096, 4096), (16384, 4096), (8192, 8192))
"""The sizes of activations: tokens, width."""
WORDS = ((2048, 32000), (8192, 50304), (8192, 128256), (4096, 30522))
"""The sizes of the logits of a language model's head: tokens, vocabulary."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Work of the grid: a signature of a library, or a call of an operator whose kernels are signatures."""

    family: str
    signature: str = ""
    call: Call | None = None

    @property
    def key(self) -> str:
        return self.signature or repr(self.call)


def pieces(families: tuple[str, ...] = FAMILIES) -> Iterator[Piece]:
    """Yields the work of the families in turns, so that a sweep that is cut short has measured something of each."""
    waiting = [iter(list(_GRIDS[family]())) for family in families]
    while waiting:
        for one in list(waiting):
            piece = next(one, None)
            if piece is None:
                waiting.remove(one)
            else:
                yield piece


# ---- products ---


def _gemm(
    m: int, n: int, k: int, dtype: str, trans: str, batch: int = 1, into: str = "", compute: str = "f32"
) -> Piece:
    stored = "f32" if dtype == "tf32" else dtype
    compute = {"tf32": "tf32", "f64": "f64"}.get(dtype, compute)
    what = Gemm(
        "cublasGemmEx",
        trans[0],
        trans[1],
        m,
        n,
        k,
        batch,
        stored,
        stored,
        into or stored,
        compute,
        "default",
        "aten::bmm" if batch > 1 else "aten::mm",
        (),
    )
    return Piece("gemm", format_signature(what))


def _gemms() -> Iterator[Piece]:
    for tokens in TOKENS:
        for inputs, outputs in MODELS:
            if tokens * inputs * outputs > 8192 * 8192 * 28672 or tokens * outputs > 16384 * 50304:
                continue
            # Forward, gradient of the input, gradient of the weight.
            shapes = ((outputs, tokens, inputs, "tn"), (inputs, tokens, outputs, "nn"), (inputs, outputs, tokens, "nt"))
            for m, n, k, trans in shapes:
                yield _gemm(m, n, k, "bf16", trans)
                small = tokens in (1024, 4096) and inputs * outputs <= 4096 * 14336
                if small and (inputs, outputs) in MODELS[::2]:
                    yield from (_gemm(m, n, k, dtype, trans) for dtype in ("f16", "tf32"))
                if small and tokens == 1024 and (inputs, outputs) in MODELS[1:12:2]:
                    yield _gemm(m, n, k, "f32", trans)
            if tokens >= 1024 and inputs % 16 == 0 and outputs % 16 == 0:
                yield _gemm(outputs, tokens, inputs, "f8e4m3", "tn", into="bf16")
    for batch, length, depth in ((96, 512, 64), (128, 1024, 64), (64, 2048, 128)):
        for dtype in ("bf16", "f16", "tf32"):
            yield _gemm(length, length, depth, dtype, "tn", batch)
            yield _gemm(depth, length, length, dtype, "nn", batch)
            yield _gemm(depth, length, length, dtype, "nt", batch)
    for side in (1024, 2048, 4096):
        yield _gemm(side, side, side, "f64", "nn")


def _attention() -> Iterator[Piece]:
    for batch, heads, shared, length, depth in (
        (8, 12, 12, 512, 64),
        (8, 12, 12, 1024, 64),
        (4, 16, 16, 1024, 64),
        (4, 32, 32, 2048, 64),
        (4, 32, 8, 2048, 64),
        (1, 32, 32, 4096, 128),
        (1, 32, 8, 4096, 128),
        (2, 32, 8, 2048, 128),
        (1, 32, 8, 8192, 128),
        (2, 16, 16, 4096, 64),
        (1, 64, 8, 4096, 128),
        (16, 16, 16, 384, 64),
        (64, 12, 12, 256, 64),
    ):
        q, k = (batch, heads, length, depth), (batch, shared, length, depth)
        for causal in (True, False):
            for direction in ("fwd", "bwd"):
                for dtype in ("bf16", "f16") if depth == 64 else ("bf16",):
                    name = f"aten::_cudnn_attention_{'forward' if direction == 'fwd' else 'backward'}"
                    what = Sdpa(direction, q, k, k, dtype, causal, False, name, ())
                    yield Piece("attention", format_signature(what))
        if heads == shared:
            x = _t((batch, length, heads, depth))
            call = _call("_flash_attention_forward", "", [x, x, x, None, None, length, length, 0.0, True, False])
            yield Piece("attention", call=call)


def _grouped() -> Iterator[Piece]:
    for groups, rows, inputs, outputs in (
        (8, 8192, 4096, 14336),
        (8, 8192, 14336, 4096),
        (16, 8192, 2048, 1408),
        (16, 8192, 1408, 2048),
        (64, 16384, 2048, 1408),
        (64, 16384, 1408, 2048),
        (128, 32768, 2048, 768),
        (128, 32768, 768, 2048),
    ):
        ends = [rows * (one + 1) // groups for one in range(groups)]
        offsets = {"shape": [groups], "dtype": "i32", "values": ends}
        by_row = {"shape": [groups, inputs, outputs], "dtype": "bf16", "layout": "turned"}
        yield Piece("grouped", call=_call("_grouped_mm", "", [_t((rows, inputs)), by_row, offsets]))
        left = {"shape": [inputs, rows], "dtype": "bf16", "layout": "turned"}
        yield Piece("grouped", call=_call("_grouped_mm", "", [left, _t((rows, outputs)), offsets]))


# ---- PyTorch's own kernels ---


def _t(shape: tuple[int, ...], dtype: str = "bf16", **more: Any) -> Json:
    return {"shape": list(shape), "dtype": dtype, **more}


def _call(op: str, overload: str, args: list[Any], **kwargs: Any) -> Call:
    return {"op": f"aten::{op}", "overload": overload or "default", "args": args, "kwargs": kwargs}


def _norms() -> Iterator[Piece]:
    for rows, width in ROWS:
        for dtype in ("bf16", "f32"):
            x, w = _t((rows, width), dtype), _t((width,), dtype)
            one = _t((rows, 1), "f32")
            yield Piece("norm", call=_call("native_layer_norm", "", [x, [width], w, w, 1e-5]))
            yield Piece(
                "norm", call=_call("native_layer_norm_backward", "", [x, x, [width], one, one, w, w, [True] * 3])
            )
            yield Piece("norm", call=_call("_fused_rms_norm", "", [x, [width], w, 1e-5]))
            yield Piece("norm", call=_call("_fused_rms_norm_backward", "", [x, x, [width], one, w, [True] * 2]))
    for batch, channels, side in ((64, 64, 56), (256, 64, 112), (256, 256, 56), (64, 512, 28), (256, 1024, 14)):
        for layout in ("dense", "channels_last"):
            x, w = _t((batch, channels, side, side), layout=layout), _t((channels,), "f32")
            yield Piece("norm", call=_call("native_batch_norm", "", [x, w, w, w, w, True, 0.1, 1e-5]))
            yield Piece(
                "norm",
                call=_call("native_batch_norm_backward", "", [x, x, w, w, w, w, w, True, 1e-5, [True] * 3]),
            )


def _softmaxes() -> Iterator[Piece]:
    for rows, width in WORDS:
        for dtype in ("f32", "bf16"):
            x = _t((rows, width), dtype)
            yield Piece("softmax", call=_call("_log_softmax", "", [x, 1, False]))
            yield Piece("softmax", call=_call("_log_softmax_backward_data", "", [x, x, 1, {"dtype": dtype}]))
        target, total = _t((rows,), "i64", below=width), _t((), "f32")
        x = _t((rows, width), "f32")
        yield Piece("softmax", call=_call("nll_loss_forward", "", [x, target, None, 1, -100]))
        yield Piece("softmax", call=_call("nll_loss_backward", "", [total, x, target, None, 1, -100, total]))
    for batch, heads, length in ((8, 12, 512), (8, 16, 1024), (4, 32, 2048)):
        for dtype in ("bf16", "f32"):
            x = _t((batch, heads, length, length), dtype)
            yield Piece("softmax", call=_call("_softmax", "", [x, -1, False]))
            yield Piece("softmax", call=_call("_softmax_backward_data", "", [x, x, -1, {"dtype": dtype}]))


_UNARY = ("gelu", "silu", "relu", "sigmoid", "tanh", "exp", "rsqrt", "neg", "abs", "log", "cos", "sin")
_UNARY_BACKWARD = ("gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward")


def _elementwise() -> Iterator[Piece]:
    # From sizes that fit the L2 cache to those that the memory's bandwidth limits.
    for elements in (1 << 18, 3 << 20, 1 << 23, 3 << 23, 1 << 26, 1 << 28):
        for dtype in ("bf16", "f32", "f16"):
            if dtype == "f16" and elements not in (3 << 20, 1 << 26):
                continue
            x = _t((elements // 2048, 2048), dtype)
            for op, overload, args in (
                ("add", "Tensor", [x, x]),
                ("add_", "Tensor", [x, x]),
                ("mul", "Tensor", [x, x]),
                ("mul", "Tensor", [x, 2.0]),
                ("mul_", "Tensor", [x, 2.0]),
                ("sub", "Tensor", [x, x]),
                ("div", "Tensor", [x, 2.0]),
                ("copy_", "", [x, x]),
                ("fill_", "Scalar", [x, 1.0]),
                ("pow", "Tensor_Scalar", [x, 2.0]),
                ("threshold_backward", "", [x, x, 0.0]),
                ("clamp_min", "", [x, 0.0]),
                ("native_dropout", "", [x, 0.1, True]),
                ("masked_fill_", "Scalar", [x, _t((elements // 2048, 2048), "b8"), 0.0]),
                ("where", "self", [_t((elements // 2048, 2048), "b8"), x, x]),
            ):
                yield Piece("elementwise", call=_call(op, overload, args))
            if elements <= 1 << 26:
                yield from (
                    Piece("elementwise", call=_call(op, "", [x])) for op in _UNARY[: 12 if dtype == "bf16" else 3]
                )
                yield from (Piece("elementwise", call=_call(op, "", [x, x])) for op in _UNARY_BACKWARD)
            # Operands of different types have kernels of their own, which cast.
            for other in ("f32", "bf16", "f16"):
                if other != dtype:
                    y = _t((elements // 2048, 2048), other)
                    yield Piece("elementwise", call=_call("copy_", "", [y, x]))
                    yield Piece("elementwise", call=_call("add", "Tensor", [x, y]))
                    yield Piece("elementwise", call=_call("mul", "Tensor", [x, y]))
    # Operands that are repeated along a dimension, or transposed: their kernels compute addresses.
    for rows, width in ROWS:
        x = _t((rows, width))
        yield Piece("elementwise", call=_call("add", "Tensor", [x, _t((width,))]))
        yield Piece("elementwise", call=_call("mul", "Tensor", [x, _t((rows, 1))]))
        yield Piece("elementwise", call=_call("copy_", "", [x, _t((rows, width), layout="turned")]))
    for batch, heads, length, depth in ((8, 12, 1024, 64), (4, 32, 2048, 64), (1, 32, 4096, 128)):
        # Rotary embeddings compute with transposed heads, and with halves of each.
        heads_last = _t((batch, heads, length, depth), layout="heads")
        yield Piece("elementwise", call=_call("copy_", "", [_t((batch, heads, length, depth)), heads_last]))
        yield Piece("elementwise", call=_call("mul", "Tensor", [heads_last, _t((1, 1, length, depth))]))
        yield Piece("elementwise", call=_call("mul", "Tensor", [heads_last, _t((1, 1, length, depth), "f32")]))
        half = _t((batch, heads, length, depth // 2), layout="part")
        yield Piece("elementwise", call=_call("neg", "", [half]))
        yield Piece("elementwise", call=_call("cat", "", [[half, half], -1]))


def _optimizers() -> Iterator[Piece]:
    for chunks in (8, 40, 96, 160, 240, 320):
        for dtype in ("f32", "bf16"):
            x = [_t((chunks << 16,), dtype)]
            steps = [_t((), "f32")]
            adam = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
            for op in ("_fused_adamw_", "_fused_adam_"):
                call = _call(op, "", [x, x, x, x, [], steps], **adam, amsgrad=False, maximize=False)
                yield Piece("optimizer", call=call)
            sgd = {"weight_decay": 0.0, "momentum": 0.9, "lr": 1e-2, "dampening": 0.0, "nesterov": False}
            call = _call("_fused_sgd_", "", [x, x, x], **sgd, maximize=False, is_first_step=False)
            yield Piece("optimizer", call=call)
            for op, overload, args in (
                ("_foreach_mul_", "Scalar", [x, 0.9]),
                ("_foreach_mul_", "Tensor", [x, _t((), "f32")]),
                ("_foreach_add_", "Scalar", [x, 1.0]),
                ("_foreach_add_", "List", [x, x]),
                ("_foreach_lerp_", "Scalar", [x, x, 0.1]),
                ("_foreach_addcmul_", "Scalar", [x, x, x, 0.1]),
                ("_foreach_addcdiv_", "ScalarList", [x, x, x, [0.1]]),
                ("_foreach_div_", "ScalarList", [x, [0.9]]),
                ("_foreach_sqrt", "", [x]),
                ("_foreach_norm", "Scalar", [x, 2]),
                ("_foreach_copy_", "", [x, x]),
                ("_foreach_zero_", "", [x]),
            ):
                yield Piece("optimizer", call=_call(op, overload, args))


def _embeddings() -> Iterator[Piece]:
    for words, width in ((32000, 1024), (50304, 768), (128256, 2048), (128256, 4096)):
        for tokens in (2048, 8192, 16384):
            for dtype in ("bf16", "f32"):
                indices = _t((tokens,), "i64", below=words)
                rows = _t((tokens, width), dtype)
                yield Piece("embedding", call=_call("index_select", "", [_t((words, width), dtype), 0, indices]))
                call = _call("embedding_dense_backward", "", [rows, indices, words, -1, False])
                yield Piece("embedding", call=call)


def _reductions() -> Iterator[Piece]:
    for rows, width in (*ROWS, (8192, 14336), (16384, 3072)):
        for dtype in ("bf16", "f32"):
            x = _t((rows, width), dtype)
            for dims in ([0], [1]):
                yield Piece("reduction", call=_call("sum", "dim_IntList", [x, dims]))
            yield Piece("reduction", call=_call("mean", "dim", [x, [1], True]))
            yield Piece("reduction", call=_call("sum", "", [x]))
            yield Piece("reduction", call=_call("argmax", "", [x, 1]))


def _copies() -> Iterator[Piece]:
    for power in range(8, 29, 2):
        nbytes = 1 << power
        for direction, memory in (
            ("h2d", "pinned"),
            ("d2h", "pinned"),
            ("h2d", "pageable"),
            ("d2h", "pageable"),
            ("d2d", "pinned"),
        ):
            yield Piece("copy", format_signature(Copy(direction, nbytes, memory)))
        yield Piece("copy", format_signature(Memset(nbytes)))


def _convolutions() -> Iterator[Piece]:
    layers = [
        (3, 64, 7, 2, 224),
        (64, 64, 1, 1, 56),
        (64, 64, 3, 1, 56),
        (64, 256, 1, 1, 56),
        (256, 64, 1, 1, 56),
        (256, 128, 1, 1, 56),
        (128, 128, 3, 2, 56),
        (128, 512, 1, 1, 28),
        (128, 128, 3, 1, 28),
        (256, 256, 3, 1, 14),
        (256, 1024, 1, 1, 14),
        (512, 512, 3, 1, 7),
        (512, 2048, 1, 1, 7),
        (3, 768, 16, 16, 224),
        (320, 320, 3, 1, 64),
    ]
    for batch in (64, 256):
        for inputs, outputs, kernel, stride, side in layers:
            padding = 0 if kernel == 16 else kernel // 2
            after = (side + 2 * padding - kernel) // stride + 1
            x, w, y = (batch, inputs, side, side), (outputs, inputs, kernel, kernel), (batch, outputs, after, after)
            if prod(x) > 256 * 256 * 56 * 56 * 2:
                continue
            for dtype, layout in (("bf16", "nhwc"), ("tf32", "nchw"), ("f16", "nhwc"), ("bf16", "nchw")):
                if batch == 64 and (dtype, layout) in (("f16", "nhwc"), ("bf16", "nchw")):
                    continue
                for direction in ("fwd", "dgrad", "wgrad"):
                    what = Conv(
                        direction,
                        x,
                        w,
                        y,
                        (padding,) * 2,
                        (stride,) * 2,
                        (1, 1),
                        1,
                        dtype,
                        layout,
                        "aten::cudnn_convolution" if direction == "fwd" else "aten::convolution_backward",
                        (),
                    )
                    yield Piece("convolution", format_signature(what))


_GRIDS = {
    "gemm": _gemms,
    "attention": _attention,
    "grouped": _grouped,
    "norm": _norms,
    "softmax": _softmaxes,
    "elementwise": _elementwise,
    "optimizer": _optimizers,
    "embedding": _embeddings,
    "reduction": _reductions,
    "copy": _copies,
    "convolution": _convolutions,
}
