"""The cost model: turns a signature into durations alone and beside a resident NCCL kernel."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from profiles.descriptions.gpu import Gpu
from profiles.errors import ProfileError
from profiles.models import dispatch
from profiles.models.bound import bound_by
from profiles.models.errors import UNMEASURED, error_share
from profiles.models.limits import least_ns
from profiles.models.machine import Estimate
from profiles.models.power import NOTHING, Draw, draw
from profiles.signature import Conv, Library, Signature, parse, shapes_in, unknown_parts
from profiles.timings.convolutions import nearby
from profiles.timings.corrections import SAME_LAYOUT, Families
from profiles.timings.keys import key_of, without_strides
from profiles.timings.shipped import same_times
from profiles.timings.table import Measured, Table

REPEATED = 0.03
"""The relative error of a measured time: the difference between repeats."""
CARRIED_OVER = 0.15
"""The relative error of a time measured on another GPU: it is not known whether the model errs there as here."""
LONGEST_NS = 10**15
"""The longest cost in ns, 11 days: sizes may be anything, and 64 bits must hold sums of costs."""


class Source(enum.IntEnum):
    """The sources of a cost; the values are those of the records' SOURCE."""

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
    """Says what is not known of the work, if the source is UNRECOGNISED."""
    model: str = ""
    """The name of the model behind the time, also where a measured time corrects it."""
    error_share: float = 0.0
    """The relative error of the time: REPEATED for a measured one, for others that of the model on measured kernels
    (profiles.models.errors).
    """
    bound: str = ""
    """The resource that bounds the time: `compute`, `memory`, `pcie` or `latency` (profiles.models.bound)."""
    at_least: bool = False
    """True if the cost is a lower bound, since sizes of the work are not known."""
    draw: Draw = NOTHING
    """The power that the work draws of the GPU. The times are those at the full clock."""


class CostModel:
    """Costs of signatures on one GPU: the table's own time, else its family's correction of the model, else the model.

    Stateless but for a memo: the same signature always gets the same answer.
    """

    def __init__(self, gpu: Gpu, *measured: TimesOn, measure: Callable[[str], bool] | None = None) -> None:
        """`measured`: measured times in the order in which they are asked; those of the same GPU should come first.
        `measure`: called once for each signature that none of them knows; returns true if it has added the time to one
        of them.
        """
        self.gpu = gpu
        self._measure = measure
        self._measured = [_Source(times, gpu) for times in measured]
        self._known: dict[str, Cost] = {}

    def cost(self, signature: str) -> Cost:
        """The cost of a signature. Every text has one: a signature that is malformed, or that names what the definition
        does not list, gets an estimate of source UNRECOGNISED.
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
        if (exact := self._exact(what, modelled)) is not None:
            return exact
        if self._measure is not None and self._measure(signature) and (exact := self._exact(what, modelled)):
            return exact
        for source in self._measured:
            if (corrected := source.corrected(what, modelled)) is not None:
                return corrected
        if unknown := unknown_parts(what):
            return replace(modelled, source=Source.UNRECOGNISED, unknown=", ".join(unknown), error_share=UNMEASURED)
        return modelled

    def _exact(self, what: Signature, modelled: Cost) -> Cost | None:
        return next(filter(None, (source.exact(what, modelled) for source in self._measured)), None)

    def _roofline(self, what: Signature) -> Cost:
        return _modelled(self.gpu, what)


@dataclass(frozen=True, slots=True)
class TimesOn:
    """Measured times, and the GPU that they were measured on."""

    table: Table
    gpu: Gpu


class _Source:
    """Measured times, converted to another GPU by the ratio of measured to modelled time on their own GPU."""

    def __init__(self, times: TimesOn, gpu: Gpu) -> None:
        self._times = times.table.times
        self._home = times.gpu
        self._at_home = same_times(times.gpu, gpu)
        self._families = Families(times.table, lambda what: _modelled(times.gpu, what).solo_ns)

    def exact(self, what: Signature, modelled: Cost) -> Cost | None:
        measured = self._times.get(key_of(what)) or self._without_strides(what, modelled)
        if measured is None:
            return None
        slowdown = modelled.contended_ns / modelled.solo_ns
        if self._at_home:
            contended_ns = measured.contended_ns or round(measured.solo_ns * slowdown)
            return _corrected(modelled, measured.solo_ns, contended_ns, Source.MEASURED, REPEATED)
        solo_ns = max(1, round(modelled.solo_ns * measured.solo_ns / self._home_ns(what, modelled)))
        error = max(CARRIED_OVER, modelled.error_share)
        return _corrected(modelled, solo_ns, round(solo_ns * slowdown), Source.INTERPOLATED, error)

    def _without_strides(self, what: Signature, modelled: Cost) -> Measured | None:
        plain = without_strides(what)
        measured = self._times.get(key_of(plain)) if plain is not None else None
        if measured is None:
            return None
        apart = measured.solo_ns / self._home_ns(what, modelled)
        return measured if 1 / SAME_LAYOUT < apart < SAME_LAYOUT else None

    def corrected(self, what: Signature, modelled: Cost) -> Cost | None:
        """The cost corrected by measured members of the family; None if none near it was measured."""
        if (factor := self._families.factor(what, self._home_ns(what, modelled))) is None:
            return None
        solo_ns = max(1, round(modelled.solo_ns * factor))
        contended_ns = round(solo_ns * modelled.contended_ns / modelled.solo_ns)
        return _corrected(modelled, solo_ns, contended_ns, Source.INTERPOLATED, modelled.error_share)

    def _home_ns(self, what: Signature, modelled: Cost) -> int:
        return modelled.solo_ns if self._at_home else _modelled(self._home, what).solo_ns


def _corrected(modelled: Cost, solo_ns: int, contended_ns: int, source: Source, error: float) -> Cost:
    return replace(
        modelled,
        solo_ns=solo_ns,
        contended_ns=max(solo_ns, contended_ns),
        source=source,
        unknown="",
        at_least=False,
        error_share=error,
    )


def _modelled(gpu: Gpu, what: Signature) -> Cost:
    estimate = dispatch.estimate(gpu, what)
    known = error_share(estimate.model)
    source = Source.ROOFLINE
    if isinstance(what, Conv) and (near := nearby(gpu, what)) is not None and not estimate.unknown:
        estimate = _as_measured(gpu, what, estimate, near.factor)
        source, known = Source.INTERPOLATED, min(near.error_share, UNMEASURED)
    between = gpu.achieved.launch_gap_ns * (estimate.kernels - 1)
    solo_ns = max(1, round(min(estimate.solo_ns + between, LONGEST_NS)))
    contended_ns = max(solo_ns, round(min(estimate.contended_ns + between, LONGEST_NS)))
    source = Source.UNRECOGNISED if estimate.unknown else source
    share = UNMEASURED if estimate.unknown else max(min(known * gpu.achieved.uncertainty, UNMEASURED), known)
    share = max(share, known)
    return Cost(
        solo_ns,
        contended_ns,
        estimate.flops,
        source,
        estimate.unknown,
        estimate.model,
        share,
        bound_by(gpu, what, estimate),
        estimate.at_least,
        draw(gpu, what, estimate),
    )


def _as_measured(gpu: Gpu, what: Conv, found: Estimate, factor: float) -> Estimate:
    """The estimate multiplied by the factor of similar measured convolutions, but not faster than a GPU can be."""
    factor = max(factor, min(least_ns(gpu, what, found) / found.solo_ns, 1.0))
    return replace(found, solo_ns=found.solo_ns * factor, contended_ns=found.contended_ns * factor)
