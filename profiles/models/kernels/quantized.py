"""Models kernels of bitsandbytes: optimizers whose state has 8 bits, and weights of 4 and 8 bits.

Bytes by the operands' types and the elements that the op's sizes say, or instructions: a state of 8 bits is looked up
in a table of 256 values, and searched for there when it is written back. Not measured: instructions are estimates.
"""

from __future__ import annotations

import re
from math import prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.kernels.sizes import covered, largest
from profiles.models.machine import Machine, Model, overlapped
from profiles.signature import Kernel

SEARCH_INSTRUCTIONS = 50.0  # a state of 8 bits: eight steps through the table, and the block's largest number
UPDATE_INSTRUCTIONS = 40.0  # square root and division
CONVERT_INSTRUCTIONS = 12.0  # an element of a weight, from its code
ITEMS_PER_THREAD = 4


def _count(what: Kernel) -> int:
    """The elements of the tensor that the launch is about: the largest that the op takes, else those that its grid
    covers.
    """
    return largest(what) or covered(what, ITEMS_PER_THREAD)


def _item(name: KernelName) -> float:
    return item_nbytes(name.arguments[0]) if name.arguments else 4.0


def _optimizer(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of an optimizer: parameter and states are read and written, the gradient is read."""
    states = 2 if "2State" in name.base else 1
    narrow = "8bit" in name.base
    nbytes = 3 * _item(name) + states * (2.0 if narrow else 8.0)
    instructions = UPDATE_INSTRUCTIONS + (states * SEARCH_INSTRUCTIONS if narrow else 0.0)
    count = _count(what)
    return overlapped(machine.memory_ns(count * nbytes, blocks=prod(what.grid)), machine.issue_ns(count * instructions))


def _convert(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of converting to codes of 8 or 4 bits, or from them. The grid covers the elements: sizes of codes are
    those of their bytes.
    """
    block = integer(name.arguments[1], 0) if len(name.arguments) > 1 else 0
    count = prod(what.grid) * block if block else covered(what, ITEMS_PER_THREAD)
    narrow = 1.0 if re.search(r", ?0\s*[>,]", name.text.partition("(")[0] + ">") else 0.5
    instructions = SEARCH_INSTRUCTIONS if name.base.startswith("kQuantize") else CONVERT_INSTRUCTIONS
    nbytes = count * (_item(name) + narrow)
    return overlapped(machine.memory_ns(nbytes, blocks=prod(what.grid)), machine.issue_ns(count * instructions))


def _vector_product(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A weight of 4 bits times a vector: each element of the weight is converted once."""
    count = _count(what)
    return overlapped(machine.memory_ns(count * 0.5), machine.issue_ns(count * CONVERT_INSTRUCTIONS))


def _rows(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of converting rows to 8 bits with a scale each, or a product's 32-bit sums back."""
    return machine.memory_ns(_count(what) * (_item(name) + 4.0), blocks=prod(what.grid))


def _fill(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of filling memory. Its size is not known: an element for each thread, which may have more."""
    return machine.memory_ns(prod(what.grid) * prod(what.block) * _item(name), blocks=prod(what.grid))


RULES: tuple[tuple[str, str, Model], ...] = (
    (r"^kOptimizer", "optimizer of bitsandbytes", _optimizer),
    (r"^kPreconditionOptimizer", "optimizer of bitsandbytes", _optimizer),
    (r"^kfunc$", "conversion of bitsandbytes", _fill),
    (r"^k(Quantize|Dequantize)Blockwise", "conversion of bitsandbytes", _convert),
    (r"^kgemm_4bit_inference", "product of bitsandbytes", _vector_product),
    (r"^kgemv_4bit_inference", "product of bitsandbytes", _vector_product),
    (r"^k(Int8VectorQuant|dequant_mm_int32_fp16|getColRowStats)", "conversion of bitsandbytes", _rows),
)
