"""One run as its options describe it: the result of ``resolve``."""

from __future__ import annotations

import socket
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from emu.contract.job import RankView, ServerView, SharedView
from phantora_async.budget import Limits
from phantora_async.options import RunOptions
from phantora_async.run_dir import RunDir
from phantora_async.run_spec import CoordinatorView

DATA_LIMIT_NBYTES = 1 << 20
"""Larger data of copies, collectives and control tensors is neither moved nor computed."""
FLOAT_LIMIT_COUNT = 4096
"""Floating-point control tensors and collectives (per rank) of more elements are not computed either."""
View = TypeVar("View", bound=SharedView)


@dataclass(frozen=True, slots=True)
class Ray:
    """A Ray cluster whose actors are the machines of the run."""

    cluster: str
    """``ray://HOST:PORT``; "" for the cluster that this machine belongs to."""
    environment: dict[str, Any]
    """Ray's runtime environment for the actors."""


@dataclass(frozen=True, slots=True)
class Listen:
    """The address at which machines join the run to run its servers."""

    host: str
    port: int
    token: str
    token_file: Path | None
    """The file in which the machines find the token; None: they find it in the environment."""
    machines: int | None
    """The number of machines that join; None: as many as there is room for."""
    ray: Ray | None
    """The Ray cluster whose actors join; None: machines join by themselves."""


@dataclass(frozen=True, slots=True)
class Ui:
    """The address of the live page."""

    listening: socket.socket
    token: str


@dataclass(frozen=True, kw_only=True)
class Config(CoordinatorView, RankView, ServerView):
    """One run, resolved: paths are absolute and defaults are filled in. It has the options that parts of the run need,
    each in the view of its part, and beside these what the command itself needs.
    """

    options: RunOptions
    """The options as the user gave them."""
    all_steps: int
    """The steps of the run together with those that are played from the recording of the others; 0: none are played."""
    remarks: tuple[str, ...]
    """Remarks that the user reads before the run starts."""
    python: Path
    warm: bool
    """True if the interpreter of the ranks is kept for later runs."""
    known: bool
    """True if the run notes on what it depends, so that its result can be kept."""
    compile_cache: Path | None
    """The folder in which ranks keep what they compile; None: a folder that is removed when the run ends."""
    claimed: RunDir
    report: Path
    shown_ranks: frozenset[int]
    """The ranks whose output is shown on the terminal."""
    listen: Listen | None
    """The address at which machines join; None: all servers are on this machine."""
    ui: Ui | None
    """The address of the live page; None: there is none."""
    budget: Limits
    """The limits that the report is compared with."""

    def view(self, kind: type[View], **more: Any) -> View:
        """A view of the run: these options, and `more`, which only the view has or which it has otherwise."""
        known = {one.name for one in fields(self)}
        return kind(**{one.name: getattr(self, one.name) for one in fields(kind) if one.name in known} | more)

    @property
    def witnessed(self) -> bool:
        """True if the content of segments is compared between ranks."""
        return self.folding is not None and bool(self.folding.apart - {0})

    @property
    def run_dir(self) -> Path:
        return self.claimed.path

    def log(self, rank: int) -> Path:
        return self.run_dir / f"rank{rank}.log"

    def device_file_lines(self) -> list[str]:
        """The lines of the hook's device file: the GPU, the host model and this run's limits."""
        return [
            *self.gpu.device_file_lines(),
            f"device_count={max(self.servers)}",
            f"multicast={int(self.cluster.multicast)}",
            f"nvlink_count={self.gpu.nvlinks if self.cluster.nvswitch else 0}",
            f"data_limit_nbytes={DATA_LIMIT_NBYTES}",
            f"float_limit_count={FLOAT_LIMIT_COUNT}",
            f"host_mode={self.host_mode}",
            *(self.trace.device_file_lines() if self.trace else ()),
            f"segment_contents={int(self.reasons or self.witnessed)}",
            f"history={int(self.record is not None)}",
            *self.host.device_file_lines(),
            f"server_cores={self.cluster.cores_per_server}",
            f"server_ranks={max(self.servers)}",
        ]
