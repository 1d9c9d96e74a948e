"""Usual arguments of ATen's operators, by the names of their parameters: a signature does not say them."""

from __future__ import annotations

from typing import Any

from .tensors import Json

Shapes = dict[str, list[int]]
"""The shapes of an operator's tensors, by parameter."""

INDEX_NAMES = {"indices", "index", "target", "offs", "offsets"}
MASK_NAMES = {"mask", "condition", "dropout_mask"}
FULL_PRECISION = {
    "mean",
    "rstd",
    "save_mean",
    "save_invstd",
    "running_mean",
    "running_var",
    "running_variance",
    "save_var",
    "logsumexp",
    "state_steps",
    "grad_scale",
    "found_inf",
    "inv_scale",
    "total_weight",
    "scale",
}
"""Names of parameters that are f32, whatever the type of the rest is."""
PARAMETERS = {"weight", "bias", "gamma", "beta"}
"""Names of parameters that have the type of the rest, or f32."""
INTEGERS = {
    "philox_seed": "i64",
    "philox_offset": "i64",
    "rng_state": "i64",
    "unused": "i64",
    "cum_seq_q": "i32",
    "cum_seq_k": "i32",
    "cu_seqlens_q": "i32",
    "cu_seqlens_k": "i32",
    "seqlen_k": "i32",
    "offset2bag": "i64",
    "bag_size": "i64",
    "max_indices": "i64",
}
_NONE: list[Any] = [None]
VALUES: dict[str, list[Any]] = {
    "p": [0.1],
    "dropout_p": [0.0, 0.1],
    "train": [True],
    "training": [True],
    "eps": [1e-5],
    "momentum": [0.1],
    "exponent": [2.0, 0.5, 3.0, -0.5, -1.0],
    "alpha": [1],
    "beta": [1],
    "reduction": [1, 2, 0],
    "ignore_index": [-100],
    "padding_idx": [-1],
    "num_weights": [32000],
    "lr": [1e-3],
    "beta1": [0.9],
    "beta2": [0.95],
    "weight_decay": [0.01, 0.0],
    "amsgrad": [False],
    "maximize": [False],
    "is_causal": [True, False],
    "half_to_float": [False, True],
    "approximate": ["none", "tanh"],
    "kernel_size": [[3, 3], [2, 2]],
    "stride": [[2, 2], [1, 1]],
    "padding": [[1, 1], [0, 0]],
    "dilation": [[1, 1]],
    "ceil_mode": [False],
    "min": [0.0, None],
    "max": [None, 1.0],
    "dampening": [0.0],
    "nesterov": [False, True],
    "is_first_step": [False],
    "largest": [True],
    "sorted": [True],
    "descending": [False, True],
    "k": [2, 1, 8],
    "compute_log_sumexp": [True],
    "custom_mask_type": [1, 0],
    "return_debug_mask": [False],
    "negative_slope": [0.01],
    "ord": [2],
    "num_chunks": [2, 4, 8],
    "scale": [1.0],
    "transposed": [False],
    "accumulate": [False, True],
    "unsafe": [False],
    "non_blocking": [False],
    "generator": _NONE,
    "memory_format": _NONE,
    "layout": _NONE,
    "device": _NONE,
    "pin_memory": _NONE,
    "lambd": [0.5],
    "threshold": [0.0],
    "value": [1.0, 0.0],
    "other": [2.0, 1],
    "scalar": [0.9],
    "window_size": _NONE,
    "scale_grad_by_freq": [False],
    "sparse": [False],
    "mode": [0, 1],
    "include_last_offset": [False],
    "per_sample_weights": _NONE,
    "rounding_mode": [None, "floor"],
    "bins": [64],
    "stable": [False],
    "bias_requires_grad": [True],
}


def values(name: str, kind: str, default: Any, shapes: Shapes, dtype: str) -> list[Any]:
    """Returns values that a parameter that is no tensor may have, likely ones first. `kind` is its type in the schema,
    `dtype` that of the operator's main tensor.
    """
    first = next((shape for shape in shapes.values() if shape), [1])
    if made := _of_sizes(name, kind, shapes, first, dtype):
        return made
    if name in VALUES:
        return [_fitting(one, kind) for one in VALUES[name]]
    if default is not None:
        return [default]
    if kind.endswith("?"):
        return [None]
    plain: Json = {"bool": True, "int": 1, "SymInt": 1, "float": 1.0, "Scalar": 1.0, "str": "none"}
    if kind in plain:
        return [plain[kind]]
    if kind.startswith("bool["):
        return [[True] * int(kind[5:-1] or 1)]
    return [[]] if "[" in kind else [None]


def _of_sizes(name: str, kind: str, shapes: Shapes, first: list[int], dtype: str) -> list[Any]:
    """Returns values that follow from the shapes; none if the parameter's name says nothing."""
    if name in ("dim", "dims") and "[" in kind:
        every = list(range(len(first)))
        chosen = [
            every[-1:],
            every[:1],
            every[:-1],
            every[1:],
            every,
            every[:2],
            every[-2:],
            *([at] for at in every[1:-1]),
        ]
        chosen += [[0, 2], [0, 2, 3]] if len(first) > 2 else []
        unlike = [one for number, one in enumerate(chosen) if one and one not in chosen[:number]]
        return [*unlike, None] if kind.endswith("?") else unlike
    if name == "dim":
        return [len(first) - 1, *range(len(first) - 1)]
    if name == "normalized_shape":
        for weight in ("weight", "bias"):
            if shapes.get(weight):
                return [shapes[weight]]
        return [first[-1:]]
    if name in ("dtype", "out_dtype", "input_dtype"):
        return (
            [{"dtype": dtype}, {"dtype": "bf16"}, {"dtype": "f32"}]
            if not kind.endswith("?")
            else [None, {"dtype": "f32"}]
        )
    if name == "output_mask":
        return [[True] * int("".join(filter(str.isdigit, kind)) or 3)]
    if name in ("max_q", "max_seqlen_q", "max_k", "max_seqlen_k"):
        # Attention's operands are batch, length, heads, depth, but batch, heads, length, depth in cuDNN's operators.
        shape = shapes.get("query" if name.endswith("q") else "key", first)
        return [shape[1], shape[2]] if len(shape) == 4 else [1]
    if name in ("size", "shape", "self_size", "input_sizes"):
        return [first]
    return []


def _fitting(value: Any, kind: str) -> Any:
    """Returns the value in the form that `kind` needs: the kernel size of one dimension where there is one."""
    if isinstance(value, list) and value and "[1]" in kind:
        return value[:1]
    return value


def index_bound(op: str, shapes: Shapes) -> int:
    """Returns the number below which indices must be."""
    if "embedding" in op:
        return shapes["weight"][0] if shapes.get("weight") else 32000
    if "nll_loss" in op:
        return shapes["self"][1] if len(shapes.get("self", ())) > 1 else 1
    own = shapes.get("self") or next(iter(shapes.values()), [1])
    if op.endswith(("index", "_index_put_impl_", "index_put_", "index_add_", "index_select", "index_add")):
        return own[0] if own else 1
    return min(own) if own else 1
