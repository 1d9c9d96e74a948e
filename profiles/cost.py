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
from profiles.signature import Library, Signature, parse, shapes_in, unknown_parts
from profiles.timings.corrections import Family
from profiles.timings.keys import family_key, features, key_of
from profiles.timings.table import Table

REPEATED = 0.03
"""Relative error of a measured time: how far repeats differ."""
CARRIED_OVER = 0.15
"""The same of a time measured on another GPU: whether the model errs there as here is not known."""
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
    """Costs of signatures on one GPU: the table's own time, else its family's correction of the model, else the model.

    Stateless but for a memo: the same signature always gets the same answer.
    """

    def __init__(self, gpu: Gpu, table: Table | None = None, measured_on: Gpu | None = None) -> None:
        """`measured_on`: the table's GPU, if that is another one. Its times are then carried over: as much slower or
        faster than the model says as they are there.
        """
        self.gpu = gpu
        self.table = table
        self._known: dict[str, Cost] = {}
        self._families: dict[tuple[str, ...], Family] = {}
        self._there = CostModel(measured_on) if measured_on is not None and measured_on.name != gpu.name else None
        for measured in table.times.values() if table else ():
            what = parse(measured.signature)
            modelled_ns = (self._there or self)._roofline(what).solo_ns
            family = self._families.setdefault(family_key(what), Family())
            family.learn(features(what, modelled_ns), measured.solo_ns, modelled_ns)

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
        if self.table is not None and (better := self._from_table(self.table, what, modelled)):
            return better
        if unknown := unknown_parts(what):
            return replace(modelled, source=Source.UNRECOGNISED, unknown=", ".join(unknown), error_share=UNMEASURED)
        return modelled

    def _from_table(self, table: Table, what: Signature, modelled: Cost) -> Cost | None:
        """None if neither the signature nor a member of its family near it was measured."""
        slowdown = modelled.contended_ns / modelled.solo_ns
        there_ns = self._there._roofline(what).solo_ns if self._there else modelled.solo_ns
        measured = table.times.get(key_of(what))
        if measured and self._there is None:
            solo_ns, contended_ns = measured.solo_ns, measured.contended_ns or round(measured.solo_ns * slowdown)
            source, error = Source.MEASURED, REPEATED
        elif measured:
            solo_ns = max(1, round(modelled.solo_ns * measured.solo_ns / there_ns))
            contended_ns = round(solo_ns * slowdown)
            source, error = Source.INTERPOLATED, max(CARRIED_OVER, modelled.error_share)
        else:
            family = self._families.get(family_key(what))
            if family is None or (near := family.correction(features(what, there_ns))) is None:
                return None
            solo_ns = max(1, round(modelled.solo_ns * near.factor))
            contended_ns = round(solo_ns * slowdown)
            source, error = Source.INTERPOLATED, modelled.error_share
        return replace(
            modelled, solo_ns=solo_ns, contended_ns=max(solo_ns, contended_ns), source=source, unknown="",
            error_share=error,
        )  # fmt: skip

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
