"""Calls of an ATen operator that may launch a kernel of which the name, the grid and the operator's sizes are known.

A signature says neither types nor strides nor values. Types stand in the kernel's name; the rest is tried, likely calls
first. Which call launches the kernel is found by running them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

from ..private.access import overload_name, schema_of
from .arguments import FULL_PRECISION, INDEX_NAMES, INTEGERS, MASK_NAMES, PARAMETERS, Shapes, index_bound, values
from .operators import Unmeasurable, overloads
from .tensors import Json

MOST = 96
"""The most candidates of one kernel."""
_LOOKED_AT = 20_000
_TYPES = (
    (r"c10::BFloat16|__nv_bfloat16|bfloat16_t|bfloat16_copy", "bf16"),
    (r"c10::Half|__half\b|half_t|(?<!b)float16_copy", "f16"),
    (r"\bfloat\b", "f32"),
    (r"\bdouble\b", "f64"),
    (r"Float8_e4m3fn", "f8e4m3"),
    (r"Float8_e5m2", "f8e5m2"),
    (r"\blong\b", "i64"),
    (r"\bint\b", "i32"),
    (r"\bbool\b", "b8"),
    (r"\bunsigned char\b", "u8"),
    (r"\bshort\b", "i16"),
)
_USUAL = ("f32", "bf16", "f16", "i64", "b8", "i32")
_OPAQUE = {"1": ("u8", "b8"), "2": ("bf16", "f16"), "4": ("f32", "i32"), "8": ("i64", "f64")}
_MULTI_TENSOR = "multi_tensor_apply_kernel"
_CHUNK = 65_536
"""The number of elements of a block of such a kernel."""
_LAYOUTS: tuple[tuple[str, ...], ...] = (
    ("dense",),
    ("heads",),
    ("turned",),
    ("part",),
    ("dense", "heads"),
    ("dense", "turned"),
    ("heads", "dense"),
    ("turned", "dense"),
    ("dense", "part"),
    ("part", "dense"),
    ("channels_last",),
)
"""Layouts of an operator's tensors, in their order; the last one stands for all tensors that follow."""


def candidates(op: str, sizes: list[list[int]], name: str, grid: list[int]) -> list[Json]:
    """Returns calls (operators.prepare_call). `name` is readable. Raises Unmeasurable if there are none."""
    found: list[tuple[int, Json]] = []
    for overload in overloads(op):
        if not any("Tensor" in str(one.type) for one in schema_of(overload).arguments):
            continue
        for shapes in _shapes(schema_of(overload), sizes, name, grid):
            found += _calls(op, overload, shapes, name)
    if not found:
        raise Unmeasurable(f"no operator {op} takes {len(sizes)} arguments of these sizes")
    found.sort(key=lambda one: one[0])
    unlike = {json.dumps(call, sort_keys=True): call for _, call in found}
    return list(unlike.values())[:MOST]


def types_in(name: str) -> list[str]:
    """Returns the names of dtypes that a readable kernel name mentions before its parameters, in their order."""
    name = name.replace("(int", "(")  # its own first parameter
    places: list[tuple[int, str]] = []
    for pattern, dtype in _TYPES:
        if found := re.search(pattern, name):
            places.append((found.start(), dtype))
    for found in re.finditer(r"OpaqueType<(\d+)", name):
        places += [(found.start(), dtype) for dtype in _OPAQUE.get(found[1], ())]
    return [dtype for _, dtype in sorted(places)]


def _shapes(schema: Any, sizes: list[list[int]], name: str, grid: list[int]) -> Iterator[dict[str, Any]]:
    """Yields for each parameter a shape, a list of shapes, or None where there is no tensor."""
    parameters = schema.arguments
    lists = [one.name for one in parameters if str(one.type) in ("List[Tensor]", "List[Optional[Tensor]]")]
    if not lists:
        if len(sizes) == len(parameters):
            yield {one.name: shape for one, shape in zip(parameters, sizes, strict=True)}
        return
    plain = [one for one in parameters if one.name not in lists]
    inside = len(sizes) - len(plain)
    for filled in range(len(lists), 0, -1):
        if inside <= 0 or inside % filled:
            continue
        each = inside // filled
        # An optimizer's list of maxima is empty without amsgrad.
        used = [one for one in lists if one != "max_exp_avg_sqs"] if filled < len(lists) else lists
        if len(used) != filled:
            continue
        made: dict[str, Any] = {one: [] for one in lists}
        rest = list(sizes)
        for parameter in parameters:
            if parameter.name in used:
                made[parameter.name], rest = rest[:each], rest[each:]
            elif parameter.name not in lists:
                made[parameter.name], rest = rest[0], rest[1:]
        yield made
    if _MULTI_TENSOR in name:
        for empty in ((), ("max_exp_avg_sqs",)):
            full: dict[str, Any] = {one.name: [] for one in plain}
            for one in lists:
                one_shape = [] if one == "state_steps" else [grid[0] * _CHUNK]
                full[one] = [] if one in empty else [one_shape]
            yield full


def _calls(op: str, overload: Any, shapes: dict[str, Any], name: str) -> list[tuple[int, Json]]:
    """Returns calls, each with a rank: how unlikely it is."""
    parameters = [one for one in schema_of(overload).arguments if one.name in shapes]
    tensors: Shapes = {
        one.name: shapes[one.name]
        for one in parameters
        if str(one.type) in ("Tensor", "Optional[Tensor]") and (shapes[one.name] or not _optional(one))
    }
    for one in parameters:
        if isinstance(shapes[one.name], list) and shapes[one.name] and isinstance(shapes[one.name][0], list):
            tensors.setdefault(f"{one.name}[0]", shapes[one.name][0])
    axes: list[list[Any]] = [_dtypes(name, tensors), _layouts(name, list(tensors.values()))]
    choosers: list[str] = []
    for one in parameters:
        options = _plain_options(op, one, shapes, tensors)
        if len(options) > 1:
            choosers.append(one.name)
            axes.append(options)
    found = []
    indices = product(*(range(len(axis)) for axis in axes))
    for chosen in sorted(islice(indices, _LOOKED_AT), key=sum)[: 2 * MOST]:
        dtypes, layouts, *picked = (axis[at] for axis, at in zip(axes, chosen, strict=True))
        values_of = dict(zip(choosers, picked, strict=True))
        found.append((sum(chosen), _call(op, overload, parameters, shapes, tensors, dtypes, layouts, values_of)))
    return found


def _optional(parameter: Any) -> bool:
    return str(parameter.type).startswith("Optional")


def _dtypes(name: str, tensors: Shapes) -> list[tuple[str, str, str]]:
    """Returns the types of the first tensor, of the others, and of weights and biases."""
    named = types_in(name)
    floats = [one for one in named if one not in ("i64", "i32", "b8", "u8")]
    every = [*dict.fromkeys([*floats, *_USUAL, *named])]
    same = [(one, one, one) for one in every]
    mixed = [(a, b, b) for a in every[:3] for b in every[:3] if a != b] if len(tensors) > 1 else []
    parameters = [(one, one, "f32") for one in every[:3] if one != "f32" and not PARAMETERS.isdisjoint(tensors)]
    if "WithCast" in name or "gpu_kernel_impl<" in name:
        return [*mixed, *same]
    return [same[0], *parameters[:1], *mixed[:2], *same[1:3], *mixed[2:], *same[3:], *parameters[1:]]


def _layouts(name: str, shapes: list[list[int]]) -> list[tuple[str, ...]]:
    most = max((len(shape) for shape in shapes), default=0)
    several = len(shapes) > 1
    fewest = {"heads": 4, "turned": 2, "part": 1, "channels_last": 4}
    fitting = [
        one for one in _LAYOUTS if (several or len(one) == 1) and all(most >= fewest.get(each, 0) for each in one)
    ]
    if "nhwc" in name:
        fitting.sort(key=lambda one: "channels_last" not in one)
    return fitting


def _plain_options(op: str, parameter: Any, shapes: dict[str, Any], tensors: Shapes) -> list[Any]:
    kind = str(parameter.type)
    if kind == "Tensor" and not shapes[parameter.name]:
        # A number of Python's that was wrapped, or a tensor of one element.
        if parameter.name in FULL_PRECISION or parameter.name in INTEGERS:
            return [{"shape": []}]
        return ["number", {"shape": []}]
    if "Tensor" in kind:
        return []
    if packing := _packing(op, parameter.name, shapes):
        return packing
    default = parameter.default_value if parameter.has_default_value() else None
    made_of = _kind(str(getattr(parameter, "real_type", parameter.type)), parameter)
    if made_of == "Scalar[]":  # one for each tensor of a list
        return [[0.9] * max((len(one) for one in shapes.values() if one and isinstance(one[0], list)), default=1)]
    return values(parameter.name, made_of, default, tensors, "f32")


def _packing(op: str, name: str, shapes: dict[str, Any]) -> list[Any]:
    """Returns the arguments that FSDP gives the operators that pack and unpack its parameters: they follow from the
    shapes of the outputs.
    """
    out = shapes.get("out")
    if op == "aten::_chunk_cat" and out:
        found: dict[str, list[Any]] = {"dim": [0], "num_chunks": [out[0]]}
        return found.get(name, [])
    if op == "aten::split_with_sizes_copy" and out:
        split: dict[str, list[Any]] = {"dim": [len(out[0]) - 1], "split_sizes": [[shape[-1] for shape in out]]}
        return split.get(name, [])
    return []


def _kind(text: str, parameter: Any) -> str:
    """Returns a parameter's type as schemas write it."""
    optional = text.startswith("Optional[")
    inner = text[9:-1] if optional else text
    size = "" if parameter.N is None else str(parameter.N)
    inner = {"number": "Scalar", "Device": "Device", "bool": "bool"}.get(inner, inner)
    if found := re.match(r"List\[(\w+)\]", inner):
        inner = f"{ {'number': 'Scalar'}.get(found[1], found[1]) }[{size}]".replace(" ", "")
    return inner + "?" if optional else inner


def _call(
    op: str,
    overload: Any,
    parameters: list[Any],
    shapes: dict[str, Any],
    tensors: Shapes,
    dtypes: tuple[str, str, str],
    layouts: tuple[str, ...],
    chosen: dict[str, Any],
) -> Json:
    args: list[Any] = []
    kwargs: Json = {}
    bound, place = index_bound(op, tensors), 0

    def tensor(name: str, shape: list[int]) -> Json:
        nonlocal place
        dtype = dtypes[0] if place == 0 else dtypes[2] if name in PARAMETERS else dtypes[1]
        layout = layouts[min(place, len(layouts) - 1)] if shape else "dense"
        place += 1
        if name in FULL_PRECISION:
            return {"shape": shape, "dtype": "f32"}
        if name in MASK_NAMES:
            return {"shape": shape, "dtype": "b8", "layout": layout}
        if name in INTEGERS:
            return {"shape": shape, "dtype": INTEGERS[name], "below": 1}
        if name == "offsets" and len(shape) == 1 and tensors.get("indices"):
            total = tensors["indices"][0]
            return {"shape": shape, "dtype": "i64", "values": [total * at // shape[0] for at in range(shape[0])]}
        if name in INDEX_NAMES and dtype not in ("i32",):
            return {"shape": shape, "dtype": "i64", "below": bound}
        if name in INDEX_NAMES:
            return {"shape": shape, "dtype": "i32", "below": bound}
        if len(shape) < 2 or (layout in ("heads", "channels_last") and len(shape) < 4):
            layout = "dense"
        return {"shape": shape, "dtype": dtype, "layout": layout}

    for one in parameters:
        shape, kind = shapes[one.name], str(one.type)
        value: Any
        if kind.startswith("List") and "Tensor" in kind:
            # The tensors of a list have one type and one layout, so all of them take the list's place.
            before = place
            value = []
            for each in shape:
                place = before
                value.append(tensor(one.name, each))
            place = before + 1
        elif "Tensor" in kind and shape:
            value = tensor(one.name, shape)
        elif kind == "Tensor":
            option = chosen.get(one.name, {"shape": []})
            value = _number(dtypes) if option == "number" else tensor(one.name, [])
        elif kind == "Optional[Tensor]":
            value = None
        elif one.name in chosen:
            value = chosen[one.name]
        else:
            value = (_plain_options(op, one, shapes, tensors) or [None])[0]
        if isinstance(value, dict) and "shape" not in value and one.name == "input_dtype":
            value = {"dtype": dtypes[0]}
        if one.kwarg_only:
            kwargs[one.name] = value
        else:
            args.append(value)
    return {"op": op, "overload": overload_name(overload), "args": args, "kwargs": kwargs}


def _number(dtypes: tuple[str, str, str]) -> float | int:
    return 2 if dtypes[0] in ("i64", "i32", "u8", "i16", "b8") else 2.0
