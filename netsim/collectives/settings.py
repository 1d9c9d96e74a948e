"""Reads NCCL's environment variables, as far as they change how long an operation takes.

Names, values and defaults: NCCL's user guide, "Environment Variables", and NVIDIA/nccl v2.30.7. ``read`` makes
``NcclSettings`` of an environment, and lists the variables that it does not simulate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netsim.errors import SpecError
from netsim.topology import TrafficRules

ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
FUNCTIONS = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
}
"""The operations by NCCL's words for them, in lower case."""

MIB = 1 << 20
MOST_CHANNELS = 64

WITHOUT_EFFECT_ON_TIME = (
    *("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "CHECKS_DISABLE", "CHECK_MODE", "CHECK_POINTERS", "COMM_BLOCKING"),
    *("COMM_ID", "CONF_FILE", "CUMEM_HOST_ENABLE", "DEBUG", "DEBUG_FILE", "DEBUG_SUBSYS"),
    *("DEBUG_TIMESTAMP_FORMAT", "DEBUG_TIMESTAMP_LEVELS", "DESYNC_DEBUG", "DUMP_ON_TIMEOUT", "ENABLE_VERSION_CHECK"),
    *("GRAPH_DUMP_FILE", "GRAPH_DUMP_FILE_RANK", "HOSTID", "IB_ADDR_FAMILY", "IB_ADDR_RANGE", "IB_GID_INDEX"),
    *("IB_PKEY", "IB_RETRY_CNT", "IB_ROCE_VERSION_NUM", "IB_SL", "IB_TC", "IB_TIMEOUT", "IGNORE_CPU_AFFINITY"),
    *("OOB_NET_ENABLE", "OOB_NET_IFNAME", "RAS_ADDR", "RAS_ENABLE", "RAS_TIMEOUT_FACTOR", "REPORT_CONNECT_PROGRESS"),
    *("SET_STACK_SIZE", "SET_THREAD_NAME", "SOCKET_FAMILY", "SOCKET_IFNAME", "TOPO_DUMP_FILE", "TOPO_DUMP_FILE_RANK"),
    *("TRACE_BUFFER_SIZE", "VERSION", "WARN_ENABLE_DEBUG_INFO"),
)
"""Variables, without ``NCCL_``, that select how ranks find each other, what is checked, or what is written, and
NCCL_VERSION, in which NVIDIA's images of containers say which package they hold. No time depends on them, on a cluster
or here.
"""


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """The settings of a user. The defaults are NCCL's."""

    algorithms: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    """The allowed algorithms by operation, a subset of ``ALGORITHMS``; all are allowed where an operation is
    missing.
    """
    protocols: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    """The allowed protocols by operation. LL128 is forced where it is named, as in NCCL."""
    nvls: bool = True
    """False: NVLink multicast is not used, whatever the cluster has."""
    pat: bool = True
    min_channels: int = 0
    max_channels: int = MOST_CHANNELS
    min_p2p_channels: int = 1
    max_p2p_channels: int = MOST_CHANNELS
    channels_per_net_peer: int = 2
    nvls_channels: int | None = None
    nvls_chunk_nbytes: int = MIB // 8
    """The largest chunk of NVLS and NVLSTree."""
    nvls_tree_chunk_nbytes: int | None = None
    """The largest chunk of NVLSTree; None: as the number of servers says."""
    buffer_nbytes: int = 4 * MIB
    """The buffer of one channel and the Simple protocol in bytes: eight slots."""
    p2p_nvlink_chunk_nbytes: int = MIB // 2
    p2p_pcie_chunk_nbytes: int = MIB // 8
    p2p_net_chunk_nbytes: int = MIB // 8
    p2p_ll_threshold_nbytes: int = 16384
    net_overhead_us: float | None = None
    p2p: bool = True
    """False: the GPUs of a server exchange data through the host's memory."""
    pxn: bool = True
    """False: a GPU reaches another rail's NIC over PCIe instead of over NVLink and that rail's GPU."""
    cross_nic: bool = False
    """True: a message leaves by the sender's own NIC instead of by the receiver's rail."""
    nic_filter: str = ""
    """The value of NCCL_IB_HCA as given."""
    cumem: bool = True
    """False: NCCL allocates by cudaMalloc. Only memory depends on it."""
    runtime_connect: bool = True
    """False: connections are made with the communicator. Only memory depends on it."""
    version: tuple[int, int] = (2, 30)
    """The version of NCCL whose cost model chooses algorithms between servers."""

    def channels(self, count: int) -> int:
        """The number of channels that NCCL uses of those that it has found."""
        return max(self.min_channels, min(count, self.max_channels))

    def p2p_channels(self, count: int) -> int:
        """The number of channels of send and receive, given those of the collectives: a power of two."""
        count = max(self.min_p2p_channels, min(self.channels(count), self.max_p2p_channels))
        return 1 << (count - 1).bit_length()

    def traffic_rules(self, nics: int) -> TrafficRules:
        """The traffic rules that follow from these settings for servers with so many NICs."""
        return TrafficRules(self.usable_nics(nics), self.cross_nic, self.pxn, self.p2p, self.nvls)

    def usable_nics(self, nics: int) -> tuple[int, ...] | None:
        """The NICs that NCCL_IB_HCA names; None: all, also where it names none."""
        if not self.nic_filter:
            return None
        usable = tuple(i for i in range(nics) if _matches(self.nic_filter, f"mlx5_{i}"))
        return usable or None


def _matches(filter_: str, nic: str) -> bool:
    """Returns true if NCCL_IB_HCA selects the NIC: prefixes separated by commas; ``=`` for exact names, ``^`` to
    exclude; a port after a colon.
    """
    exclude = filter_.startswith("^")
    filter_ = filter_.removeprefix("^")
    exact = filter_.startswith("=")
    names = [name.partition(":")[0] for name in filter_.removeprefix("=").split(",") if name]
    return any(nic == name if exact else nic.startswith(name) for name in names) != exclude


@dataclass(frozen=True, slots=True)
class Read:
    """The content of an environment: settings, and sentences about variables that are not simulated."""

    settings: NcclSettings
    remarks: tuple[str, ...]


def read(environment: Mapping[str, str], nics: int = 0) -> Read:
    """Reads the settings in ``NCCL_*``. Raises SpecError naming the variable for a value that NCCL refuses.

    ``nics``: the number of NICs of a server, to check NCCL_IB_HCA.
    """
    given = {name: value.strip() for name, value in environment.items() if name.startswith("NCCL_") and value.strip()}
    values: dict[str, Any] = {}
    not_simulated: list[str] = []
    remarks: list[str] = []
    for name in sorted(given):
        short = name.removeprefix("NCCL_")
        if short == "P2P_LEVEL" and given[name].upper() in ("LOC", "0"):
            values["p2p"] = False
        elif short in _READERS:
            setting, reader = _READERS[short]
            values[setting] = _stricter(setting, values.get(setting), reader(name, given[name]))
        elif short not in WITHOUT_EFFECT_ON_TIME:
            not_simulated.append(name)
    settings = NcclSettings(**values)
    if settings.min_channels > settings.max_channels:
        remarks.append("NCCL_MIN_NCHANNELS is above NCCL_MAX_NCHANNELS; NCCL takes the minimum")
    if settings.nic_filter and nics and settings.usable_nics(nics) is None:
        simulated = f"the simulated NICs are called mlx5_0 to mlx5_{nics - 1}, and all are used"
        remarks.append(f"NCCL_IB_HCA={settings.nic_filter} has no effect: {simulated}")
    for op in FUNCTIONS.values():
        if not settings.algorithms.get(op, frozenset(ALGORITHMS)) & _POSSIBLE[op]:
            remarks.append(
                f"NCCL_ALGO leaves no algorithm for {op}: NCCL would fail there; its own choice is simulated"
            )
    if not_simulated:
        remarks.append(f"not simulated, without effect: {', '.join(sorted(not_simulated))}")
    return Read(settings, tuple(remarks))


_POSSIBLE = {
    "broadcast": frozenset({"ring"}),
    "reduce": frozenset({"ring"}),
    "all_gather": frozenset({"ring", "nvls", "pat", "collnetdirect"}),
    "reduce_scatter": frozenset({"ring", "nvls", "pat", "collnetdirect"}),
    "all_reduce": frozenset({"ring", "tree", "nvls", "nvlstree", "collnetdirect", "collnetchain"}),
}


def _choices(known: Sequence[str]) -> Callable[[str, str], Mapping[str, frozenset[str]]]:
    """Reads lists by function, the first for all functions: ``ring,tree``, ``^LL128``, ``ring;allreduce:tree``."""

    def parse(name: str, value: str) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for number, part in enumerate(filter(None, value.split(";"))):
            function, colon, words = part.rpartition(":")
            if not colon and number:
                raise SpecError(f"{name}={value}: only the first list can be without a function in front")
            if colon and function.lower() not in FUNCTIONS:
                raise SpecError(f"{name}={value}: {function!r} is not one of {', '.join(FUNCTIONS)}")
            names = [word.lower() for word in words.removeprefix("^").split(",") if word]
            unknown = [word for word in names if word not in known]
            if unknown or not names:
                raise SpecError(f"{name}={value}: {', '.join(unknown) or words!r} is not one of {', '.join(known)}")
            allowed = frozenset(known) - frozenset(names) if words.startswith("^") else frozenset(names)
            for op in (FUNCTIONS[function.lower()],) if colon else FUNCTIONS.values():
                found[op] = allowed
        return found

    return parse


def _integer(least: int, most: int = 1 << 40) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]{1,300}|[0-9]{1,300})", value):
            raise SpecError(f"{name}={value}: expected a whole number")
        return max(least, min(most, int(value, 16 if "x" in value.lower() else 10)))

    return parse


def _stricter(setting: str, one: Any, other: Any) -> Any:
    """The narrower of two bounds that two variables set for one thing, such as NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS."""
    if one is None or not setting.endswith("_channels"):
        return other
    return max(one, other) if setting.startswith("min") else min(one, other)


def _flag(name: str, value: str) -> bool:
    return _integer(0)(name, value) != 0


def _not(name: str, value: str) -> bool:
    return not _flag(name, value)


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "ALGO": ("algorithms", _choices(ALGORITHMS)),
    "PROTO": ("protocols", _choices(PROTOCOLS)),
    "NVLS_ENABLE": ("nvls", _flag),
    "PAT_ENABLE": ("pat", _flag),
    "MIN_NRINGS": ("min_channels", _integer(0, MOST_CHANNELS)),
    "MAX_NRINGS": ("max_channels", _integer(1, MOST_CHANNELS)),
    "MIN_NCHANNELS": ("min_channels", _integer(0, MOST_CHANNELS)),
    "MAX_NCHANNELS": ("max_channels", _integer(1, MOST_CHANNELS)),
    "MIN_CTAS": ("min_channels", _integer(0, MOST_CHANNELS)),
    "MAX_CTAS": ("max_channels", _integer(1, MOST_CHANNELS)),
    "MIN_P2P_NCHANNELS": ("min_p2p_channels", _integer(1, MOST_CHANNELS)),
    "MAX_P2P_NCHANNELS": ("max_p2p_channels", _integer(1, MOST_CHANNELS)),
    "NCHANNELS_PER_NET_PEER": ("channels_per_net_peer", _integer(1, MOST_CHANNELS)),
    "NVLS_NCHANNELS": ("nvls_channels", _integer(1, MOST_CHANNELS)),
    "NVLS_CHUNKSIZE": ("nvls_chunk_nbytes", _integer(16384)),
    "NVLSTREE_MAX_CHUNKSIZE": ("nvls_tree_chunk_nbytes", _integer(16384)),
    "BUFFSIZE": ("buffer_nbytes", _integer(4096)),
    "P2P_NVL_CHUNKSIZE": ("p2p_nvlink_chunk_nbytes", _integer(512)),
    "P2P_PCI_CHUNKSIZE": ("p2p_pcie_chunk_nbytes", _integer(512)),
    "P2P_NET_CHUNKSIZE": ("p2p_net_chunk_nbytes", _integer(512)),
    "P2P_LL_THRESHOLD": ("p2p_ll_threshold_nbytes", _integer(0)),
    "NET_OVERHEAD": ("net_overhead_us", lambda name, value: _integer(0)(name, value) / 1000),
    "P2P_DISABLE": ("p2p", _not),
    "PXN_DISABLE": ("pxn", _not),
    "CROSS_NIC": ("cross_nic", lambda name, value: _integer(0)(name, value) == 1),
    "IB_HCA": ("nic_filter", lambda name, value: value),
    "CUMEM_ENABLE": ("cumem", lambda name, value: _integer(-2)(name, value) != 0),
    "RUNTIME_CONNECT": ("runtime_connect", _flag),
}
