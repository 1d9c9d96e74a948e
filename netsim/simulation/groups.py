"""What moves: a group of hops that progress together at one rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """Bytes that cross several links at one common rate.

    ``nbytes`` is what each hop moves; a link that carries ``weight`` hops of the group spends ``weight`` times the
    group's rate. A plain flow is a group whose links are the path, each of weight 1. ``cap_gbps`` limits the rate
    of one hop whatever the links offer (a protocol's or channel's limit); ``latency_ns`` passes between the start
    and the first byte.
    """

    nbytes: int
    links: tuple[tuple[int, int], ...]
    cap_gbps: float | None = None
    latency_ns: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A completion that changed: ``None`` stands for "not known at the present"."""

    flow: int
    before_ns: int | None
    after_ns: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Outcome of a change of the facts: the flow concerned and the known completions that moved, in canonical order."""

    flow: int
    moved: tuple[Moved, ...]
