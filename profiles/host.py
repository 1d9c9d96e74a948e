"""The description of a host: a cost for each kind of work that the hook library counts.

A thread's host time is the sum, over the kinds, of count times cost: API calls, operators, autograd nodes, Python
functions. docs/host.md says what the kinds are, how costs are measured and how far real jobs are from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from formats.c_lists import read_list
from profiles.descriptions.catalog import read
from profiles.descriptions.slowest import COUNTED, largest_of

_KINDS = read_list(
    Path(__file__).resolve().parents[1] / "emu" / "contract" / "definitions" / "host_kinds.def", "CALL", "WORK", "FINE"
)
"""The kinds of work. They are read from a file, since profiles imports no part of emu. Both packages are installed side
by side.
"""
CALL_KINDS = tuple(entry.arguments[1] for entry in _KINDS if entry.macro == "CALL")
"""The kinds of API calls, which take the time of the driver and of NVIDIA's libraries."""
WORK_KINDS = tuple(entry.arguments[1] for entry in _KINDS if entry.macro != "CALL")
"""The kinds of the program's own work between calls."""
FINE_KINDS = frozenset(entry.arguments[1] for entry in _KINDS if entry.macro == "FINE")
"""The kinds whose cost the hook library has in picoseconds."""
LATER_KINDS = {"hot_launch": "launch", "made_node": "", "freed_block": "", "value_op": "op"}
"""The kinds that older descriptions do not have, with the kind as which such work was counted then; "": the costs of
other kinds contain it.
"""
TENSOR_KINDS = frozenset(
    (
        *("tensor_kib", "cached_tensor_kib", "fresh_tensor_kib"),
        *("function_value", "random_value", "scattered_value", "sorted_value", "kilo_product", "half_kilo_product"),
    )
)
"""The kinds of an operator's work on tensors of the CPU, by their size."""
NEW_SIZE_KINDS = frozenset(("new_product", "plan"))
"""The kinds of work that a library does once for each size."""
SHIPPED_KINDS = TENSOR_KINDS | NEW_SIZE_KINDS
"""A description without these kinds has the costs of `SHIPPED`."""
SHIPPED = "xeon-h200"
"""The host description that most cluster descriptions name."""
HOST_FUNCTION_NS = 27_000
"""The cost of a host function in ns. On an H100 with driver 580, each of 20 empty host functions between empty kernels
took so long; a single one took up to 190 us.
"""
HOT_WITHIN_FUNCTIONS, WARM_WITHIN_FUNCTIONS, COLD_AFTER_FUNCTIONS = 256, 4096, 1024
"""The limits of the caches, for hosts like `xeon-h200` with 2 MiB of L2 cache a core. laboratory/notes/host-model.md
compares training steps with both.
"""
KEPT_TABLE_NBYTES = 2 << 20
"""The size up to which the C library keeps the pages of freed tables. In traces of FSDP on such hosts tables of 0.4 to
1.7 MiB took 0.35 us a KiB, those of 4 to 8 MiB 0.7 to 1.4.
"""
MEMORY_THREADS = 36.0
"""The threads that take a server's bandwidth: profiles/hosts/xeon-h200.toml says how it was measured."""
TENSOR_CACHE_NBYTES = 2 << 20
"""The L2 cache of a core of such a host."""
MOST_COST_NS = 3e6
"""The highest cost of one call or operator. In picoseconds, multiplied by the slowest rank's factor, it must fit 32
bits in the hook library.
"""
MOST_SIZE_NS = 1e8
"""The highest cost of what a library does once for each size; the hook library counts it in nanoseconds."""
RANKS, MOST_RANKS = 0.11, 0.25
"""The spread between ranks of one machine, and its largest value: laboratory/notes/host-model.md."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The differences between hosts of this kind, and the model's error on a host on which it was measured."""

    fast: float
    """The time of the fastest such host seen, over that of the description; at most 1."""
    slow: float
    """The time of the slowest such host seen, over that of the description; at least 1."""
    error: float
    """The relative standard deviation of a job's host time around the model's, on the measured host itself."""
    ranks: float = RANKS
    """The relative standard deviation between processes of one machine that do the same work at the same time."""


@dataclass(frozen=True, slots=True)
class HostModel:
    name: str
    cost_ns: dict[str, float]
    """The cost in ns by kind, for CALL_KINDS and WORK_KINDS."""
    host_function_ns: int
    """The ns that a host function (cudaLaunchHostFunc) takes of its stream besides its own time, which is not
    modelled.
    """
    queue_depth: int
    """The launches that the host may be ahead of the GPU before a launch blocks."""
    scale: float
    """For mode `measured`: the real host's CPU time over this machine's, for the same work."""
    spread: Spread
    measured: dict[str, str]
    """The origin of the figures: processor, kernel, Python, torch, date and the like."""
    path: Path
    hot_within_functions: int = HOT_WITHIN_FUNCTIONS
    """A function is in the first caches (`hot_frame`) if its thread ran fewer than so many Python functions since it
    last ran.
    """
    warm_within_functions: int = WARM_WITHIN_FUNCTIONS
    """It is in the second-level cache (`warm_frame`) if there were fewer than so many, else in neither (`frame`)."""
    cold_after_functions: int = COLD_AFTER_FUNCTIONS
    """An operator whose last run was more functions ago is in neither cache (`cold_op`)."""
    kept_table_nbytes: int = KEPT_TABLE_NBYTES
    """The largest freed table in bytes whose pages the C library keeps; larger ones are `fresh_table_kib`."""
    memory_threads: float = MEMORY_THREADS
    """The number of threads that together take all of the bandwidth of a server's memory."""
    tensor_cache_nbytes: int = TENSOR_CACHE_NBYTES
    """The size up to which tensors of the CPU stay in a core's cache from operator to operator."""
    among: int = 1
    """The number of ranks whose slowest one this host stands for, since the others wait for it."""

    @property
    def slowest(self) -> float:
        """The time of the slowest of the ranks, over that of the mean one."""
        return 1 + self.spread.ranks * largest_of(self.among)

    def price_ns(self, kind: str) -> float:
        return self.slowest * self.cost_ns[kind]

    def one_of(self, ranks: int) -> HostModel:
        """The host of the rank that decides how long a job of so many ranks takes."""
        return replace(self, among=min(ranks, COUNTED))

    def counting_lines(self) -> list[str]:
        """The lines of the hook's device file that decide which kind each piece of work is."""
        return [
            f"hot_within_functions={self.hot_within_functions}",
            f"warm_within_functions={self.warm_within_functions}",
            f"cold_after_functions={self.cold_after_functions}",
            f"kept_table_nbytes={self.kept_table_nbytes}",
            f"tensor_cache_nbytes={self.tensor_cache_nbytes}",
            f"memory_threads={self.memory_threads:g}",
        ]

    def tensor_cost_lines(self) -> list[str]:
        """The lines with the costs of TENSOR_KINDS: an operator on tensors of the CPU counts as what takes longest."""
        return self._cost_lines(kind for kind in self.cost_ns if kind in TENSOR_KINDS)

    def _cost_lines(self, kinds: Iterable[str]) -> list[str]:
        return [f"host_ns.{kind}={device_file_value(kind, self.price_ns(kind))}" for kind in kinds]

    def device_file_lines(self) -> list[str]:
        """The lines of the hook's device file that describe the host."""
        return [
            *self.counting_lines(),
            f"host_scale={self.scale}",
            f"host_function_ns={self.host_function_ns}",
            f"queue_depth={self.queue_depth}",
            *self._cost_lines(self.cost_ns),
        ]


def device_file_value(kind: str, ns: float) -> int:
    return round(ns * 1000) if kind in FINE_KINDS else round(ns)


def load_host(name_or_path: str | os.PathLike[str]) -> HostModel:
    """Reads a shipped host model by name or a user's file by path. Raises UnknownProfile or ProfileError."""
    top = read("host", name_or_path)
    calls, work = top.table("call_ns"), top.table("work_ns")
    cost_ns: dict[str, float] = {}
    for kind in sorted(CALL_KINDS, key=LATER_KINDS.__contains__):
        unless_told = cost_ns[LATER_KINDS[kind]] if kind in LATER_KINDS else None
        cost_ns[kind] = calls.number(kind, unless_told, least=0.0, most=MOST_COST_NS)
    shipped = _shipped_costs() if SHIPPED_KINDS.difference(work.keys()) else {}
    for kind in sorted(WORK_KINDS, key=LATER_KINDS.__contains__):
        unless_told = cost_ns.get(LATER_KINDS[kind], 0.0) if kind in LATER_KINDS else shipped.get(kind)
        most = MOST_SIZE_NS if kind in NEW_SIZE_KINDS else MOST_COST_NS
        cost_ns[kind] = work.number(kind, unless_told, least=0.0, most=most)
    spread, measured = top.table("spread", optional=True), top.table("measured", optional=True)
    host = HostModel(
        name=top.path.stem,
        cost_ns={kind: cost_ns[kind] for kind in (*CALL_KINDS, *WORK_KINDS)},
        host_function_ns=top.integer("host_function_ns", HOST_FUNCTION_NS),
        queue_depth=top.integer("queue_depth", least=1),
        scale=top.number("scale", 1.0),
        spread=Spread(
            spread.number("fast", 1.0, most=1.0),
            spread.number("slow", 1.0, least=1.0),
            spread.number("error", 0.1),
            spread.number("ranks", RANKS, least=0.0, most=MOST_RANKS),
        ),
        measured={key: measured.text(key) for key in measured.keys()},  # noqa: SIM118
        path=top.path,
        hot_within_functions=top.integer("hot_within_functions", HOT_WITHIN_FUNCTIONS),
        warm_within_functions=top.integer("warm_within_functions", WARM_WITHIN_FUNCTIONS),
        cold_after_functions=top.integer("cold_after_functions", COLD_AFTER_FUNCTIONS),
        kept_table_nbytes=top.integer("kept_table_nbytes", KEPT_TABLE_NBYTES),
        memory_threads=top.number("memory_threads", MEMORY_THREADS, least=1),
        tensor_cache_nbytes=top.integer("tensor_cache_nbytes", TENSOR_CACHE_NBYTES),
    )
    top.end()
    return host


def _shipped_costs() -> dict[str, float]:
    table = read("host", SHIPPED).table("work_ns")
    return {kind: table.number(kind) for kind in SHIPPED_KINDS}


def host_toml(
    cost_ns: dict[str, float], spread: Spread, measured: dict[str, str], *, like: HostModel, comment: str
) -> str:
    """A host description as a file that `load_host` reads. Values that no program measures are copied from `like`."""

    def figure(ns: float) -> str:
        return f"{ns:.3g}" if ns < 100 else f"{round(ns, -len(str(int(ns))) + 3):_}"

    def table(kinds: tuple[str, ...]) -> list[str]:
        return [f"{kind} = {figure(cost_ns[kind])}" for kind in kinds]

    return "\n".join(
        [
            *(f"# {line}" for line in comment.splitlines()),
            f"queue_depth = {like.queue_depth}",
            f"host_function_ns = {like.host_function_ns}",
            *(line.replace("=", " = ") for line in like.counting_lines()),
            "",
            "# Nanoseconds; docs/host.md says what each is.",
            "[call_ns]",
            *table(CALL_KINDS),
            "",
            "[work_ns]",
            *table(WORK_KINDS),
            "",
            "[spread]",
            f"fast = {spread.fast:.2f}",
            f"slow = {spread.slow:.2f}",
            f"error = {spread.error:.2f}",
            f"ranks = {spread.ranks:.2f}",
            "",
            "[measured]",
            *(f'{key} = "{value}"' for key, value in measured.items()),
            "",
        ]
    )
