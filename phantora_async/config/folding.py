"""`--fold` and the options that go with it."""

from __future__ import annotations

from collections.abc import Sequence

from phantora_async.errors import UsageError
from phantora_async.faults import Fault, FlappingLink, SlowLink, SlowLoader
from phantora_async.folding import Folding, mesh_of
from phantora_async.options import RunOptions

NOBODY = "none"


def folding_of(given: RunOptions, world_size: int) -> Folding | None:
    """Which ranks have processes; None if all have. Raises UsageError."""
    if given.fold is None:
        return None
    excluded = (
        ("--launcher", given.launcher),
        ("--record", given.record is not None),
        ("--clock optimistic", given.clock == "optimistic"),
    )
    for option, is_given in excluded:
        if is_given:
            raise UsageError(f"--fold and {option} exclude each other")
    return Folding(mesh_of(given.fold, world_size), apart_of(given.fold_apart, world_size))


def share_timelines(given: RunOptions, folding: Folding | None, faults: Sequence[Fault]) -> bool:
    """Are ranks to which the same happens simulated once? Raises UsageError."""
    if folding is None:
        if given.replicas is not None:
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
        ("faults of links", any(isinstance(fault, SlowLink | FlappingLink) for fault in faults)),
    )
    needs = [name for name, is_given in needing_each if is_given]
    if needs and given.replicas == "shared":
        raise UsageError(f"--replicas shared and {needs[0]} exclude each other", "--replicas each simulates each rank")
    return not needs and given.replicas != "each"


def unchecked(folding: Folding) -> str:
    """What a user must know of the ranks that have no processes."""
    ranks, played = folding.mesh.world_size, folding.mesh.world_size - len(folding.live)
    return (
        f"--fold: {len(folding.live)} of {ranks} ranks have processes, the other {played} are played; "
        "nothing checks that these would have done the same"
    )


def apart_of(text: str, world_size: int) -> frozenset[int]:
    """Ranks of `--fold-apart`: numbers, negative ones from the end. Raises UsageError."""
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
