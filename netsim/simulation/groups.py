"""Groups of hops that progress together at one rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

Links = Sequence[tuple[int, int]]
"""Pairs (link, weight)."""


class LinksLess(Links):
    """Sorted links of hops that many groups share, less those of a few hops: each link once, in the same order.

    Equal to the tuple of its pairs. It keeps ``shared`` and ``less`` alone, however many links these have.
    """

    __slots__ = ("less", "shared")

    def __init__(self, shared: tuple[tuple[int, int], ...], less: tuple[tuple[int, int], ...]) -> None:
        self.shared = shared
        self.less = less

    def __iter__(self) -> Iterator[tuple[int, int]]:
        less = dict(self.less)
        for pair in self.shared:
            link, weight = pair
            if link not in less:
                yield pair
            elif weight != less[link]:
                yield link, weight - less[link]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[tuple[int, int], ...]: ...
    def __getitem__(self, place: int | slice) -> tuple[int, int] | tuple[tuple[int, int], ...]:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinksLess | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclass(frozen=True, slots=True)
class Group:
    """Bytes that cross several links at one common rate.

    ``nbytes`` is what each hop moves; a link that carries ``weight`` hops of the group spends ``weight`` times the
    group's rate. A plain flow is a group whose links are the path, each of weight 1. ``cap_gbps`` limits the rate
    of one hop whatever the links offer (a protocol's or channel's limit); ``latency_ns`` passes between the start
    and the first byte.
    """

    nbytes: int
    links: Links
    cap_gbps: float | None = None
    latency_ns: int = 0
    path: bool = False
    """True: the links are a path that the bytes cross one after the other. It matters where links have queues."""

    @property
    def summands(self) -> tuple[tuple[Links, int], ...]:
        """Its links as a sum of those that groups share, each with the sign of its weights."""
        links = self.links
        return ((links.shared, 1), (links.less, -1)) if isinstance(links, LinksLess) else ((links, 1),)


@dataclass(frozen=True, slots=True)
class Moved:
    """A completion that changed: ``None`` stands for "not known at the present"."""

    flow: int
    before_ns: int | None
    after_ns: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """The outcome of a change of the facts: the flow concerned and the known completions that moved, in canonical
    order.
    """

    flow: int
    moved: tuple[Moved, ...]
