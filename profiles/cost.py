"""The cost model: a signature in, durations alone and beside a resident NCCL kernel out."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from profiles.descriptions.gpu import Gpu
from profiles.errors import ProfileError
from profiles.models import dispatch
from profiles.signature import parse
from profiles.tables import Table


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
    """Costs of signatures on one GPU: the table's exact entry, else its family's correction of the model, else the
    model.

    Stateless but for a memo: the same signature always gets the same answer.
    """

    def __init__(self, gpu: Gpu, table: Table | None = None) -> None:
        self.gpu = gpu
        self.table = table
        self._known: dict[str, Cost] = {}
        for signature in table.exact if table else ():
            assert table is not None
            table.learn(signature, self._roofline(signature).solo_ns)

    def cost(self, signature: str | bytes) -> Cost:
        """Raises ProfileError for a malformed signature only."""
        if isinstance(signature, bytes):
            try:
                signature = signature.decode()
            except UnicodeDecodeError as error:
                raise ProfileError(f"signature {signature[:200]!r}: not UTF-8") from error
        if (known := self._known.get(signature)) is None:
            known = self._known[signature] = self._price(signature)
        return known

    def _price(self, signature: str) -> Cost:
        modelled = self._roofline(signature)
        if self.table is None:
            return modelled
        slowdown = modelled.contended_ns / modelled.solo_ns
        if measured := self.table.exact.get(signature):
            contended = measured.contended_ns or round(measured.solo_ns * slowdown)
            return Cost(measured.solo_ns, contended, modelled.flops, Source.MEASURED)
        if (factor := self.table.correction(signature, modelled.solo_ns)) is None:
            return modelled
        solo_ns = max(1, round(modelled.solo_ns * factor))
        return Cost(solo_ns, max(solo_ns, round(solo_ns * slowdown)), modelled.flops, Source.INTERPOLATED)

    def _roofline(self, signature: str) -> Cost:
        estimate = dispatch.estimate(self.gpu, parse(signature))
        solo_ns = max(1, round(estimate.solo_ns))
        return Cost(solo_ns, max(solo_ns, round(estimate.contended_ns)), estimate.flops, Source.ROOFLINE)
