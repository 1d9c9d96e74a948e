"""One dataclass for each kind of signature, with the fields of its definition in their order.

Words and dtypes are kept as their text, also those that the definition does not list.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class Strided(Kernel):
    extent: Shape
    strides: str


@dataclass(frozen=True, slots=True)
class Scaled(Kernel):
    before: Shape
    after: Shape


@dataclass(frozen=True, slots=True)
class Sized(Kernel):
    numbers: str
    buffers: str


@dataclass(frozen=True, slots=True)
class Sequences(Kernel):
    sequences: int
    queries: int
    keys: int
    rows: int
    columns: int
    tiles: int
    longest: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Triton:
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int
    arguments: str
    program: str
    op: str
    sizes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int
    groups: int
    used: int
    rows: int
    longest: int
    tiles64: int
    tiles128: int
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
    padding: Shape
    stride: Shape
    dilation: Shape
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
class Windowed(Sdpa):
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Packed(Sdpa):
    window: bool
    sequences: int
    queries: int
    keys: int
    rows: int
    columns: int
    tiles: int
    longest: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Rnn:
    direction: str
    mode: str
    algorithm: str
    steps: int
    batch: int
    input: int
    hidden: int
    projection: int
    layers: int
    bidirectional: bool
    dtype: str
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
    memory: str


@dataclass(frozen=True, slots=True)
class Memset:
    nbytes: int


Signature = (
    Kernel
    | Strided
    | Scaled
    | Sized
    | Sequences
    | Triton
    | Grouped
    | Gemm
    | Conv
    | Norm
    | Sdpa
    | Windowed
    | Packed
    | Rnn
    | Library
    | Copy
    | Memset
)

CLASSES: dict[str, type[Signature]] = {
    "kernel": Kernel,
    "strided": Strided,
    "scaled": Scaled,
    "sized": Sized,
    "triton": Triton,
    "grouped": Grouped,
    "sequences": Sequences,
    "gemm": Gemm,
    "conv": Conv,
    "norm": Norm,
    "sdpa": Sdpa,
    "windowed": Windowed,
    "packed": Packed,
    "rnn": Rnn,
    "library": Library,
    "copy": Copy,
    "memset": Memset,
}
