"""Makes the machine of a replay: that of the run, with the user's changes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netsim
from phantora_async.errors import UsageError
from phantora_async.faults import Death, Fault, FlappingLink, SlowLink, SlowLoader, given_faults, paces_of, parse
from phantora_async.kernel_times import find
from phantora_async.recording import Recording
from phantora_async.replaying.differences import Allowed
from phantora_async.replaying.rank_mapping import map_ranks
from phantora_async.replaying.width import check_width, widened
from phantora_async.run_spec import MachineView, RunSpec
from phantora_async.virtual_time import Timelines
from profiles import ProfileError, load_gpu, load_host, load_machine

NCCL = "NCCL_"
NONE = "none"
EACH, SHARED = "each", "shared"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of the machine. A field that is not given keeps the run's value."""

    cluster: str | None = None
    gpu: str | None = None
    host: str | None = None
    """The mode of host time: modelled or none."""
    kernel_times: Sequence[str] = ()
    nccl: Sequence[str] = ()
    """NCCL's environment variables, NAME=VALUE each."""
    network: Sequence[str] = ()
    """Values of the cluster's [network] table, KEY=NUMBER each: server.nic_gbps=800."""
    slow: Sequence[str] = ()
    """GPUs that are slower than the others, RANK=SHARE each: 17=0.7 works at 0.7 of its speed."""
    fault: Sequence[str] = ()
    """The faults in place of those of the run; `none`: no faults."""
    faults: str | None = None
    """A file with further faults."""
    width: Sequence[str] = ()
    """Other numbers of replicas, AXIS=SIZE each: dp=4096."""
    replicas: str | None = None
    """`each`: every replica is simulated; `shared`: those to which the same happens are simulated once."""
    steps: int | None = None
    """The number of steps if it is more than were recorded: the others are played from the record."""
    as_run: bool = False
    """True if `cluster` and `gpu` say all, as in a run: where both are None, the default is meant, not the run's
    value.
    """


def spec_of(recording: Recording, changes: Changes, run_dir: Path) -> RunSpec:
    """The machine with these changes. Raises UsageError."""
    setup, _ = widened(recording.setup, changes.width)
    spec = RunSpec(
        socket=Path(os.devnull),
        cost_table=Path(os.devnull),
        run_dir=run_dir,
        **{one.name: getattr(setup, one.name) for one in dataclasses.fields(MachineView)},
    )
    try:
        spec = _described(spec, changes)
    except ProfileError as error:
        raise UsageError(str(error), "known names: phantora-async profiles list") from None
    if changes.kernel_times or spec.gpu != setup.gpu:
        spec = dataclasses.replace(spec, kernel_times=find(changes.kernel_times, spec.gpu))
    if changes.network:
        network = _network(spec.cluster.network, changes.network)
        spec = dataclasses.replace(spec, cluster=dataclasses.replace(spec.cluster, network=network))
    if spec.cluster != setup.cluster or changes.nccl or changes.network:
        spec = dataclasses.replace(spec, nccl=_nccl(recording, changes, spec))
    if setup.steps and changes.steps is not None:
        spec = dataclasses.replace(spec, steps=changes.steps)
    spec = dataclasses.replace(spec, faults=_faults(recording, changes, spec))
    return dataclasses.replace(spec, share_timelines=_shared(changes, spec))


def _shared(changes: Changes, spec: RunSpec) -> bool:
    """Returns true if ranks to which the same happens are simulated once. Raises UsageError."""
    if changes.replicas not in (None, EACH, SHARED):
        raise UsageError(f"replicas {changes.replicas}: expected {EACH} or {SHARED}")
    if changes.replicas is not None and spec.folding is None:
        raise UsageError("--replicas: the recording is of a run without --fold")
    on_links = any(isinstance(fault, SlowLink | FlappingLink | Death) for fault in spec.faults)
    if on_links and changes.replicas == SHARED:
        raise UsageError(f"--replicas {SHARED} and faults of links exclude each other")
    wanted = spec.share_timelines or bool(changes.width) if changes.replicas is None else changes.replicas == SHARED
    return wanted and not on_links


def cast_for(
    recording: Recording, changes: Changes, spec: RunSpec, slow: Mapping[int, float], allowed: Allowed
) -> Recording:
    """The recording for the ranks of this machine. `slow`: the speeds of GPUs, by rank. Raises UsageError, Damaged, and
    PathChanged where ranks did what follows from the number of replicas.
    """
    _, width = widened(recording.setup, changes.width)
    if width is not None:
        check_width(recording, width, allowed)
    slowed = paces_of(spec.faults, spec.servers).ranks | slow.keys()
    folding = spec.folding if spec.share_timelines else None
    return map_ranks(recording, spec.servers, Timelines(spec.world_size, folding, spec.servers, slowed), width)


def _faults(recording: Recording, changes: Changes, spec: RunSpec) -> tuple[Fault, ...]:
    """The faults of the replay. Faults of data loaders stay, because the recording contains when batches come. Raises
    UsageError.
    """
    recorded = recording.setup.faults
    texts, file = tuple(changes.fault), None if changes.faults is None else Path(changes.faults)
    if not texts and file is None:
        return given_faults(recorded, None, spec.servers, spec.cluster)
    if NONE in texts and (len(texts) > 1 or file is not None):
        raise UsageError(f"fault {NONE}: it excludes other faults")
    faults = given_faults([] if NONE in texts else texts, file, spec.servers, spec.cluster)
    for fault in faults:
        if isinstance(fault, Death):
            raise UsageError(f"fault '{fault}': the program reacts to it", "run the script with this fault")
        if isinstance(fault, SlowLoader) and str(fault) not in recorded:
            raise UsageError(
                f"fault '{fault}': when batches come is a part of the recording", "run the script with this fault"
            )
    loaders = [fault for fault in map(parse, recorded) if isinstance(fault, SlowLoader) and fault not in faults]
    return (*faults, *loaders)


def slow_gpus(changes: Changes, world_size: int) -> dict[int, float]:
    """The share of its speed that each named rank's GPU reaches. Raises UsageError."""
    found = {}
    for text in changes.slow:
        rank, _, share = text.partition("=")
        try:
            found[int(rank)] = float(share)
        except ValueError:
            raise UsageError(f"slow GPU {text}: expected RANK=SHARE, 17=0.7 for example") from None
        if not 0 <= int(rank) < world_size or not 0.001 <= float(share) <= 1000:
            raise UsageError(f"slow GPU {text}: expected one of {world_size} ranks and a share from 0.001 to 1000")
    return found


def _network(table: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The table with other numbers. Raises UsageError for one that it does not have."""
    changed = deepcopy(table)
    for text in changes:
        path, _, number = text.partition("=")
        *outer, key = path.strip().split(".")
        inner: Any = changed
        for name in outer:
            inner = inner.get(name) if isinstance(inner, dict) else None
        found = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise UsageError(f"network {text}: the cluster's [network] table has no number {path.strip()}")
        try:
            inner[key] = type(found)(float(number))
        except (ValueError, OverflowError):
            raise UsageError(f"network {text}: expected a number") from None
    return changed


def _described(spec: RunSpec, changes: Changes) -> RunSpec:
    """The machine with other descriptions. A cluster brings its GPU and its host. Raises ProfileError or UsageError."""
    cluster, gpu, host, assumed = spec.cluster, spec.gpu, spec.host, spec.assumed_links
    if not changes.as_run and changes.cluster is None and changes.gpu is not None and cluster.name != gpu.servers:
        # The run was not in its GPU's own cluster: the user has chosen that one for its links.
        gpu = load_gpu(changes.gpu)
        assumed = "" if cluster.gpu == gpu.name else cluster.links
    elif changes.as_run or changes.cluster is not None or changes.gpu is not None:
        machine = load_machine(changes.cluster, changes.gpu)
        cluster, gpu, assumed = machine.cluster, machine.gpu, machine.assumed_links
        host = load_host(cluster.host)
        modelled = (changes.host or spec.host_mode) == "modelled"
        if modelled and host.counting_lines() != spec.host.counting_lines():
            raise UsageError(
                f"host {host.name}: the recording counts work by {', '.join(spec.host.counting_lines())}, this host by"
                f" {', '.join(host.counting_lines())}",
                "run the script on this host, or give its description the values of the recording",
            )
    gpu = dataclasses.replace(gpu, peer_gb_per_s=cluster.peer_gb_per_s).one_of(spec.world_size)
    mode = changes.host or spec.host_mode
    host = host.one_of(spec.world_size if mode == "modelled" else 1)
    return dataclasses.replace(
        spec, cluster=cluster, assumed_links=assumed, gpu=gpu, host=host, host_mode=mode, kernel_times=()
    )


def _nccl(recording: Recording, changes: Changes, spec: RunSpec) -> netsim.NcclSettings:
    environment = {name: str(value) for name, value in recording.run.get("environment", {}).items()}
    for text in changes.nccl:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith(NCCL):
            raise UsageError(f"--nccl {text}: expected NCCL_NAME=VALUE, a variable of NCCL's environment")
        environment[name] = value
    try:
        server = netsim.build(spec.cluster.network).server
        netsim.build(spec.cluster.network, spec.cluster.network_servers(len(spec.servers)))
        if (used := max(spec.servers)) > server.gpus:
            raise UsageError(
                f"cluster {spec.cluster.name}: the run has {used} GPUs on a server, this has {server.gpus}",
                "run the script there, or say with --cluster in which other servers the GPUs are",
            )
        return netsim.collectives.settings.read(
            spec.cluster.environment_of(len(spec.servers)) | environment, server.nics
        ).settings
    except netsim.NetsimError as error:
        raise UsageError(f"cluster {spec.cluster.name}: {error}", "docs/netsim.md describes the network") from None
    except netsim.SpecError as error:
        raise UsageError(str(error)) from None
