"""The facts of a source about a cluster, each with its origin, and notes where the source leaves a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Generic, Literal, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Fact(Generic[T_co]):
    """A value, and the words of the source that state it."""

    value: T_co
    origin: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of the sources; None where none of them has one. Rates are Gbit/s in one direction, numbers are per
    server.
    """

    gpu: Fact[str] | None = None
    """The name of a GPU's description."""
    gpus: Fact[int] | None = None
    servers: Fact[int] | None = None
    cpus: Fact[int] | None = None
    """The number of logical processors."""
    sockets: Fact[int] | None = None
    inside: Fact[Literal["nvswitch", "pcie"]] | None = None
    """The links between the GPUs of a server."""
    nvlink_pairs: Fact[bool] | None = None
    """True if pairs of GPUs are bridged, where no switch joins all."""
    nics: Fact[int] | None = None
    """The number of cards for traffic between servers, without those for storage and management."""
    nic_gbps: Fact[float] | None = None
    link: Fact[Literal["infiniband", "ethernet"]] | None = None
    fabric: Fact[Literal["switch", "leaf-spine", "rail"]] | None = None
    servers_per_leaf: Fact[int] | None = None
    oversubscription: Fact[float] | None = None
    notes: tuple[str, ...] = field(default=())
    """Remarks on what the reader had to choose, or could not use."""


def merge(several: Sequence[Facts]) -> Facts:
    """Joins several facts into one: where two state the same fact, the later one counts. Notes say where they
    disagree.
    """
    found: dict[str, Fact[object]] = {}
    notes: list[str] = []
    for facts in several:
        notes += facts.notes
        for one in fields(Facts):
            fact = getattr(facts, one.name)
            if one.name == "notes" or fact is None:
                continue
            if (before := found.get(one.name)) is not None and before.value != fact.value:
                name = one.name.replace("_", " ")
                notes.append(f"{name}: {before.value} ({before.origin}) gives way to {fact.value} ({fact.origin})")
            found[one.name] = fact
    return Facts(**found, notes=tuple(notes))  # type: ignore[arg-type]
