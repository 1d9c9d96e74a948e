"""The options of a run, resolved and checked as a whole before anything starts."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import secrets
import shutil
import socket
import sys
import time
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from emu.contract import isolation, routing_policy, stated_values
from emu.contract.routing_policy import RoutingPolicy
from emu.contract.stated_values import StatedValue
from phantora_async import compile_cache, kernel_times, run_dir, trace_request
from phantora_async.errors import EnvironmentUnusable, UsageError
from phantora_async.kernel_times import KernelTimes
from phantora_async.options import PathText, RunOptions
from phantora_async.remote import wire
from phantora_async.run_dir import TOKEN, RunDir
from phantora_async.trace_request import TraceRequest
from phantora_async.virtual_time.speculation_policy import NEVER
from phantora_async.wording import UNITS_NS, short
from profiles import Cluster, Gpu, HostModel, ProfileError, load_cluster, load_gpu, load_host

if TYPE_CHECKING:
    from netsim import NcclSettings

DATA_LIMIT_NBYTES = 1 << 20
"""Data of copies, collectives and control tensors that are larger is neither moved nor computed."""
FLOAT_LIMIT_COUNT = 4096
"""The same for floating-point control tensors and collectives (per rank) of more elements."""
MOST_RANKS = 16_384
MONITOR_INTERVAL = ("--monitor-interval", "--monitor_interval")
MONITOR_INTERVAL_S = 0.1
"""torchrun's default."""
MOST_STEPS = 1_000_000_000
MOST_UNTIL_NS = 1 << 61
"""Some 70 years."""
MOST_PORT = 65_535
RUNS = Path("phantora-runs")
"""Where run directories are made by default."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Servers run on machines that join."""

    host: str
    port: int
    token: str
    token_file: Path | None
    """Where others find the token; None: in the environment."""
    machines: int


@dataclass(frozen=True, slots=True)
class Ui:
    """Where the live page is served."""

    listening: socket.socket
    token: str


@dataclass(frozen=True, slots=True)
class Config:
    """One run. Paths are absolute, defaults are filled in."""

    options: RunOptions
    """What the user asked for."""
    script: str
    """A path, or a module's name if ``module``."""
    module: bool
    arguments: tuple[str, ...]
    launcher: bool
    """``script`` and ``arguments`` are a command that starts the ranks of a server."""
    servers: tuple[int, ...]
    """GPUs in use on each server."""
    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    steps: int
    """The run ends when ranks have done so many; 0: when the script does."""
    until_ns: int
    """The run ends at this instant of virtual time; 0: when the script does."""
    kernel_times: tuple[KernelTimes, ...]
    """Measured ones; the first that knows a kernel is asked."""
    measure: bool
    """Measure what they lack on this machine's GPU."""
    nccl: NcclSettings
    """From NCCL's environment variables."""
    remarks: tuple[str, ...]
    """What the user should know before the run starts."""
    clock: str
    speculation: str
    share_weights: bool
    isolation: str
    routing: RoutingPolicy
    values: tuple[StatedValue, ...]
    """What the script reads at lines where nobody computed what it reads."""
    network: str
    python: Path
    preload: tuple[str, ...]
    auto_preload: bool
    compile_cache: Path | None
    """Where ranks keep what they compile; None: in a folder that ends with the run."""
    claimed: RunDir
    report: Path
    shown_ranks: frozenset[int]
    """Ranks whose output is shown on the terminal."""
    progress: bool
    stall_timeout_s: float
    """0: never."""
    listen: Listen | None
    """None: all servers are on this machine."""
    loop_turns: int
    """Of a loop that waits for a value that nobody computed; 0: any number."""
    trace: TraceRequest | None = None
    ui: Ui | None = None
    """None: no live page."""
    reasons: bool = False
    """The report tells why a step takes as long as it does."""

    @property
    def run_dir(self) -> Path:
        return self.claimed.path

    def log(self, rank: int) -> Path:
        return self.run_dir / f"rank{rank}.log"

    @property
    def restart_delay_ns(self) -> int:
        """How long a launcher takes to start ranks again after one has failed: torchrun's agent looks at its ranks
        once in every monitor interval. What else takes time on a cluster (ending the other ranks, starting Python)
        takes no virtual time, as at the run's start.
        """
        words = [part for word in self.arguments for part in word.split("=", 1)]
        given = [value for name, value in pairwise(words) if name in MONITOR_INTERVAL]
        for text in (*given, os.environ.get("PET_MONITOR_INTERVAL", "")):
            with contextlib.suppress(ValueError):
                return round(float(text) * 1e9)
        return round(MONITOR_INTERVAL_S * 1e9)

    def device_file_lines(self) -> list[str]:
        """The hook's device file: the GPU, the host model and this run's limits."""
        return [
            *self.gpu.device_file_lines(),
            f"device_count={max(self.servers)}",
            f"multicast={int(self.cluster.multicast)}",
            f"data_limit_nbytes={DATA_LIMIT_NBYTES}",
            f"float_limit_count={FLOAT_LIMIT_COUNT}",
            f"host_mode={self.host_mode}",
            *(self.trace.device_file_lines() if self.trace else ()),
            f"segment_contents={int(self.reasons)}",
            *self.host.device_file_lines(),
        ]


def _network(cluster: Cluster, servers: int) -> tuple[NcclSettings, tuple[str, ...]]:
    """NCCL's settings from the environment, and remarks on them.

    Raises UsageError if the cluster's network cannot be simulated, or if NCCL would refuse a variable.
    """
    import netsim

    try:
        nics = netsim.build(cluster.network).server.nics
        netsim.Network(netsim.build(cluster.network, cluster.network_servers(servers)))
    except netsim.NetsimError as error:
        raise UsageError(f"cluster {cluster.name}: {error}", "docs/netsim.md describes the [network] table") from None
    try:
        found = netsim.collectives.settings.read(os.environ, nics)
    except netsim.SpecError as error:
        raise UsageError(str(error), "correct this environment variable or unset it") from None
    return found.settings, tuple(f"NCCL's environment: {remark}" for remark in found.remarks)


def resolve(options: RunOptions) -> Config:
    """The run that these options describe; its run directory has been created. Raises UsageError."""
    given = options.checked()
    if not given.script:
        raise UsageError(
            "no script given", "phantora-async run -n 8 train.py, or for a module: phantora-async run -n 8 -m MODULE"
        )
    try:
        cluster = load_cluster(given.cluster)
        gpu = replace(load_gpu(given.gpu or cluster.gpu), peer_gb_per_s=cluster.peer_gb_per_s)
        host = load_host(cluster.host)
    except ProfileError as error:
        raise UsageError(
            str(error),
            "known names: phantora-async profiles list; to make your own: phantora-async profiles copy NAME",
        ) from None
    if given.clock == "optimistic" and given.speculation == NEVER:
        raise UsageError(
            "--clock optimistic needs speculation; --speculation never disables it", "leave out one of the two options"
        )
    if not given.stall_timeout >= 0:
        raise UsageError(f"--stall-timeout {given.stall_timeout:g}: expected seconds, or 0 for no limit")
    if not 0 <= given.loop_turns < 2**62:
        raise UsageError(f"--loop-turns {given.loop_turns}: expected a number of turns, or 0 for no limit")
    servers = _servers(given, cluster)
    if given.isolation == "none" and given.network == "private":
        raise UsageError("--network private needs isolated servers", "leave out --isolation none")
    if given.listen is not None:
        if given.isolation == "full" or given.network == "private":
            raise UsageError(
                "--listen: isolated servers of several machines cannot reach each other", "--isolation none"
            )
    elif given.machines != 1 or given.token_file is not None:
        raise UsageError("--machines and --token-file need --listen")
    level = "none" if given.listen is not None else given.isolation
    if level != "none" and len(servers) > isolation.MAX_SERVERS:
        raise UsageError(f"{len(servers)} servers: at most {isolation.MAX_SERVERS} can be isolated", "--isolation none")
    nccl, remarks = _network(cluster, len(servers))
    if given.launcher and given.module:
        raise UsageError("--launcher and -m exclude each other", "--launcher -- python -m MODULE")
    script = os.fspath(given.script)
    if not given.launcher:
        script = checked_module(script) if given.module else checked_script(script)
    shown = _shown_ranks(given.show_ranks, sum(servers))
    trace = trace_request.resolve(_text(given.trace), given.trace_ranks, given.trace_steps, sum(servers))
    routing = _routing(given.moe)
    values = tuple(_value(text, "" if given.module or given.launcher else script) for text in given.value)
    python = find_python(_text(given.python))
    steps, until_ns = _steps(given.steps), _until_ns(given.until)
    cache, cache_remarks = _compile_cache(_text(given.compile_cache))
    ui = _ui(given.ui)
    claimed = _run_dir(_text(given.run_dir), script, sum(servers))
    if given.launcher:
        _link_logs(claimed.path, servers)
    return Config(
        options=given,
        script=script,
        module=given.module,
        arguments=tuple(given.arguments),
        launcher=given.launcher,
        servers=servers,
        gpu=gpu,
        cluster=cluster,
        host=host,
        host_mode=given.host,
        kernel_times=kernel_times.find(given.kernel_times, gpu),
        measure=given.measure,
        steps=steps,
        until_ns=until_ns,
        nccl=nccl,
        remarks=remarks + cache_remarks,
        clock=given.clock,
        speculation=given.speculation,
        share_weights=given.shared_weights,
        isolation=level,
        routing=routing,
        values=values,
        network=given.network or ("host" if level == "none" else "private"),
        python=python,
        preload=tuple(given.preload),
        auto_preload=given.auto_preload,
        compile_cache=cache,
        claimed=claimed,
        report=_report(_text(given.report), claimed.path),
        shown_ranks=shown,
        progress=given.progress,
        stall_timeout_s=given.stall_timeout,
        listen=_listen(given, len(servers), claimed.path),
        loop_turns=given.loop_turns,
        trace=trace,
        ui=ui,
        reasons=given.reasons,
    )


def _text(path: PathText | None) -> str | None:
    return None if path is None else os.fspath(path)


def _listen(given: RunOptions, servers: int, run_dir: Path) -> Listen | None:
    if given.listen is None:
        return None
    host, port = wire.address(given.listen)
    if not 1 <= given.machines <= servers:
        raise UsageError(f"--machines {given.machines}: this run has {servers} servers, each is on one machine")
    file = Path(given.token_file) if given.token_file is not None else None
    token = wire.read_token(file)
    if not token:
        token, file = secrets.token_hex(32), run_dir / TOKEN
        file.touch(mode=0o600)
        file.write_text(f"{token}\n")
    return Listen(host, port, token, file, given.machines)


def _ui(port: int | None) -> Ui | None:
    """The port is taken now, so that no other run gets it. Raises UsageError."""
    if port is None:
        return None
    if importlib.util.find_spec("aiohttp") is None:
        raise EnvironmentUnusable("--ui: the package aiohttp is missing", "pip install aiohttp")
    if not 0 <= port <= MOST_PORT:
        raise UsageError(f"--ui {port}: expected a port from 0 to {MOST_PORT}; 0 is any free one")
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsageError(f"--ui {port}: {why}", "choose another port, or any free one: --ui") from None
    return Ui(listening, secrets.token_urlsafe(24))


def _steps(given: int | None) -> int:
    if given is not None and not 1 <= given <= MOST_STEPS:
        raise UsageError(f"--steps {given}: expected 1 to {MOST_STEPS:,}")
    return given or 0


def _until_ns(text: str | None) -> int:
    if text is None:
        return 0
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|us|s|m|h)", text)
    for_ns = round(float(found[1]) * UNITS_NS[found[2]]) if found else 0
    if not 0 < for_ns <= MOST_UNTIL_NS:
        raise UsageError(f"--until {text}: expected a time greater than 0, such as 500ms, 10s, 2m or 1h")
    return for_ns


def _routing(text: str) -> RoutingPolicy:
    """A trace's path becomes absolute: the ranks' forker reads it again."""
    kind, _, rest = text.partition(":")
    if kind == routing_policy.TRACE and rest:
        text = f"{kind}:{Path(rest).absolute()}"
    try:
        return routing_policy.parse(text)
    except OSError as error:
        raise UsageError(f"--moe {text}: {error.strerror or error}", "name a file that can be read") from None
    except ValueError as error:
        raise UsageError(f"--moe {text}: {error}", f"forms: --moe {routing_policy.FORMS}") from None


def _value(text: str, script: str) -> StatedValue:
    """`script`: the file that a line without a file belongs to; "" if there is none."""
    try:
        value = stated_values.parse(text)
    except stated_values.ValueProblem as problem:
        raise UsageError(f"--value {text}: {problem}", f"forms: --value {stated_values.FORMS}") from None
    if not value.file and not script:
        raise UsageError(f"--value {text}: which file?", "name it: --value FILE:LINE=EXPRESSION")
    value = value.for_script(str(Path(script).absolute()))
    for path in (Path(value.file), Path(script).parent / value.file):
        if path.is_file():
            lines = path.read_bytes().count(b"\n") + 1
            if value.line > lines:
                raise UsageError(f"--value {text}: {value.file} has {lines} lines")
            break
    return value


def _servers(given: RunOptions, cluster: Cluster) -> tuple[int, ...]:
    """GPUs in use on each server. -n 12 with 8 GPUs per server: one server of 8 and one of 4."""
    counts = (("-n", given.world_size), ("--nnodes", given.nnodes), ("--nproc-per-node", given.nproc_per_node))
    for option, value in counts:
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: must be at least 1")
    if given.world_size is not None and given.nnodes is not None:
        raise UsageError("-n and --nnodes exclude each other", "-n WORLD, or --nnodes N --nproc-per-node GPUS")
    per_server: int = given.nproc_per_node or cluster.gpus_per_server
    if max(given.world_size or 0, (given.nnodes or 0) * per_server) > MOST_RANKS:
        raise UsageError(f"too many ranks: at most {MOST_RANKS:,}, each of which is a process of this machine")
    if per_server > cluster.gpus_per_server:
        raise UsageError(
            f"--nproc-per-node {per_server}: a server of {cluster.name} has {cluster.gpus_per_server} GPUs",
            f"use another cluster, or edit a copy: phantora-async profiles copy {cluster.name}",
        )
    if given.nnodes is not None:
        return (per_server,) * int(given.nnodes)
    world: int = given.world_size if given.world_size is not None else given.nproc_per_node or 1
    full, rest = divmod(world, per_server)
    return (per_server,) * full + ((rest,) if rest else ())


def _compile_cache(given: str | None) -> tuple[Path | None, tuple[str, ...]]:
    """The folder, if it can be used, and a remark if it cannot."""
    if given == compile_cache.OFF:
        return None, ()
    folder = Path(given).expanduser().absolute() if given else compile_cache.default_folder()
    reason = compile_cache.why_unusable(folder)
    if not reason:
        return folder, ()
    return None, (
        f"torch.compile starts from nothing in this run: its cache {short(folder)} cannot be used ({reason}); "
        "choose another folder with --compile-cache DIR",
    )


def checked_script(text: str) -> str:
    """Raises UsageError if the file cannot be run."""
    path = Path(text)
    if not path.exists():
        raise UsageError(
            f"script not found: {text}",
            f"if it is a module: phantora-async run -m {text}" if path.suffix != ".py" else "",
        )
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise UsageError(f"script {text} is a directory without __main__.py")
    if not os.access(path, os.R_OK):
        raise UsageError(f"script {text} cannot be read")
    return text


def checked_module(text: str) -> str:
    """Raises UsageError if this is no module's name."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise UsageError(f"-m {text}: not a module name", "to run a file, leave out -m")
    return text


def _shown_ranks(text: str, world_size: int) -> frozenset[int]:
    if text in ("all", "none"):
        return frozenset(range(world_size)) if text == "all" else frozenset()
    try:
        ranks = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--show-ranks {text}: expected ranks such as 0,3, or all, or none") from None
    if not all(0 <= rank < world_size for rank in ranks):
        raise UsageError(f"--show-ranks {text}: this run has ranks 0 to {world_size - 1}")
    return ranks


def find_python(text: str | None) -> Path:
    """An absolute path, links kept: a virtual environment's interpreter is a link that must not be resolved."""
    if text is None:
        if importlib.util.find_spec("torch") is None:
            raise UsageError(
                "PyTorch is not installed in this environment",
                "pip install torch (the CUDA build; no GPU needed), or name the interpreter of another environment: "
                "--python PATH",
            )
        return Path(sys.executable)
    found = shutil.which(text)
    if found is None:
        raise UsageError(f"--python {text}: interpreter not found")
    return Path(found).absolute()


def _run_dir(text: str | None, script: str, ranks: int) -> RunDir:
    if text is not None:
        return run_dir.claim(Path(text).absolute(), ranks)
    stem = re.sub(r"[^\w.-]", "_", Path(script).stem)[:40] or "run"
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{stem}"
    folders = ((RUNS / f"{name}{f'-{end}' if end else ''}").absolute() for end in count())
    return run_dir.claim(next(folder for folder in folders if not folder.exists()), ranks)


def _link_logs(folder: Path, servers: tuple[int, ...]) -> None:
    """Ranks that a launcher starts write to their server's log."""
    first = 0
    for server, gpus in enumerate(servers):
        for rank in range(first, first + gpus):
            (folder / f"rank{rank}.log").symlink_to(f"server{server}.log")
        first += gpus


def _report(text: str | None, folder: Path) -> Path:
    path = Path(text).absolute() if text is not None else folder / "report.json"
    if not path.parent.is_dir() or path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--report {path}: this file cannot be written")
    return path
