"""Models library calls that are known by their name and bytes: transforms, sparse matrices, factorisations.

The hook counts the bytes of all passes over the data. Where these do not decide the time, there is a rule by name:
products with sparse matrices read rows that the L2 cache may hold, and factorisations go through a matrix column by
column, each step waiting for the one before. Figures are those of one H200 (laboratory/notes/libraries-h200.md), those
of Jacobi's method, of general eigenvalues, of singular values and of triangular systems also of an H100
(laboratory/rows/linalg-h100.jsonl).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod, sqrt

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.signature import Library, elements

STREAMED = 0.8  # share of a streaming kernel's bandwidth
UNKNOWN_ITEM_NBYTES = 4.0
EIGENVALUES, SINGULAR_VALUES = "eigenvalues", "singular values"


@dataclass(frozen=True, slots=True)
class Steps:
    """The time of a factorisation of n rows: n steps that wait for each other, and a part that grows with the
    matrix.
    """

    row_ns: float
    element_ns: float
    least_ns: float = 0.0
    """The time of the launches of a small matrix."""
    model: str = "factorisation"


FACTORISATIONS: tuple[tuple[str, Steps], ...] = (
    ("potrf", Steps(320.0, 0.013)),
    ("potrs", Steps(250.0, 0.31)),
    ("getrf", Steps(1_600.0, 0.31)),
    ("getrs", Steps(250.0, 0.31)),
    ("sytrf", Steps(1_600.0, 0.31)),  # as getrf: not measured
    ("sytrs", Steps(250.0, 0.31)),  # as getrs: not measured
    ("geqrf", Steps(2_500.0, 0.75)),
    ("(org|ung)qr", Steps(420.0, 0.10, 18_000.0)),
    ("(orm|unm)qr", Steps(420.0, 0.10, 18_000.0)),  # as orgqr: not measured
    ("(sy|he)ev(d|Batched)", Steps(6_500.0, 3.8, model=EIGENVALUES)),
    ("(sy|he)evj", Steps(11_000.0, 34.0, model=EIGENVALUES)),
    ("gesvda", Steps(12_000.0, 12.0, model=SINGULAR_VALUES)),  # a quarter of gesvdj's: not measured
    ("gesvd", Steps(12_000.0, 48.0, model=SINGULAR_VALUES)),
    ("geev", Steps(115_000.0, 60.0, model="eigenvalues, general")),
)
TRIANGULAR = Steps(180.0, 0.13)
"""The steps of a triangular system with so many rows, for all elements of its right side."""
SINGLE_ITEM_NBYTES = 4
GATHERS = ("cusparseSpMM", "cusparseSpMV", "cusparseSpSM_solve", "cusparseSpSV_solve")


def library(gpu: Gpu, what: Library) -> Estimate:
    if what.call.startswith("cusolver") and (steps := _steps(what.call)):
        return _factorisation(gpu, what, steps)
    if re.fullmatch("cublas[SDCZ]trsm", what.call) and [len(s) for s in what.sizes[:2]] == [2, 2]:
        return _triangular(gpu, what)
    if what.call in GATHERS:
        return _gathering(gpu, what)
    nbytes = float(what.nbytes) or UNKNOWN_ITEM_NBYTES * sum(elements(shape) for shape in what.sizes if shape)
    kind = "Fourier transform" if what.call.startswith("cufft") else "library call"
    return both(gpu, lambda machine: machine.memory_ns(nbytes) / STREAMED, model=kind)


def _steps(call: str) -> Steps | None:
    return next((steps for pattern, steps in FACTORISATIONS if re.search(pattern, call)), None)


def _factorisation(gpu: Gpu, what: Library, steps: Steps) -> Estimate:
    """The time of a factorisation. The matrix is the first one that the op takes; without sizes it is as large as the
    bytes say. PyTorch calls once for each matrix of a batch, unless the call is for batches.
    """
    shape = next((shape for shape in what.sizes if len(shape) >= 2), ())
    rows = min(shape[-2:]) if shape else sqrt(what.nbytes / (2 * SINGLE_ITEM_NBYTES))
    longest = max(shape[-2:]) if shape else rows
    matrices = prod(shape[:-2]) if "Batched" in what.call else 1
    width = 2.0 if re.match(r"cusolverDn[DC]", what.call) else 4.0 if re.match(r"cusolverDnZ", what.call) else 1.0
    waves = max(matrices / gpu.sm_count, 1.0)

    def ns(machine: Machine) -> float:
        rest = steps.element_ns * rows * longest * max(matrices, 1) * width
        return max(steps.row_ns * rows * waves + rest * gpu.sm_count / machine.sms, steps.least_ns)

    return both(gpu, ns, model=steps.model)


def _triangular(gpu: Gpu, what: Library) -> Estimate:
    """The time of one system, whose matrix and right side the op takes."""
    matrix, right = what.sizes[:2]
    rest = TRIANGULAR.element_ns * prod(right[-2:])
    return both(
        gpu, lambda machine: TRIANGULAR.row_ns * matrix[-1] + rest * gpu.sm_count / machine.sms, model="factorisation"
    )


def _gathering(gpu: Gpu, what: Library) -> Estimate:
    """The time of reading a row of the dense matrix for each entry of the sparse one: from the L2 cache, as far as it
    fits.
    """
    dense = UNKNOWN_ITEM_NBYTES * elements(what.sizes[-1]) if what.sizes and what.sizes[-1] else float(what.nbytes)

    def ns(machine: Machine) -> float:
        held = max(1.0 - dense / gpu.memory.l2_nbytes, 0.0) * machine.left_in_l2
        return what.nbytes * (
            held / max(machine.l2_gb_per_s, machine.memory_gb_per_s) + (1 - held) / machine.memory_gb_per_s
        )

    return both(gpu, ns, model="sparse product", nbytes=min(float(what.nbytes), dense))


__all__ = ["library"]
