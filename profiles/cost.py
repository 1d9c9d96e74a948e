"""The cost model: a signature in, durations alone and beside a resident NCCL kernel out."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from profiles.descriptions.gpu import Gpu
from profiles.errors import ProfileError
from profiles.models import dispatch
from profiles.models.bound import bound_by
from profiles.models.errors import UNMEASURED, error_share
from profiles.models.power import NOTHING, Draw, draw
from profiles.signature import Library, Signature, family_of, parse, shapes_in, unknown_parts
from profiles.tables import Table

REPEATED = 0.03
"""Relative error of a measured time: how far repeats differ."""
LONGEST_NS = 10**15
"""No cost is longer, 11 days: sizes may be anything, and 64 bits must hold sums of costs."""


class Source(enum.IntEnum):
    """Where a cost comes from; the values of the records' SOURCE."""

    MEASURED = 1
    INTERPOLATED = 2
    ROOFLINE = 3
    UNRECOGNISED = 4


@dataclass(frozen=True, slots=True)
class Cost:
    solo_ns: int
    """Duration alone on the GPU, at least 1."""
    contended_ns: int
    """Duration beside a resident NCCL kernel, at least solo_ns."""
    flops: float
    """Useful floating-point operations (GEMM, convolution, attention), for MFU; 0 elsewhere."""
    source: Source
    unknown: str = ""
    """What is not known of the work, if the source is UNRECOGNISED."""
    model: str = ""
    """The model behind the time, also where a measured time corrects it."""
    error_share: float = 0.0
    """Root mean square of the model's relative errors on measured kernels (profiles.models.errors)."""
    bound: str = ""
    """`compute`, `memory`, `pcie` or `latency` (profiles.models.bound)."""
    draw: Draw = NOTHING
    """What it draws of the GPU's power. The times are those at the full clock."""


class CostModel:
    """Costs of signatures on one GPU: the table's exact entry, else its family's correction of the model, else the
    model.

    Stateless but for a memo: the same signature always gets the same answer.
    """

    def __init__(self, gpu: Gpu, table: Table | None = None) -> None:
        self.gpu = gpu
        self.table = table
        self._known: dict[str, Cost] = {}
        for signature, measured in table.exact.items() if table else ():
            assert table is not None
            what = parse(signature)
            table.learn(family_of(what), measured.solo_ns, self._roofline(what).solo_ns)

    def cost(self, signature: str) -> Cost:
        """Every text has one. A signature that is malformed, or that names what the definition does not list, gets an
        estimate of source UNRECOGNISED.
        """
        if (known := self._known.get(signature)) is None:
            known = self._known[signature] = self._price(signature)
        return known

    def _price(self, signature: str) -> Cost:
        try:
            what = parse(signature)
        except ProfileError as error:
            # All that is left to go by are the sizes that the text mentions.
            by_bytes = self._roofline(Library("unknown", 0, "", shapes_in(signature)))
            return replace(by_bytes, source=Source.UNRECOGNISED, unknown=str(error), error_share=UNMEASURED)
        modelled = self._roofline(what)
        if self.table is not None and (better := self._from_table(self.table, signature, what, modelled)):
            return better
        if unknown := unknown_parts(what):
            return replace(modelled, source=Source.UNRECOGNISED, unknown=", ".join(unknown), error_share=UNMEASURED)
        return modelled

    def _from_table(self, table: Table, signature: str, what: Signature, modelled: Cost) -> Cost | None:
        """None if neither the signature nor a member of its family near it was measured."""
        slowdown = modelled.contended_ns / modelled.solo_ns
        if measured := table.exact.get(signature):
            contended = measured.contended_ns or round(measured.solo_ns * slowdown)
            return replace(
                modelled, solo_ns=measured.solo_ns, contended_ns=contended, source=Source.MEASURED, unknown="",
                error_share=REPEATED,
            )  # fmt: skip
        if (factor := table.correction(family_of(what), modelled.solo_ns)) is None:
            return None
        solo_ns = max(1, round(modelled.solo_ns * factor))
        contended = max(solo_ns, round(solo_ns * slowdown))
        return replace(modelled, solo_ns=solo_ns, contended_ns=contended, source=Source.INTERPOLATED, unknown="")

    def _roofline(self, what: Signature) -> Cost:
        estimate = dispatch.estimate(self.gpu, what)
        between = self.gpu.achieved.launch_gap_ns * (estimate.kernels - 1)
        solo_ns = max(1, round(min(estimate.solo_ns + between, LONGEST_NS)))
        contended_ns = max(solo_ns, round(min(estimate.contended_ns + between, LONGEST_NS)))
        source = Source.UNRECOGNISED if estimate.unknown else Source.ROOFLINE
        share = error_share(estimate.model)
        return Cost(
            solo_ns, contended_ns, estimate.flops, source, estimate.unknown, estimate.model, share,
            bound_by(self.gpu, what, estimate), draw(self.gpu, what, estimate),
        )  # fmt: skip
