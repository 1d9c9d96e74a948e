"""The described host: what a rank's work takes of it, as a cost for each kind of work that the hook library counts.

A thread's host time is the sum, over the kinds, of count times cost: API calls, operators, autograd nodes, Python
functions. docs/host.md says what the kinds are, how costs are measured and how far real jobs are from them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from formats.c_lists import read_list
from profiles.descriptions.catalog import read
from profiles.descriptions.slowest import COUNTED, largest_of

_KINDS = read_list(
    Path(__file__).resolve().parents[1] / "emu" / "contract" / "definitions" / "host_kinds.def", "CALL", "WORK", "FINE"
)
"""Read as a file, since profiles imports no part of emu. Both packages are installed side by side."""
CALL_KINDS = tuple(entry.arguments[1] for entry in _KINDS if entry.macro == "CALL")
"""API calls: what the driver and NVIDIA's libraries take."""
WORK_KINDS = tuple(entry.arguments[1] for entry in _KINDS if entry.macro != "CALL")
"""The program's own work between calls."""
FINE_KINDS = frozenset(entry.arguments[1] for entry in _KINDS if entry.macro == "FINE")
"""Those whose cost the hook library has in picoseconds."""
LATER_KINDS = {"made_node": "", "freed_block": "", "value_op": "op"}
"""Kinds that older descriptions do not have, and as what such work was counted then; "": other kinds' costs contain
what it takes."""
HOST_FUNCTION_NS = 27_000
"""On an H100 with driver 580, each of 20 empty host functions between empty kernels; a single one took up to 190 us."""
HOT_WITHIN_FUNCTIONS, WARM_WITHIN_FUNCTIONS, COLD_AFTER_FUNCTIONS = 256, 4096, 1024
"""Of hosts like `xeon-h200`, with 2 MiB of L2 cache a core. laboratory/notes/host-model.md has training steps under
both."""
KEPT_TABLE_NBYTES = 2 << 20
"""In traces of FSDP on such hosts tables of 0.4 to 1.7 MiB took 0.35 us a KiB, those of 4 to 8 MiB 0.7 to 1.4."""
MOST_COST_NS = 3e6
"""Of one call or operator. In picoseconds, times what the slowest rank takes, it has 32 bits in the hook library."""
RANKS, MOST_RANKS = 0.11, 0.25
"""How ranks of one machine differ: laboratory/notes/host-model.md."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How hosts of this kind differ, and how far the model is from a host that it was measured on."""

    fast: float
    """Time that the fastest such host seen takes, over that of the description; at most 1."""
    slow: float
    """Time that the slowest such host seen takes, over that of the description; at least 1."""
    error: float
    """Standard deviation of a job's host time around the model's, on the measured host itself, relative."""
    ranks: float = RANKS
    """Standard deviation of what processes of one machine take at one time for the same work, relative."""


@dataclass(frozen=True, slots=True)
class HostModel:
    name: str
    cost_ns: dict[str, float]
    """By kind, CALL_KINDS and WORK_KINDS."""
    host_function_ns: int
    """What a host function (cudaLaunchHostFunc) takes of its stream besides its own time, which is not modelled."""
    queue_depth: int
    """Launches that the host may be ahead of the GPU before a launch blocks."""
    scale: float
    """Mode `measured`: real host's CPU time over this machine's, for the same work."""
    spread: Spread
    measured: dict[str, str]
    """Where the figures come from: processor, kernel, Python, torch, date and the like."""
    path: Path
    hot_within_functions: int = HOT_WITHIN_FUNCTIONS
    """Python functions of a thread: a function that ran so few of them before is in the first caches (`hot_frame`)."""
    warm_within_functions: int = WARM_WITHIN_FUNCTIONS
    """One that ran so few before is in the second-level cache (`warm_frame`), an older one is not (`frame`)."""
    cold_after_functions: int = COLD_AFTER_FUNCTIONS
    """An operator that ran longer ago is not (`cold_op`)."""
    kept_table_nbytes: int = KEPT_TABLE_NBYTES
    """The C library keeps the pages of freed tables up to this size; larger ones are `fresh_table_kib`."""
    among: int = 1
    """It stands for the slowest of so many ranks, since the others wait for it."""

    @property
    def slowest(self) -> float:
        """What the slowest of the ranks takes, over the mean one."""
        return 1 + self.spread.ranks * largest_of(self.among)

    def price_ns(self, kind: str) -> float:
        return self.slowest * self.cost_ns[kind]

    def one_of(self, ranks: int) -> HostModel:
        """The host of the rank that decides how long a job of so many takes."""
        return replace(self, among=min(ranks, COUNTED))

    def counting_lines(self) -> list[str]:
        """For the hook's device file: what decides of which kind work is."""
        return [
            f"hot_within_functions={self.hot_within_functions}",
            f"warm_within_functions={self.warm_within_functions}",
            f"cold_after_functions={self.cold_after_functions}",
            f"kept_table_nbytes={self.kept_table_nbytes}",
        ]

    def device_file_lines(self) -> list[str]:
        """For the hook's device file."""
        return [
            *self.counting_lines(),
            f"host_scale={self.scale}",
            f"host_function_ns={self.host_function_ns}",
            f"queue_depth={self.queue_depth}",
            *(f"host_ns.{kind}={device_file_value(kind, self.price_ns(kind))}" for kind in self.cost_ns),
        ]


def device_file_value(kind: str, ns: float) -> int:
    return round(ns * 1000) if kind in FINE_KINDS else round(ns)


def load_host(name_or_path: str | os.PathLike[str]) -> HostModel:
    """Reads a shipped host model by name or a user's file by path. Raises UnknownProfile or ProfileError."""
    top = read("host", name_or_path)
    calls, work = top.table("call_ns"), top.table("work_ns")
    cost_ns = {kind: calls.number(kind, least=0.0, most=MOST_COST_NS) for kind in CALL_KINDS}
    for kind in sorted(WORK_KINDS, key=LATER_KINDS.__contains__):
        unless_told = cost_ns.get(LATER_KINDS[kind], 0.0) if kind in LATER_KINDS else None
        cost_ns[kind] = work.number(kind, unless_told, least=0.0, most=MOST_COST_NS)
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
    )
    top.end()
    return host


def host_toml(
    cost_ns: dict[str, float], spread: Spread, measured: dict[str, str], *, like: HostModel, comment: str
) -> str:
    """A host description as a file that `load_host` reads. What no program measures is as of `like`."""

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
