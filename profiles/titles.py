"""Names signatures as people name the work: short, on one line, with the sizes that decide how long it takes."""

from __future__ import annotations

from functools import lru_cache

from profiles.errors import ProfileError
from profiles.kernel_names.kernel_name import read_name
from profiles.signature import (
    Conv,
    Copy,
    Gemm,
    Grouped,
    Kernel,
    Library,
    Memset,
    Norm,
    Packed,
    Rnn,
    Sdpa,
    Sequences,
    Shape,
    Triton,
    Windowed,
    parse,
)

LONGEST = 96
"""The most characters of a title."""


@lru_cache(maxsize=65536)
def title(signature: str) -> str:
    """The title of a signature: `gemm bf16 m=4096 n=8192 k=1024 (aten::mm)`; a text that is no signature is cut
    short.
    """
    try:
        what = parse(signature)
    except ProfileError:
        return _cut(signature)
    match what:
        case Gemm():
            batch = f" batch={what.batch}" if what.batch > 1 else ""
            return _with_op(f"gemm {what.a} m={what.m} n={what.n} k={what.k}{batch}", what.op)
        case Conv():
            groups = f" groups={what.groups}" if what.groups > 1 else ""
            return _with_op(f"conv {what.direction} {what.dtype} x={_dims(what.x)} w={_dims(what.w)}{groups}", what.op)
        case Norm():
            return _with_op(f"norm {what.direction} {what.mode} {what.dtype} x={_dims(what.x)}", what.op)
        case Sdpa():
            causal = " causal" if what.causal else ""
            if isinstance(what, Windowed):
                causal += f" window={what.left}+{what.right}"
            if isinstance(what, Packed):
                causal += f" packed: {what.sequences} sequences of {what.queries} in all"
            shapes = f"q={_dims(what.q)} k={_dims(what.k)}"
            return _with_op(f"attention {what.direction} {what.dtype} {shapes}{causal}", what.op)
        case Sequences():
            packed = f"sequences={what.sequences} queries={what.queries} pairs={what.pairs}"
            return _with_op(f"{_kernel(what.name)} {packed}", what.op)
        case Kernel():
            return _with_op(f"{_kernel(what.name)} grid={_grid(what.grid)}", what.op)
        case Grouped():
            groups = f"groups={what.groups} rows={what.rows} longest={what.longest}"
            return _with_op(f"{_kernel(what.name)} {groups} grid={_grid(what.grid)}", what.op)
        case Triton():
            return _with_op(f"{what.name} grid={_grid(what.grid)}", what.op)
        case Rnn():
            shape = f"steps={what.steps} batch={what.batch} hidden={what.hidden} layers={what.layers}"
            return _with_op(f"{what.mode} {what.direction} {what.dtype} {shape}", what.op)
        case Library():
            return _with_op(what.call, what.op)
        case Copy():
            return f"copy {what.direction} {what.nbytes:,} bytes"
        case Memset():
            return f"memset {what.nbytes:,} bytes"
    return _cut(signature)


def _grid(grid: tuple[int, int, int]) -> str:
    return "x".join(str(blocks) for blocks in grid if blocks > 1) or "1"


def _kernel(name: str) -> str:
    """The function, and the functor that tells PyTorch's element-wise and foreach kernels apart."""
    found = read_name(name)
    functors = (part.rpartition("::")[2] for part in found.text.replace("<", " ").replace(",", " ").split())
    functor = next((part for part in functors if part.endswith(("Functor", "Ops", "functor"))), "")
    return f"{found.base}[{functor}]" if functor and functor != found.base else found.base


def _with_op(text: str, op: str) -> str:
    return _cut(f"{text} ({op})" if op else text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _dims(shape: Shape) -> str:
    return "x".join(map(str, shape))
