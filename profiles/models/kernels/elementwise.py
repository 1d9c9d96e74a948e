"""Models PyTorch's element-wise kernels: bytes by operand types, instructions by how operands are addressed and cast.

Bytes bound the vectorised ones; the others are bound by instructions: a cast whose type is only known at run time is
a switch over all types, a strided operand needs a division per dimension. The figures are instructions per element
and operand, found from rates on an H200 (docs/costs.md); they belong to PyTorch's code, not to the GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes, split_arguments
from profiles.models.kernels import strides
from profiles.models.kernels.sizes import largest
from profiles.models.machine import OVERLAP, Machine, overlapped
from profiles.signature import Kernel, Strided, elements

CAST, PLAIN = 23.0, 5.0
# Division and remainder of a dimension, once for all operands; and an operand's address. With casts at run time:
PER_DIM, STRIDED = 11.4, 22.4
PER_DIM_CAST, STRIDED_CAST = 25.5, 29.3
MOST_DIMS = 4  # dimensions to assume at most: shapes alone do not tell which of them PyTorch has merged
GROUPED_NORM = 13.0  # the affine part of a group norm, whose addresses are simple
CAST_ONCE = 27.0  # per element, however many operands
CAST_START_NS = 1_600.0  # the start of one wave of blocks, which the other waves hide in part
START_NS, STRIDED_START_NS, START_ADD_UP = 200.0, 750.0, 1.65
CAST_ADD_UP, ADD_UP = 1.65, 6.0  # exponents that join the times, with casts at run time and dense ones without
# Arithmetic of the costly functions, instructions per element.
ARITHMETIC = (
    ("GeluBackward", 42.0),
    ("Gelu", 33.0),
    ("silu_backward", 30.0),
    ("silu|sigmoid|logit", 22.0),
    ("tanh|mish|softplus|elu|lerp", 18.5),
    (r"pow_tensor_scalar.*\)#[12]\}$", 4.0),  # squares and cubes
    ("pow|lgamma|digamma|erf", 50.0),
    ("sin|cos|exp|log|sqrt|reciprocal|div|Div", 12.0),
)
PLAIN_ARITHMETIC = 4.0
PREDICATES = r"is(neg|pos)inf_kernel|logical_(not|and|or|xor)_kernel|isnan_kernel|signbit_kernel"  # they write bools
STRIDED_BASE = "elementwise_kernel"
BASES = (
    "vectorized_elementwise_kernel",
    "vectorized_templated_elementwise_kernel",
    "unrolled_elementwise_kernel",
    STRIDED_BASE,
    "legacy_elementwise_kernel",
    "elementwise_kernel_with_index",
    "unrolled_elementwise_kernel_for_multi_outputs",
)


@dataclass(frozen=True, slots=True)
class Functor:
    inputs: tuple[float, ...]
    """Bytes of one element of each input, as the arithmetic takes it."""
    output: float


def applies(name: KernelName) -> bool:
    return name.base in BASES


def family(name: KernelName) -> str:
    """Casts and strided operands are bound by instructions."""
    if "WithCast" in name.text or "gpu_kernel_impl<" in name.text:
        return "element-wise, cast"
    return (
        "element-wise, strided" if name.base in ("elementwise_kernel", "legacy_elementwise_kernel") else "element-wise"
    )


def ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    text = functor_text(name)
    functor = functor_of(text)
    cast = "WithCast" in name.text or ("gpu_kernel_impl<" in name.text and name.base == "elementwise_kernel")
    strided = name.base in ("elementwise_kernel", "legacy_elementwise_kernel")
    operands = _operands(name) or len(functor.inputs) + 1
    count = _count(what, name, functor)
    # Optimizers multiply a gradient by itself.
    inputs = operands - (2 if "addcmul" in text and operands > 2 else 1)
    nbytes = count * functor.output + sum(
        _input_nbytes(what, functor, at, count, cast, strided) for at in range(inputs)
    )
    arithmetic = next((cost for pattern, cost in ARITHMETIC if re.search(pattern, text)), PLAIN_ARITHMETIC)
    if "GroupNorm" in text:
        per_operand = GROUPED_NORM
    elif strided:
        per_operand = STRIDED_CAST if cast else STRIDED
        arithmetic += (PER_DIM_CAST if cast else PER_DIM) * _dims(what)
    else:
        per_operand = CAST if cast else PLAIN
        arithmetic += CAST_ONCE if cast else 0.0
    memory = machine.streamed_ns(nbytes)
    # Pure writes need no turnaround of the memory bus: a fill reaches 98 % of an H200's peak where a copy reaches 91 %.
    if operands == 1:
        memory *= 0.93
    work = machine.issue_ns(count * (per_operand * operands + arithmetic))
    starts = cast and not strided
    if starts:
        dense = overlapped(memory, work, CAST_START_NS, exponent=CAST_ADD_UP)
    else:
        dense = overlapped(memory, work, exponent=OVERLAP if strided else ADD_UP)
        wait = STRIDED_START_NS if strided else START_NS
        if operands > 1 or strided:
            dense = overlapped(dense, wait, exponent=START_ADD_UP)
    if isinstance(what, Strided):
        items = (functor.output, *functor.inputs)
        return strides.ns(machine, what, items, what.block[0] * _per_thread(name), dense)
    return dense


def _dims(what: Kernel) -> int:
    """The number of dimensions that the kernel walks over. Shapes show those along which the same operands are
    repeated; an op of one shape repeats another operand, what its gradient is of; operands of equal shape are permuted
    or slices.
    """
    if isinstance(what, Strided):
        return len(what.extent)
    shapes = [shape for shape in what.sizes if shape]
    longest = max(map(len, shapes), default=0)
    sizes = list(zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True))
    repeated = [tuple(size == 1 for size in at) for at in sizes if max(at) > 1]
    runs = sum(one != before for before, one in zip([None, *repeated], repeated, strict=False))
    if runs > 1:
        return runs
    return 2 if len(shapes) == 1 else min(len(repeated), MOST_DIMS)


def functor_of(text: str) -> Functor:
    """The operand sizes from a functor's type: `BinaryFunctor<a, b, out, f>`, `CUDAFunctor_add<t>`, `...{lambda(a,
    b)#1}`.
    """
    head = text.split("<")[0].rsplit("::", 1)[-1]
    arguments = split_arguments(text[text.index("<") :]) if "<" in text else ()
    if head in ("BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor") and len(arguments) >= 3:
        sizes = tuple(item_nbytes(one) for one in arguments[:3])
        inputs = {"BinaryFunctor": sizes[:2], "AUnaryFunctor": sizes[1:2], "BUnaryFunctor": sizes[:1]}[head]
        return Functor(inputs, sizes[2])
    if head == "CompareFunctor" and arguments:
        return Functor((item_nbytes(arguments[0]),) * 2, 1.0)
    if head == "FillFunctor" and arguments:
        return Functor((), item_nbytes(arguments[0]))
    if lambdas := re.findall(r"\{lambda\(([^(){}]*)\)#\d+\}", text):
        sizes = tuple(item_nbytes(one) for one in lambdas[-1].split(",") if one.strip())
        narrow = re.search(r"b?float16_copy_kernel|float8_copy_kernel", text)
        output = 1.0 if re.search(PREDICATES, text) else 2.0 if narrow else max(sizes[:2]) if sizes else 4.0
        return Functor(sizes, output)
    size = item_nbytes(arguments[0] if arguments else text)
    return Functor((size,) if "OnSelf" in head else (size, size), size)


def functor_text(name: KernelName) -> str:
    if name.base in ("elementwise_kernel", "legacy_elementwise_kernel") and len(name.arguments) > 2:
        inner = name.arguments[2]
        if "gpu_kernel_impl" in inner and "<" in inner:
            found = split_arguments(inner[inner.index("<") :])
            return found[0] if found else inner
        return inner
    if name.base.startswith("unrolled") and not name.base.endswith("outputs"):
        return name.arguments[0] if name.arguments else ""
    return name.arguments[1] if len(name.arguments) > 1 else name.text


def _operands(name: KernelName) -> int:
    """The number of outputs and inputs, from the array of their pointers; 0 if the kernel has none."""
    for argument in name.arguments:
        if found := re.match(r"std::array<char\*, (\d+)", argument):
            return int(found[1])
    return 0


def _count(what: Kernel, name: KernelName, functor: Functor) -> int:
    """The number of elements written: those that the grid covers, or the op's broadcast size if that is what gave this
    grid.
    """
    # Byte-sized operands are taken 16 at a time.
    per_thread = 16 if functor.output == 1.0 and set(functor.inputs) <= {1.0} else 8
    if name.base == "unrolled_elementwise_kernel":
        per_thread = integer(name.arguments[2], 4) if len(name.arguments) > 2 else 4
    elif name.base in ("elementwise_kernel", "legacy_elementwise_kernel"):
        per_thread = _per_thread(name)
    elif name.base == "elementwise_kernel_with_index":
        per_thread = 1
    count = largest(what)
    if count and ceil(count / (what.block[0] * per_thread)) == what.grid[0]:
        return count
    return prod(what.grid) * what.block[0] * per_thread


def _per_thread(name: KernelName) -> int:
    return integer(name.arguments[1], 4) if len(name.arguments) > 1 else 4


def _input_nbytes(what: Kernel, functor: Functor, at: int, count: int, cast: bool, strided: bool) -> float:
    size = functor.inputs[at] if at < len(functor.inputs) else functor.output
    # A dynamic cast brings one operand from another type: half precision if the arithmetic is in float, float if it
    # is in half.
    if cast and at == len(functor.inputs) - 1:
        size = {4.0: 2.0, 2.0: 4.0, 8.0: 4.0}.get(functor.output, size)
    shapes = [shape for shape in what.sizes if shape]
    if strided and at < len(shapes):
        return min(elements(shapes[at]), count) * size
    return count * size
