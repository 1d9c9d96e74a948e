"""The cost model: a signature in, durations alone and beside a resident NCCL kernel out."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from profiles import families
from profiles.errors import ProfileError
from profiles.gpu import Gpu
from profiles.signature import parse


class Source(enum.IntEnum):
    """Where a cost comes from; the values of the records' SOURCE."""

    MEASURED = 1
    INTERPOLATED = 2
    ROOFLINE = 3


@dataclass(frozen=True, slots=True)
class Cost:
    solo_ns: int
    """Duration alone on the GPU, at least 1."""
    contended_ns: int
    """Duration beside a resident NCCL kernel, at least solo_ns."""
    flops: float
    """Useful floating-point operations (GEMM, convolution, attention), for MFU; 0 elsewhere."""
    source: Source


class CostModel:
    """Costs of signatures on one GPU. Stateless but for a memo: the same signature always gets the same answer."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._known: dict[str, Cost] = {}

    def cost(self, signature: str | bytes) -> Cost:
        """Raises ProfileError for a malformed signature only."""
        if isinstance(signature, bytes):
            try:
                signature = signature.decode()
            except UnicodeDecodeError as error:
                raise ProfileError(f"signature {signature[:200]!r}: not UTF-8") from error
        if (known := self._known.get(signature)) is None:
            known = self._known[signature] = self._roofline(signature)
        return known

    def _roofline(self, signature: str) -> Cost:
        estimate = families.estimate(self.gpu, parse(signature))
        solo_ns = max(1, round(estimate.solo_ns))
        return Cost(solo_ns, max(solo_ns, round(estimate.contended_ns)), estimate.flops, Source.ROOFLINE)
