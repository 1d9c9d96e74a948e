"""Collectives under way: NCCL's kernels on streams, and what they move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phantora_async.virtual_time.entities.fields import constant, entity, logged
from phantora_async.virtual_time.facts import Collective

if TYPE_CHECKING:
    from phantora_async.virtual_time.entities.host import Host
    from phantora_async.virtual_time.entities.stream import Stream


@entity
class NcclKernel:
    """An NCCL kernel on a stream: done when all of its collectives are."""

    stream: Stream = constant()
    collectives: tuple[Collective, ...] = constant()
    """More than one for a group call."""
    remaining: int = logged(0)
    """Collectives that are not done, once its stream has reached it."""
    active: int = logged(0)
    """Collectives that move data now."""
    arrived_ns: int = logged(-1)
    """When its stream reached it."""
    beside_compute: bool = logged(False)
    """Its GPU was computing at that instant. A collective must not look at its members' GPUs when it begins: the order
    of events of several ranks at one instant means nothing."""

    @property
    def host(self) -> Host:
        return self.stream.device.host


@entity
class Transfer:
    """A collective under way: kernels that have arrived, and, when all have, since when it is in the network."""

    collective: Collective = constant()
    kernels: list[NcclKernel] = logged(factory=list)
    begun_ns: int = logged(-1)
    done_ns: int = logged(-1)
    """When the network completed it, as far as is known."""
    delivered: set[NcclKernel] = logged(factory=set)
    """Those of ``kernels`` that have been told so, as long as this may be taken back."""
    aborted: list[tuple[NcclKernel, int]] = logged(factory=list)
    """Kernels that had arrived and were aborted, and when."""
