"""The description of a job: a file that the launcher writes, and names in the first message on the control socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .folding import Folding


@dataclass(frozen=True, slots=True)
class Job:
    """One run, as its processes need to know it. Paths are absolute."""

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
    servers: tuple[int, ...]
    """The number of GPUs of each server, in order."""
    folding: Mapping[str, Any] | None
    """The ranks that have processes, see ``Folding.to_json``; None: all ranks."""
    simulated: tuple[int, ...] | None
    """The ranks that a folded run simulates, if others share their timelines. Process groups without any of them are
    not made. None: all ranks.
    """
    cpus: int
    """The number of logical CPUs of each described server."""
    loaders: str
    """The policy of `--loaders`, see loading_policy."""
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
    hosted: tuple[int, ...]
    """Numbers of the servers that this forker starts; others are on other machines."""
    script: str
    """A path, or a module's name if `module` is true."""
    module: bool
    arguments: tuple[str, ...]
    launcher: bool
    """`script` and `arguments` are a command that starts the ranks of a server."""
    preload: tuple[str, ...]
    auto_preload: bool
    """True if the installed packages that the script will import are imported once for all ranks."""
    preload_cache: str
    """Folder for what earlier runs have shown about these packages; "": there is none."""
    master_addr: str
    master_port: int
    epoch_s: int
    """The value of `time.time()` at virtual time 0."""
    share_weights: bool
    """True if ranks that initialise equal CPU tensors share their memory."""
    isolation: str
    """The isolation that the user asks for: one of `isolation.LEVELS`. The forker replaces `auto` by what is
    possible.
    """
    network: str
    """One of `isolation.NETWORKS`."""
    writable: tuple[str, ...]
    """Paths that isolated servers may write although they are below a folder that they only read."""
    float_limit_count: int
    """The most elements of a floating-point tensor that is computed."""
    routing: str
    """The policy of `--moe`, see routing_policy."""
    data_shapes: str
    """The policy of `--data-shapes`, see shape_policy."""
    steps: int
    """The number of steps after which a rank's script is held; 0: no limit."""
    values: tuple[str, ...]
    """The values that `--value` states, see stated_values. Each names a file."""
    loop_turns: int
    """The number of turns after which a loop that waits for a value that nobody computed ends the run; 0: no number
    does.
    """
    grace_s: float
    """Time between SIGTERM and SIGKILL when ranks are ended."""

    @property
    def world_size(self) -> int:
        return sum(self.servers)

    def ranks_of(self, server: int) -> list[int]:
        """Returns the server's ranks that have processes."""
        first = self.first_rank(server)
        ranks = range(first, first + self.servers[server])
        if self.folding is None:
            return list(ranks)
        return [rank for rank in Folding.from_json(self.folding).live if rank in ranks]

    def first_rank(self, server: int) -> int:
        return sum(self.servers[:server])

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
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank's place in the job."""

    rank: int
    local_rank: int
    server: int


def torchrun_environment(job: Job, seat: Seat) -> dict[str, str]:
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
