"""NCCL's tuning constants and measured times of its kernels, one file per GPU generation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from formats.toml import read_toml
from netsim.errors import SpecError
from netsim.fields import FieldError, SpecTable

PROTOCOLS = ("ll", "ll128", "simple")
REDUCTIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""NCCL's collectives that its tuner chooses an algorithm for."""
OPERATIONS = (*REDUCTIONS, "all_to_all", "send_recv", "gather", "scatter")
ALGORITHMS = ("tree", "ring", "nvls", "nvls_tree", "pat")

Triple = tuple[float, float, float]
"""Three values: by protocol (LL, LL128, Simple), or by nodes (1, 2, 4 and more)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bandwidth ceilings in GB/s for 1, 2 and 4+ nodes; per channel except those of LL."""

    ll_total: float
    """The ceiling of LL in a server."""
    ll_between: tuple[float, float]
    """The ceiling of LL between servers, for 2 nodes and for more. The hosts' proxies limit it."""
    ll_between_amd: tuple[float, float]
    """The ceiling of LL between servers whose hosts have AMD processors, for 2 nodes and for more."""
    ring_ll128: Triple
    tree_ll128: Triple
    tree_simple: Triple
    nvls_tree: Triple


@dataclass(frozen=True, slots=True)
class Factors:
    """The ratios of NCCL's model, and the payload share of a NIC's line rate."""

    ring_ll: float
    ring_ll128: float
    tree: float
    tree_ll: float
    nvls: float
    pat: float
    ring_net_simple_latency: float
    nvls_tree_corrected: bool
    """True if NCCL's model takes the factor of a tree's middle sizes for NVLSTree, too."""
    net_efficiency: float


@dataclass(frozen=True, slots=True)
class MulticastKernel:
    """The kernels of NVLS and NVLSTree: every channel moves a chunk for each member at once, then the next ones."""

    start_us: float
    step_us: float
    """The time of the barriers and flags of one such step."""
    gbs: float
    """An all-reduce's rate through the switch in GB/s, for eight and more members."""
    tree_gbs: float
    """The rate of a block in NVLSTree, whose blocks also feed the trees between servers."""


@dataclass(frozen=True, slots=True)
class CollectiveKernel:
    """The measured times of ring kernels. A channel is one thread block; rates are per channel."""

    wire_efficiency: float
    """The share of a port's rate, as NCCL counts it, that one direction carries."""
    start_us: dict[str, Triple]
    """The time before the first byte moves and after the last, by operation."""
    step_us: Triple
    """The time until a neighbour sees what a rank has written."""
    net_us: Triple
    """The time until a rank of another server sees it: kernel, proxy, card, the other card, the other kernel."""
    net_path_us: float
    """The part of ``net_us`` that cards and switches take; a longer way takes more."""
    slice_us: float
    """The time of the barrier and flag of one slice of Simple."""
    iteration_us: float
    """The time of one more iteration of all threads of LL."""
    send_gbs: Triple
    relay_gbs: Triple
    """The rate of receive, reduce or copy, and send on; for LL, the rate that its iterations allow."""
    receive_gbs: Triple
    overlap_mb: float
    """The MB on a rank's wire after which half of the last receive of each round overlaps with other channels'
    sends.
    """
    many_blocks: int
    many_blocks_us: float
    """The additional start time of a kernel of at least ``many_blocks`` blocks."""
    multicast: MulticastKernel
    beside_compute: dict[str, float]
    """The factor on the time of a collective within a server that begins while its GPUs compute, by operation, at least
    1.
    """


@dataclass(frozen=True, slots=True)
class TransferKernel:
    """The measured times of a send or receive kernel, with the other direction idle or busy. Rates are per channel."""

    ll_start_us: float
    simple_start_us: float
    ll_gbs: float
    simple_gbs: float
    port_efficiency: float


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """The times of send and receive. ``exchange``: in kernels that send and receive at once."""

    one_way: TransferKernel
    exchange: TransferKernel
    first_gbs: float
    """The rate of the first chunk, which nothing else competes with."""
    receive_gbs: float
    """The rate of the last chunk, out of the buffer."""
    chunk_us: float
    """The time of handing over one chunk."""
    net_chunk_us: float
    """The time of handing over one chunk between servers: flag, proxy, card."""
    post_us: float
    """The time in which a host's thread posts one message to a card, or takes one from it."""
    second_iteration_us: float
    """The additional time of LL for more than 4 KiB on a channel."""
    ll_send_gbs: float
    """The rate of a sender of LL alone."""
    late_receive_us: float
    """The start time of a receive of Simple whose data is there already."""


@dataclass(frozen=True, slots=True)
class Older:
    """Constants of NCCL's model that differ in the versions before one; None: as in later versions."""

    before: tuple[int, int]
    nvls_us: float | None = None
    """The latency of NVLS and NVLSTree inside a server."""
    nvls_tree_net_us: float | None = None
    tree_simple_us: tuple[float, ...] | None = None
    """The latencies of trees with Simple: base, NVLink, PCIe, network."""
    ring_ll: float | None = None
    ring_ll128: Triple | None = None
    tree_ll128: Triple | None = None
    tree_simple: Triple | None = None
    nvls_tree: Triple | None = None
    nvls_tree_corrected: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Params:
    """The constants of one generation: latencies in us by algorithm as (LL, LL128, Simple), bandwidths in GB/s."""

    generation: str
    link_gbs: float
    links: int
    graph_gbs: float
    """The bandwidth of rings that NCCL's search finds in a server: channels x speed."""
    max_channels: int
    net_channels_per_rail: int
    net_channels_double_below: int
    nvls_channels: int
    net_overhead_us: float
    base_us: dict[str, Triple]
    nvlink_us: dict[str, Triple]
    pci_us: dict[str, Triple]
    net_us: dict[str, Triple]
    limit: Limits
    factor: Factors
    kernel: CollectiveKernel
    p2p: PointToPoint
    older: tuple[Older, ...] = ()
    """The constants of older versions of NCCL, the newest version first."""

    def of_version(self, version: tuple[int, int]) -> Params:
        """The constants that the cost model of a version of NCCL has."""
        return _of_version(self, version)

    @property
    def port_gbs(self) -> float:
        """The rate of NVLink in GB/s, per GPU and direction, as NCCL counts it."""
        return self.link_gbs * self.links


@lru_cache(maxsize=256)
def _of_version(params: Params, version: tuple[int, int]) -> Params:
    for older in params.older:
        if version < older.before:
            params = _changed(params, older)
    return params


def _changed(params: Params, older: Older) -> Params:
    base, nvlink, pci, net = (dict(t) for t in (params.base_us, params.nvlink_us, params.pci_us, params.net_us))
    if older.nvls_us is not None:
        nvlink |= dict.fromkeys(("nvls", "nvls_tree"), (older.nvls_us,) * 3)
    if older.nvls_tree_net_us is not None:
        net["nvls_tree"] = (older.nvls_tree_net_us,) * 3
    for table, us in zip((base, nvlink, pci, net), older.tree_simple_us or (), strict=False):
        table["tree"] = (*table["tree"][:2], us)
    limits = {name: getattr(older, name) for name in ("ring_ll128", "tree_ll128", "tree_simple", "nvls_tree")}
    factors = {name: getattr(older, name) for name in ("ring_ll", "nvls_tree_corrected")}
    return replace(
        params,
        base_us=base,
        nvlink_us=nvlink,
        pci_us=pci,
        net_us=net,
        limit=replace(params.limit, **{name: value for name, value in limits.items() if value is not None}),
        factor=replace(params.factor, **{name: value for name, value in factors.items() if value is not None}),
    )


def _triple(table: SpecTable, key: str) -> Triple:
    value = table.value(key)
    if not (isinstance(value, list) and len(value) == 3 and all(isinstance(x, int | float) and x >= 0 for x in value)):
        raise table.error(key, f"expected three numbers that are not negative, not {value!r}")
    return (float(value[0]), float(value[1]), float(value[2]))


def _triples(table: SpecTable, keys: tuple[str, ...]) -> dict[str, Triple]:
    return {key: _triple(table, key) for key in keys}


def _pair(table: SpecTable, key: str) -> tuple[float, float]:
    value = table.value(key)
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(x, int | float) and x > 0 for x in value)):
        raise table.error(key, f"expected two numbers above 0, not {value!r}")
    return (float(value[0]), float(value[1]))


def _limits(table: SpecTable) -> Limits:
    return Limits(
        ll_total=table.number("ll_total"),
        ll_between=_pair(table, "ll_between"),
        ll_between_amd=_pair(table, "ll_between_amd"),
        ring_ll128=_triple(table, "ring_ll128"),
        tree_ll128=_triple(table, "tree_ll128"),
        tree_simple=_triple(table, "tree_simple"),
        nvls_tree=_triple(table, "nvls_tree"),
    )


def _factors(table: SpecTable) -> Factors:
    names = [f.name for f in fields(Factors) if f.name != "nvls_tree_corrected"]
    numbers = {name: table.number(name) for name in names}
    return Factors(nvls_tree_corrected=table.flag("nvls_tree_corrected"), **numbers)


def _beside_compute(table: SpecTable) -> dict[str, float]:
    return {op: table.number(op, least=1.0) for op in OPERATIONS}


def _multicast(table: SpecTable) -> MulticastKernel:
    return MulticastKernel(*(table.number(f.name) for f in fields(MulticastKernel)))


def _kernel(table: SpecTable) -> CollectiveKernel:
    return CollectiveKernel(
        wire_efficiency=table.number("wire_efficiency"),
        start_us=_triples(table.table("start_us"), REDUCTIONS),
        step_us=_triple(table, "step_us"),
        net_us=_triple(table, "net_us"),
        net_path_us=table.number("net_path_us"),
        slice_us=table.number("slice_us"),
        iteration_us=table.number("iteration_us"),
        send_gbs=_triple(table, "send_gbs"),
        relay_gbs=_triple(table, "relay_gbs"),
        receive_gbs=_triple(table, "receive_gbs"),
        overlap_mb=table.number("overlap_mb"),
        many_blocks=table.integer("many_blocks", least=1),
        many_blocks_us=table.number("many_blocks_us", least=0.0),
        multicast=_multicast(table.table("multicast")),
        beside_compute=_beside_compute(table.table("beside_compute")),
    )


def _point_to_point(table: SpecTable) -> PointToPoint:
    def transfer(key: str) -> TransferKernel:
        sub = table.table(key)
        return TransferKernel(*(sub.number(f.name) for f in fields(TransferKernel)))

    one_way, exchange = transfer("one_way"), transfer("exchange")
    rest = [f.name for f in fields(PointToPoint)][2:]
    return PointToPoint(one_way, exchange, *(table.number(name) for name in rest))


def _older(table: SpecTable) -> Older:
    before = table.value("before")
    if not (isinstance(before, list) and len(before) == 2 and all(isinstance(part, int) for part in before)):
        raise table.error("before", f"expected a version of NCCL such as [2, 29], not {before!r}")
    values: dict[str, Any] = {}
    for name in ("nvls_us", "nvls_tree_net_us", "ring_ll"):
        if name in table:
            values[name] = table.number(name)
    for name in ("ring_ll128", "tree_ll128", "tree_simple", "nvls_tree"):
        if name in table:
            values[name] = _triple(table, name)
    if "tree_simple_us" in table:
        found = table.value("tree_simple_us")
        if not (isinstance(found, list) and len(found) == 4 and all(isinstance(x, int | float) for x in found)):
            raise table.error("tree_simple_us", f"expected four numbers, not {found!r}")
        values["tree_simple_us"] = tuple(map(float, found))
    if "nvls_tree_corrected" in table:
        values["nvls_tree_corrected"] = table.flag("nvls_tree_corrected")
    return Older((before[0], before[1]), **values)


def read(path: Path) -> Params:
    """Reads parameters from a file. Raises SpecError naming line and field if it is not complete and right."""
    source, values = read_toml(path, SpecError)
    try:
        table = SpecTable(values)
        limit, factor = table.table("limit_gbs"), table.table("factor")
        params = Params(
            generation=table.text("generation"),
            link_gbs=table.number("link_gbs"),
            links=table.integer("links", least=1),
            graph_gbs=table.number("graph_gbs"),
            max_channels=table.integer("max_channels", least=1),
            net_channels_per_rail=table.integer("net_channels_per_rail", least=1),
            net_channels_double_below=table.integer("net_channels_double_below", least=0),
            nvls_channels=table.integer("nvls_channels", least=1),
            net_overhead_us=table.number("net_overhead_us"),
            base_us=_triples(table.table("base_us"), ALGORITHMS),
            nvlink_us=_triples(table.table("nvlink_us"), ALGORITHMS),
            pci_us=_triples(table.table("pci_us"), ALGORITHMS),
            net_us=_triples(table.table("net_us"), ALGORITHMS),
            limit=_limits(limit),
            factor=_factors(factor),
            kernel=_kernel(table.table("kernel")),
            p2p=_point_to_point(table.table("p2p")),
            older=tuple(map(_older, table.tables("older"))),
        )
        table.end()
        return params
    except FieldError as error:
        raise SpecError(source.locate(error.field, error.problem)) from error


@cache
def load_params(generation: str) -> Params:
    """The parameters of ``hopper``, ``ampere`` or ``blackwell``. Raises SpecError naming the known ones otherwise."""
    folder = resources.files("netsim.collectives") / "generations"
    known = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    if not isinstance(generation, str) or generation not in known:
        raise SpecError(f"no NCCL parameters for {generation!r}; known: {', '.join(known)}")
    with resources.as_file(folder / f"{generation}.toml") as path:
        return read(path)
