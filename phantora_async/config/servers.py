"""The servers of a run: GPUs of each, how they are isolated, the machines that they are on, their network."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from emu.contract import isolation
from formats.files import read_bytes
from formats.json_lines import parse
from phantora_async.config.config import Listen, Ray
from phantora_async.errors import UsageError
from phantora_async.options import PathText, RunOptions
from phantora_async.remote import wire
from phantora_async.run_dir import TOKEN
from profiles import Cluster

if TYPE_CHECKING:
    from netsim import NcclSettings

MOST_RANKS = 16_384
MOST_FOLDED = 1 << 17
RAY = "ray"
MOST_ENVIRONMENT_NBYTES = 1 << 20


def servers_of(given: RunOptions, cluster: Cluster) -> tuple[int, ...]:
    """The number of GPUs in use on each server. -n 12 with 8 GPUs per server: one server of 8 and one of 4."""
    counts = (("-n", given.world_size), ("--nnodes", given.nnodes), ("--nproc-per-node", given.nproc_per_node))
    for option, value in counts:
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: must be at least 1")
    if given.world_size is not None and given.nnodes is not None:
        raise UsageError("-n and --nnodes exclude each other", "-n WORLD, or --nnodes N --nproc-per-node GPUS")
    per_server: int = given.nproc_per_node or cluster.gpus_per_server
    ranks = max(given.world_size or 0, (given.nnodes or 0) * per_server)
    if ranks > MOST_FOLDED:
        raise UsageError(f"too many ranks: at most {MOST_FOLDED:,}")
    if ranks > MOST_RANKS and given.fold is None:
        raise UsageError(
            f"too many ranks: at most {MOST_RANKS:,}, each of which is a process of this machine",
            f"--fold dp=128,tp=8 starts only those that differ, of at most {MOST_FOLDED:,} ranks",
        )
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


def isolation_of(given: RunOptions, servers: int) -> str:
    """The level of `--isolation`, checked together with the options that need isolated servers or exclude them."""
    if given.isolation == "none" and given.network == "private":
        raise UsageError("--network private needs isolated servers", "leave out --isolation none")
    several = given.listen is not None or given.on is not None
    if several:
        if given.isolation == "full" or given.network == "private":
            raise UsageError(
                f"{'--on' if given.on else '--listen'}: isolated servers of several machines cannot reach each other",
                "--isolation none",
            )
    elif given.machines is not None or given.token_file is not None:
        raise UsageError("--machines and --token-file need --listen or --on")
    if given.ray_env is not None and given.on is None:
        raise UsageError("--ray-env needs --on")
    level: str = "none" if several else given.isolation
    if level != "none" and servers > isolation.MAX_SERVERS:
        raise UsageError(f"{servers} servers: at most {isolation.MAX_SERVERS} can be isolated", "--isolation none")
    return level


def listen_of(given: RunOptions, servers: int, run_dir: Path) -> Listen | None:
    if given.listen is None and given.on is None:
        return None
    ray = _ray_of(given.on, given.ray_env) if given.on is not None else None
    host, port = wire.address(given.listen, least_port=0) if given.listen is not None else ("", 0)
    if given.machines is not None and not 1 <= given.machines <= servers:
        raise UsageError(f"--machines {given.machines}: this run has {servers} servers, each is on one machine")
    file = Path(given.token_file) if given.token_file is not None else None
    token = wire.read_token(file)
    if not token:
        token, file = secrets.token_hex(32), run_dir / TOKEN
        file.touch(mode=0o600)
        file.write_text(f"{token}\n")
    return Listen(host, port, token, file, given.machines, ray)


def _ray_of(on: str, file: PathText | None) -> Ray:
    """The Ray cluster that `--on` names. Raises UsageError."""
    if on != RAY and not on.startswith(f"{RAY}://"):
        raise UsageError(f"--on {on!r:.60}: expected ray, or ray://HOST:PORT")
    if on != RAY:
        wire.address(on.removeprefix(f"{RAY}://"))
    if file is None:
        return Ray("" if on == RAY else on, {})
    try:
        text = read_bytes(Path(file), MOST_ENVIRONMENT_NBYTES).decode()
    except OSError as error:
        raise UsageError(f"--ray-env {os.fspath(file)}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--ray-env {os.fspath(file)}: not text") from None
    environment = parse(text, Path(file), lambda message: UsageError(f"--ray-env {message}"))
    if not isinstance(environment, dict):
        raise UsageError(f"--ray-env {os.fspath(file)}: expected a JSON object, Ray's runtime environment")
    return Ray("" if on == RAY else on, environment)


def nccl_settings(cluster: Cluster, servers: int) -> tuple[NcclSettings, tuple[str, ...]]:
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
        found = netsim.collectives.settings.read({**cluster.environment_of(servers), **os.environ}, nics)
    except netsim.SpecError as error:
        raise UsageError(str(error), "correct this environment variable or unset it") from None
    return found.settings, tuple(f"NCCL's environment: {remark}" for remark in found.remarks)
