"""Signatures: the one-line text that names what a GPU is asked to do (docs/architecture.md), parsed.

Malformed text raises ProfileError; a field that is empty because the sender did not know it is not malformed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from profiles.errors import ProfileError

ITEM_NBYTES: dict[str, float] = {
    "f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i64": 8, "i32": 4, "i16": 2,
    "i8": 1, "u8": 1,
    "b8": 1, "c64": 8, "c128": 16,
}  # fmt: skip

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Gemm:
    call: str
    transa: str
    transb: str
    m: int
    n: int
    k: int
    batch: int
    a: str
    b: str
    c: str
    compute: str
    epilogue: str
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Conv:
    direction: str
    x: Shape
    w: Shape
    y: Shape
    groups: int
    dtype: str
    layout: str
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Norm:
    direction: str
    mode: str
    x: Shape
    dtype: str
    layout: str
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Sdpa:
    direction: str
    q: Shape
    k: Shape
    v: Shape
    dtype: str
    causal: bool
    dropout: bool
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Library:
    call: str
    nbytes: int
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    direction: str
    nbytes: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class Memset:
    nbytes: int


Signature = Kernel | Gemm | Conv | Norm | Sdpa | Library | Copy | Memset

# Fields after the first one.
_COUNTS = {"kernel": 6, "gemm": 14, "conv": 12, "norm": 7, "sdpa": 9, "library": 4, "copy": 3, "memset": 1}


def parse(text: str) -> Signature:
    """Raises ProfileError saying which field is wrong."""
    kind, *fields = (field.strip() for field in text.split(";"))
    if kind not in _COUNTS:
        raise ProfileError(f"signature {text[:200]!r}: unknown kind {kind!r}; known: {', '.join(_COUNTS)}")
    if len(fields) != _COUNTS[kind]:
        raise ProfileError(
            f"signature {text[:200]!r}: {kind} has {_COUNTS[kind]} fields after the first, found {len(fields)}"
        )
    try:
        return _PARSERS[kind](fields)
    except ProfileError as error:
        raise ProfileError(f"signature {text[:200]!r}: {error}") from None


def _kernel(f: list[str]) -> Signature:
    if not f[0]:
        raise ProfileError("name: empty")
    return Kernel(
        f[0], _three(f[1], "grid"), _three(f[2], "block"), _integer(f[3], "shared memory"), f[4], sizes_of(f[5])
    )


def _gemm(f: list[str]) -> Signature:
    for name, value in (("transa", f[1]), ("transb", f[2])):
        if value not in ("n", "t", "c"):
            raise ProfileError(f"{name}: expected n, t or c, found {value!r}")
    m, n, k, batch = (_integer(value, name) for value, name in zip(f[3:7], ("m", "n", "k", "batch count"), strict=True))
    a, b, c = (_dtype(value) for value in f[7:10])
    return Gemm(f[0], f[1], f[2], m, n, k, batch, a, b, c, f[10], f[11], f[12], sizes_of(f[13]))


def _conv(f: list[str]) -> Signature:
    direction = _one_of(f[0], ("fwd", "dgrad", "wgrad"), "direction")
    layout = _one_of(f[9], ("nchw", "nhwc"), "layout")
    x, w, y = (
        _dims(value, name, at_least=3) for value, name in zip(f[1:4], ("x dims", "w dims", "y dims"), strict=True)
    )
    return Conv(direction, x, w, y, max(_integer(f[7], "groups"), 1), _dtype(f[8]), layout, f[10], sizes_of(f[11]))


def _norm(f: list[str]) -> Signature:
    direction = _one_of(f[0], ("fwd", "bwd"), "direction")
    return Norm(direction, f[1], _dims(f[2], "x dims"), _dtype(f[3]), f[4], f[5], sizes_of(f[6]))


def _sdpa(f: list[str]) -> Signature:
    direction = _one_of(f[0], ("fwd", "bwd"), "direction")
    q, k, v = (
        _dims(value, name, at_least=4) for value, name in zip(f[1:4], ("q dims", "k dims", "v dims"), strict=True)
    )
    causal, dropout = (_one_of(value, ("0", "1"), name) == "1" for value, name in ((f[5], "causal"), (f[6], "dropout")))
    return Sdpa(direction, q, k, v, _dtype(f[4]), causal, dropout, f[7], sizes_of(f[8]))


def _library(f: list[str]) -> Signature:
    if not f[0]:
        raise ProfileError("call: empty")
    return Library(f[0], _integer(f[1], "bytes"), f[2], sizes_of(f[3]))


def _copy(f: list[str]) -> Signature:
    direction = _one_of(f[0], ("h2d", "d2h", "d2d", "p2p", "h2h"), "direction")
    return Copy(direction, _integer(f[1], "bytes"), _one_of(f[2], ("pinned", "pageable"), "memory") == "pinned")


def _memset(f: list[str]) -> Signature:
    return Memset(_integer(f[0], "bytes"))


_PARSERS = {
    "kernel": _kernel, "gemm": _gemm, "conv": _conv, "norm": _norm, "sdpa": _sdpa, "library": _library,
    "copy": _copy, "memset": _memset,
}  # fmt: skip


def sizes_of(text: str) -> tuple[Shape, ...]:
    """`[[8, 64], [64], []]` as PyTorch prints input sizes -> ((8, 64), (64,), ()). Lists of tensors are flattened one
    level.

    A text cut short by its sender gives the shapes that are complete.
    """
    if not text or text == "[]":
        return ()
    if not re.fullmatch(r"[\[\]\d,.\s-]+", text):
        raise ProfileError(f"sizes: expected nested lists of integers, found {text[:60]!r}")
    inner = re.findall(r"\[([\d,\s]*)\]", text)
    return tuple(tuple(int(number) for number in re.findall(r"\d+", one)) for one in inner)


def elements(shape: Shape) -> int:
    return prod(shape)


def _integer(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise ProfileError(f"{name}: expected a non-negative integer, found {text[:60]!r}")
    return int(text)


def _three(text: str, name: str) -> tuple[int, int, int]:
    numbers = [_integer(one, name) for one in text.split(",")]
    if len(numbers) != 3 or min(numbers) < 1:
        raise ProfileError(f"{name}: expected three positive integers, found {text[:60]!r}")
    return numbers[0], numbers[1], numbers[2]


def _dims(text: str, name: str, *, at_least: int = 0) -> Shape:
    if not text and not at_least:
        return ()
    dims = tuple(_integer(one, name) for one in text.split("x"))
    if len(dims) < at_least:
        raise ProfileError(f"{name}: expected at least {at_least} dims like 64x128x28x28, found {text[:60]!r}")
    return dims


def _dtype(text: str) -> str:
    if text not in ITEM_NBYTES:
        raise ProfileError(f"dtype: expected one of {', '.join(ITEM_NBYTES)}, found {text[:60]!r}")
    return text


def _one_of(text: str, known: tuple[str, ...], name: str) -> str:
    if text not in known:
        raise ProfileError(f"{name}: expected {', '.join(known)}, found {text[:60]!r}")
    return text
