"""Resolves `--fold` and the options that go with it: which ranks have processes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from emu.contract.policies.length_policy import FIXED
from phantora_async.errors import UsageError
from phantora_async.faults import Death, EccRetry, Fault, FlappingLink, SlowGpu, SlowLink, SlowLoader, paces_of
from phantora_async.folding import Folding, Mesh, Underivable, derived, mesh_of, tells_ranks_apart
from phantora_async.folding.dividing import divided
from phantora_async.folding.script_text import Source, module_file, program_of, sources_of
from phantora_async.folding.script_values import Ranks
from phantora_async.folding.told_apart import told_apart
from phantora_async.options import RunOptions
from phantora_async.wording import named

NOBODY = "none"
FIRST_AND_LAST = "0,-1"
"""The default of --fold-apart. Ranks to which the script gives another task are added to it, and in small runs the
first replicas.
"""
MOST_FIRST_REPLICAS = 32
AUTO = "auto"
NOT_WITH_AUTO = (
    "launcher",
    "fault",
    "faults",
    "moe",
    "lengths",
    "witnesses",
    "roles",
    "replicas",
    "reasons",
    "real_steps",
)
"""Options with which `check` and `sweep` do not fold by themselves: they ask for something else than what each rank
does by itself, or say how to fold.
"""
SIMILAR = "similar"
WITNESSES = 1
"""The number of witnesses if --witnesses is not given."""
MOST_UNFOLDED = 256
"""The most ranks for which `--fold auto` gives each a process if it cannot tell the mesh: docs/scale.md."""


def folding_of(
    given: RunOptions, servers: Sequence[int], faults: Sequence[Fault] = ()
) -> tuple[Folding | None, tuple[str, ...]]:
    """Says which ranks have processes (None: all have), with remarks for the user. `servers`: the number of GPUs of
    each server. Raises UsageError.
    """
    world_size = sum(servers)
    if given.fold is None:
        for option, value in (("--witnesses", given.witnesses), ("--roles", given.roles)):
            if value is not None:
                raise UsageError(f"{option} needs --fold")
        return None, ()
    if given.launcher:  # it starts processes of its own, which cannot be played for others
        raise UsageError("--fold and --launcher exclude each other")
    text = given.fold
    remarks: tuple[str, ...] = ()
    if given.lengths is not None and not given.lengths.startswith(f"{FIXED}:"):
        # A response's length depends on its prompt and its rank, so no rank does what another one does.
        why = f"with --lengths {given.lengths} each rank's responses have lengths of their own"
        if text == AUTO:
            return None, (f"--fold auto: {why}: all {world_size} ranks have processes",)
        raise UsageError(
            f"--fold: {why}, so no rank can be played by another", f"--lengths {FIXED}:N, or leave --fold out"
        )
    if text == AUTO:
        try:
            found = derived(given.arguments, _text_of(given), world_size)
        except Underivable as error:
            # Without a mesh, a small job can still run with a process for each rank; a large one cannot.
            if world_size > MOST_UNFOLDED:
                raise UsageError(
                    f"--fold auto: {error}; {world_size} ranks are too many to run unfolded",
                    "name the axes of the mesh of ranks, the slowest first: --fold dp=128,pp=16,tp=8",
                ) from None
            return None, (f"--fold auto: {error}: all {world_size} ranks have processes",)
        text, remarks = found.mesh, (f"--fold auto: {found.mesh}, because {found.reason}",)
    mesh = mesh_of(text, world_size)
    apart = apart_of(given.fold_apart, world_size)
    by_default = given.fold_apart == FIRST_AND_LAST
    if by_default:
        # First replicas are added only by default: a user who names the ranks that are apart means these alone.
        apart |= first_replicas(mesh)
    ranks = Ranks(tuple(servers), mesh)
    # The script's text divides roles further: a rank with another task cannot be played by one of its role.
    told = told_apart(own_sources(given), given.arguments, ranks)
    division = divided(mesh, told, ranks, apart, by_default, given.witnesses != 0)
    mesh, apart = division.mesh, apart | division.apart
    apart |= _slowed(mesh, servers, faults)
    # Witnesses are drawn last: they must not be ranks that have processes for another reason.
    drawn = witnesses_of(given, Folding(mesh, apart), servers)
    drawn |= division.witnesses - apart
    folding = Folding(mesh, apart | drawn, drawn, given.roles == SIMILAR)
    return folding, (*remarks, *division.remarks, unchecked(folding))


def folds_by_itself(given: RunOptions, servers: Sequence[int]) -> bool:
    """Returns true if `--fold auto` leaves out processes, no option asks for another folding, and the script's text
    does not use the rank to give ranks different tasks. Raises UsageError.
    """
    if any(name in given.given() for name in NOT_WITH_AUTO):
        return False
    folding, _ = folding_of(replace(given, fold=AUTO), servers)
    return folding is not None and len(folding.live) < sum(servers) and not tells_ranks_apart(_text_of(given))


def _text_of(given: RunOptions) -> str:
    """The text of the script; "" if it cannot be read, which other checks report."""
    with suppress(OSError, UnicodeDecodeError):
        if not given.module:
            return program_of(Path(os.fspath(given.script))).read_text()
    return ""


def own_sources(given: RunOptions) -> list[Source]:
    """The source files of the script and of the user's modules that it imports; none for an installed module."""
    script = module_file(os.fspath(given.script)) if given.module else program_of(Path(os.fspath(given.script)))
    if script is not None and script.is_dir():
        script /= "__main__.py"
    return sources_of(script) if script is not None else []


def witnesses_of(given: RunOptions, folding: Folding, servers: Sequence[int]) -> frozenset[int]:
    """Draws the mirrored ranks that get processes: all of them, if there are fewer than asked for. The first one is the
    first GPU of a server if any is mirrored, because programs log there. Each further one has another GPU's number, as
    long as there are some. Raises UsageError.
    """
    count = WITNESSES if given.witnesses is None else given.witnesses
    if count < 0:
        raise UsageError(f"--witnesses {count}: must be at least 0")
    live = frozenset(folding.live)
    mirrored = [rank for rank in range(folding.mesh.world_size) if rank not in live]
    draw = random.Random(given.witness_seed)
    gpus = [gpu for used in servers for gpu in range(used)]
    order = draw.sample(mirrored, len(mirrored))
    seen: Counter[int] = Counter()
    turns = {}
    for rank in order:
        turns[rank] = seen[gpus[rank]]
        seen[gpus[rank]] += 1
    # The first of each GPU's number, then the second ones. A stable sort keeps the order in which they were drawn.
    order.sort(key=lambda rank: (turns[rank], gpus[rank] != 0))
    return frozenset(order[:count])


def share_timelines(given: RunOptions, folding: Folding | None, faults: Sequence[Fault]) -> bool:
    """Returns true if ranks to which the same happens are simulated once. Raises UsageError."""
    if folding is None:
        if given.fold is None and given.replicas is not None:
            raise UsageError("--replicas needs --fold")
        return False
    for fault in faults:
        if isinstance(fault, SlowLoader) and fault.rank not in folding.live:
            raise UsageError(
                f"fault '{fault}': rank {fault.rank} has no process", f"--fold-apart {given.fold_apart},{fault.rank}"
            )
    needing_each = (
        ("--trace", given.trace is not None),
        ("--reasons", given.reasons),
        ("faults of links", any(isinstance(fault, SlowLink | FlappingLink | Death) for fault in faults)),
    )
    needs = [name for name, is_given in needing_each if is_given]
    if needs and given.replicas == "shared":
        raise UsageError(f"--replicas shared and {needs[0]} exclude each other", "--replicas each simulates each rank")
    return not needs and given.replicas != "each"


def first_replicas(mesh: Mesh) -> frozenset[int]:
    """The first rank of each role, in runs that could be done unfolded, if these are few: programs log on them."""
    if mesh.world_size > MOST_UNFOLDED:
        return frozenset()
    ranks = range(mesh.world_size)
    found = [rank for rank in ranks if not any(mesh.coordinate(rank, at) for at in mesh.folded_axes)]
    return frozenset(found if len(found) <= MOST_FIRST_REPLICAS else ())


def each_if_they_differ(given: RunOptions, folding: Folding | None, shared: bool) -> bool:
    """Returns true if the run is done again with each replica simulated when replicas turn out not to be alike."""
    return shared and given.replicas is None and folding is not None and folding.mesh.world_size <= MOST_UNFOLDED


def _slowed(mesh: Mesh, servers: Sequence[int], faults: Sequence[Fault]) -> frozenset[int]:
    """The ranks that get other answers than their role to questions such as whether work is complete: those whose GPU a
    fault slows, in small runs those whose host is slow, and the ranks of the same replica that wait for any of these.
    """
    slow = frozenset(fault.rank for fault in faults if isinstance(fault, SlowGpu | EccRetry))
    if mesh.world_size > MOST_UNFOLDED:
        return slow
    folded = mesh.folded_axes
    slow |= frozenset(paces_of(faults, servers).hosts)
    replicas = {tuple(mesh.coordinate(rank, at) for at in folded) for rank in slow}
    ranks = range(mesh.world_size)
    return frozenset(rank for rank in ranks if tuple(mesh.coordinate(rank, at) for at in folded) in replicas)


def unchecked(folding: Folding) -> str:
    """The remark for the user on the ranks that have no processes: how many there are, and how they are checked."""
    ranks, played = folding.mesh.world_size, folding.mesh.world_size - len(folding.live)
    if not played:
        return f"--fold: all {ranks} ranks have processes, as no two are found to do the same"
    checked = "nothing checks that these would have done the same"
    if folding.witnesses:
        checked = f"that these would have done the same is checked with {named(folding.witnesses)}, as a sample"
    return f"--fold: {len(folding.live)} of {ranks} ranks have processes, the other {played} are played; {checked}"


def apart_of(text: str, world_size: int) -> frozenset[int]:
    """The ranks of `--fold-apart`: numbers, negative ones counted from the end. Raises UsageError."""
    if text == NOBODY:
        return frozenset()
    ranks = set()
    for part in text.split(","):
        try:
            rank = int(part)
        except ValueError:
            rank = world_size
        if not -world_size <= rank < world_size:
            raise UsageError(
                f"--fold-apart {text}: {part.strip()!r} is no rank of {world_size}", "for example: --fold-apart 0,-1"
            )
        ranks.add(rank % world_size)
    return frozenset(ranks)
