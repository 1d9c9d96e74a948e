"""NCCL's tuning constants, one file per GPU generation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path

from netsim.errors import SpecError
from netsim.fields import FieldError, TomlTable, locate, read_toml

PROTOCOLS = ("ll", "ll128", "simple")
REDUCTIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
ALGORITHMS = ("tree", "ring", "nvls", "nvls_tree", "pat")

Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bandwidth ceilings in GB/s for 1, 2 and 4+ nodes; per channel except ``ll_total``."""

    ll_total: Triple
    ring_ll128: Triple
    tree_ll128: Triple
    tree_simple: Triple
    nvls_tree: Triple


@dataclass(frozen=True, slots=True)
class Factors:
    """Ratios of NCCL's model, and the payload share of a NIC's line rate."""

    ring_ll: float
    ring_ll128: float
    tree: float
    tree_ll: float
    nvls: float
    pat: float
    ring_net_simple_latency: float
    net_efficiency: float


@dataclass(frozen=True, slots=True)
class Simple:
    """What measurements add to NCCL's model for the Simple protocol: efficiencies, start, and turns of a pipeline."""

    wire_efficiency: float
    both_ways_efficiency: float
    ramp_us: dict[str, float]
    turn_us_per_mb: dict[str, float]


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """Channels of send and receive: how many there are, what one carries (GB/s), when a transfer takes more."""

    channels: int
    part_mb: float
    channel_gbs: float
    both_ways_channel_gbs: float


@dataclass(frozen=True, slots=True, eq=False)
class Params:
    """One generation's constants: latencies in us by algorithm as (LL, LL128, Simple), bandwidths in GB/s."""

    generation: str
    link_gbs: float
    links: int
    max_channels: int
    nvls_channels: int
    net_overhead_us: float
    base_us: dict[str, Triple]
    nvlink_us: dict[str, Triple]
    pci_us: dict[str, Triple]
    net_us: dict[str, Triple]
    limit: Limits
    factor: Factors
    simple: Simple
    p2p: PointToPoint

    @property
    def gpu_gbs(self) -> float:
        """What NCCL counts on per GPU and direction over NVLink."""
        return self.link_gbs * self.links


def _triple(table: TomlTable, key: str) -> Triple:
    value = table.raw(key)
    if not (isinstance(value, list) and len(value) == 3 and all(isinstance(x, int | float) and x >= 0 for x in value)):
        raise FieldError(table.field(key), f"expected three numbers that are not negative, not {value!r}")
    return (float(value[0]), float(value[1]), float(value[2]))


def _by_op(table: TomlTable, ops: tuple[str, ...]) -> dict[str, float]:
    values = {op: table.number(op, above=-1.0) for op in ops}
    table.end()
    return values


def _simple(table: TomlTable) -> Simple:
    simple = Simple(
        table.number("wire_efficiency"),
        table.number("both_ways_efficiency"),
        _by_op(table.table("ramp_us"), (*REDUCTIONS, "point_to_point", "exchange")),
        _by_op(table.table("turn_us_per_mb"), REDUCTIONS),
    )
    table.end()
    return simple


def read(path: Path) -> Params:
    """Parameters from a file; SpecError naming line and field if it is not complete and right."""
    try:
        table = TomlTable(read_toml(path), "")

        def latencies(name: str) -> dict[str, Triple]:
            sub = table.table(name)
            values = {algorithm: _triple(sub, algorithm) for algorithm in ALGORITHMS}
            sub.end()
            return values

        limit, factor, p2p = table.table("limit_gbs"), table.table("factor"), table.table("p2p")
        params = Params(
            generation=table.text("generation"),
            link_gbs=table.number("link_gbs"),
            links=table.count("links"),
            max_channels=table.count("max_channels"),
            nvls_channels=table.count("nvls_channels"),
            net_overhead_us=table.number("net_overhead_us"),
            base_us=latencies("base_us"),
            nvlink_us=latencies("nvlink_us"),
            pci_us=latencies("pci_us"),
            net_us=latencies("net_us"),
            limit=Limits(*(_triple(limit, f.name) for f in fields(Limits))),
            factor=Factors(*(factor.number(f.name) for f in fields(Factors))),
            simple=_simple(table.table("simple")),
            p2p=PointToPoint(
                p2p.count("channels"),
                p2p.number("part_mb"),
                p2p.number("channel_gbs"),
                p2p.number("both_ways_channel_gbs"),
            ),
        )
        for part in (limit, factor, p2p, table):
            part.end()
        return params
    except FieldError as error:
        raise locate(error, path) from error


@cache
def load_params(generation: str) -> Params:
    """The parameters of ``hopper``, ``ampere`` or ``blackwell``; SpecError naming the known ones otherwise."""
    folder = resources.files("netsim.collectives") / "generations"
    known = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    if generation not in known:
        raise SpecError(f"no NCCL parameters for {generation!r}; known: {', '.join(known)}")
    with resources.as_file(folder / f"{generation}.toml") as path:
        return read(path)
