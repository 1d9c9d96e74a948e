"""The views of a run's options for its parts, and the description of a job: a file that the launcher writes, and names
in the first message on the control socket.

Each option that a part needs is a field of one view, as it was resolved. The views of the coordinator are in
``phantora_async.run_spec``; ``phantora_async.config.Config`` has the fields of all views.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from . import stated_values
from .folding import Folding
from .policies.loading_policy import FREE
from .policies.routing_policy import CHANGING
from .policies.shape_policy import MOST
from .stated_values import StatedValue

# Views have no slots: a class with slots could not have two of them as its bases.


@dataclass(frozen=True, kw_only=True)
class SharedView:
    """The options that every part of a run needs, and a replay of it."""

    servers: tuple[int, ...]
    """The number of GPUs in use on each server; the first server has the first ranks."""
    folding: Folding | None = None
    """Says which ranks have processes; None: all of them do."""
    steps: int = 0
    """The steps of every rank after which the run ends; 0: the run ends with the script."""
    routing: str = CHANGING
    """The policy of `--moe`, see routing_policy."""
    data_shapes: str = MOST
    """The policy of `--data-shapes`, see shape_policy."""
    lengths: str = ""
    """The policy of `--lengths`, see length_policy; "": the program decides."""
    values: tuple[StatedValue, ...] = ()
    """The values that `--value` states: what the script reads at lines where no value is computed."""

    @property
    def world_size(self) -> int:
        return sum(self.servers)

    @property
    def processes(self) -> int:
        """The number of ranks that have processes."""
        return self.world_size if self.folding is None else len(self.folding.live)

    @property
    def server_of(self) -> list[int]:
        """The server of each rank, by rank."""
        return [server for server, gpus in enumerate(self.servers) for _ in range(gpus)]


@dataclass(frozen=True, kw_only=True)
class LiveView(SharedView):
    """The options that every part of a run needs while ranks have processes."""

    launcher: bool = False
    """True if the user's launcher starts the ranks of a server, and may start them again when one fails."""
    loaders: str = FREE
    """The policy of `--loaders`, see loading_policy: the time that loading data takes."""
    loop_turns: int = 0
    """The number of turns after which a loop that waits for a value that nobody computed ends the run; 0: no number
    does.
    """


@dataclass(frozen=True, kw_only=True)
class RankView(LiveView):
    """The options that a rank needs, and the forker, which prepares an interpreter for all ranks."""

    script: str
    """A path, or a module's name if `module` is true. With `launcher`, `script` and `arguments` are a command."""
    module: bool
    arguments: tuple[str, ...]
    preload: tuple[str, ...]
    auto_preload: bool
    """True if the installed packages that the script will import are imported once for all ranks."""
    share_weights: bool
    """True if ranks that initialise equal CPU tensors share their memory."""


@dataclass(frozen=True, kw_only=True)
class ServerView(LiveView):
    """The options that an emulated server needs."""

    isolation: str
    """The isolation that the user asks for: one of `isolation.LEVELS`. The forker replaces `auto` by what is
    possible.
    """
    network: str
    """One of `isolation.NETWORKS`."""
    writable: tuple[str, ...]
    """Paths that isolated servers may write although they are below a folder that they only read."""


@dataclass(frozen=True, kw_only=True)
class RunPlace(LiveView):
    """The surroundings of a run: its folders and files, its servers and their address. Paths are absolute."""

    run_id: str
    run_dir: str
    runtime_dir: str
    """Folder of sockets, removed after the run."""
    hook: str
    """The path of the hook library."""
    device_file: str
    """File of key=value lines that describe the GPU and the host to the hook library."""
    socket: str
    """The socket where the coordinator listens."""
    cost_table: str
    hosted: tuple[int, ...]
    """Numbers of the servers that this forker starts; others are on other machines."""
    preload_cache: str
    """Folder for what earlier runs have shown about these packages; "": there is none."""
    master_addr: str
    master_port: int

    def ranks_of(self, server: int) -> list[int]:
        """Returns the server's ranks that have processes."""
        first = self.first_rank(server)
        ranks = range(first, first + self.servers[server])
        if self.folding is None:
            return list(ranks)
        return [rank for rank in self.folding.live if rank in ranks]

    def first_rank(self, server: int) -> int:
        return sum(self.servers[:server])


@dataclass(frozen=True, kw_only=True)
class Job(RankView, ServerView, RunPlace):
    """One run, as its processes need to know it."""

    simulated: tuple[int, ...] | None
    """The ranks that a folded run simulates, if others share their timelines. Process groups without any of them are
    not made. None: all ranks.
    """
    cpus: int
    """The number of logical CPUs of each described server."""
    tensor_threads: int
    """The number of threads on which PyTorch's operators on tensors of the CPU run there, unless the script says."""
    slow_loaders: tuple[tuple[int, int, int], ...]
    """For each fault of a data loader, see loading_policy: the rank, the delay in nanoseconds and how many batches
    apart it comes.
    """
    dead_gpus: tuple[tuple[int, int, int], ...]
    """For each GPU that dies: its rank, and the instants of virtual time from which and until which it cannot be
    used.
    """
    mortal: bool
    """True if something dies during the run: where ranks wait for their GPUs, they go on when virtual time is there,
    and timeouts run out.
    """
    host_scale: float
    """CPU time of the described host for what takes one second here."""
    epoch_s: int
    """The value of `time.time()` at virtual time 0."""
    float_limit_count: int
    """The most elements of a floating-point tensor that is computed."""
    inputs: str
    """The file in which the run's processes note on which files it depends; "": nothing is noted."""
    grace_s: float
    """Time between SIGTERM and SIGKILL when ranks are ended."""

    @classmethod
    def read(cls, file: str) -> Job:
        """Reads the JSON file that the launcher has written."""
        with open(file, encoding="utf-8") as text:
            return cls.parse(json.load(text))

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Job:
        """Makes a job of a message's fields. Raises ValueError if they are not those of this version."""
        expected, given = {field.name for field in fields(cls)}, set(message)
        if expected != given:
            raise ValueError(f"the launcher and the forker disagree on {sorted(expected ^ given)}")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in message.items()}
        values["values"] = tuple(map(stated_values.parse, message["values"]))
        if message["folding"] is not None:
            values["folding"] = Folding.from_json(message["folding"])
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a message has them, see ``parse``."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {
            "values": [value.resolved for value in self.values],
            "folding": self.folding.to_json() if self.folding is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank's place in the job."""

    rank: int
    local_rank: int
    server: int


def torchrun_environment(job: RunPlace, seat: Seat) -> dict[str, str]:
    """Returns the environment variables that torchrun's elastic agent sets for a worker (one role, static rendezvous,
    rank 0 hosts the store).
    """
    world_size, rank = str(job.world_size), str(seat.rank)
    return {
        "RANK": rank,
        "LOCAL_RANK": str(seat.local_rank),
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": str(job.servers[seat.server]),
        "GROUP_RANK": str(seat.server),
        "GROUP_WORLD_SIZE": str(len(job.servers)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_ADDR": job.master_addr,
        "MASTER_PORT": str(job.master_port),
        "TORCHELASTIC_RUN_ID": job.run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": f"{job.run_dir}/rank{rank}.error.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
