"""Decides which engine multiplies operands of which dtype."""

from __future__ import annotations

from profiles.models.products.tiles import (
    SINGLE_ITEMS,
    TENSOR_8,
    TENSOR_16,
    TENSOR_F64,
    TENSOR_TF32,
    UNALIGNED,
    VECTOR_F32,
    Engine,
)

ALIGNMENT_NBYTES = 16  # the alignment of rows that tensor memory accelerators and vectors need
COPIED_NBYTES = 4  # the least that an asynchronous copy to shared memory takes
# The dtype whose peak rate applies, by the operands' dtype: that of the parts for complex ones, the next wider one
# where a GPU's description has no figure. `other` stands for dtypes that the definition does not list: 4 bytes.
MULTIPLIED_AS = {
    "f64": "f64",
    "f32": "f32",
    "tf32": "tf32",
    "f16": "f16",
    "bf16": "bf16",
    "f8e4m3": "f8",
    "f8e5m2": "f8",
    "f8e8m0": "f8",
    "f6e2m3": "f8",
    "f6e3m2": "f8",
    "f4e2m1": "f4",
    "i64": "f64",
    "i32": "f32",
    "i16": "f32",
    "i8": "i8",
    "i4": "i8",
    "u64": "f64",
    "u32": "f32",
    "u16": "f32",
    "u8": "i8",
    "u4": "i8",
    "b8": "i8",
    "i8x4": "i8",
    "i8x32": "i8",
    "u8x4": "i8",
    "c32": "f16",
    "c32bf": "bf16",
    "c64": "f32",
    "c128": "f64",
    "other": "tf32",
}
ENGINES = {
    "f64": TENSOR_F64,
    "f32": VECTOR_F32,
    "tf32": TENSOR_TF32,
    "f16": TENSOR_16,
    "bf16": TENSOR_16,
    "f8": TENSOR_8,
    "f4": TENSOR_8,  # not measured: the inner loop of 8 bits, at the rate of 4
    "i8": TENSOR_8,
}


def math_dtype(operand: str, compute: str) -> str:
    """The dtype whose peak rate applies: tf32 for f32 operands where the call allows it."""
    if operand in ("f32", "c64") and compute == "tf32":
        return "tf32"
    return MULTIPLIED_AS.get(operand, MULTIPLIED_AS["other"])


def engine_of(operand: str, compute: str = "", *, row_nbytes: float = ALIGNMENT_NBYTES) -> tuple[Engine, str]:
    """The engine, and the dtype whose peak rate applies. `row_nbytes`: every row of a matrix begins at a multiple."""
    dtype = math_dtype(operand, compute)
    engine = ENGINES[dtype]
    if engine not in (TENSOR_16, TENSOR_8, TENSOR_TF32) or row_nbytes % ALIGNMENT_NBYTES == 0:
        return engine, dtype
    return (SINGLE_ITEMS if row_nbytes % COPIED_NBYTES else UNALIGNED), dtype
