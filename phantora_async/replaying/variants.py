"""Plays many variants of one recording on other machines, and finds the step time on each."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from functools import partial
from math import prod
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, TypeVar

from emu.contract import process_setup
from formats.nearest import meant_or_known
from formats.toml import FileTable, read_toml
from formats.values import shown
from phantora_async.errors import EnvironmentUnusable, PathChanged, UsageError
from phantora_async.recording import Recording
from phantora_async.replaying.answers import Compared
from phantora_async.replaying.differences import Allowed, check_attributes, check_memory
from phantora_async.replaying.machine import Changes, cast_for, slow_gpus, spec_of
from phantora_async.replaying.pricing import Pricing
from phantora_async.replaying.replay import execute_on, pricing_for, uncollected
from phantora_async.report.steps import step_document
from phantora_async.run_spec import RunSpec

MOST_VARIANTS = 100_000
MOST_OF_A_PORTION = 8
"""The variants that a process plays before it reports them."""
MOST_KEPT = 8
"""The machines whose prices, and whose ranks' parts, a process keeps."""
MEMORY_HINT = "perhaps for lack of memory: each has the recording in memory; replay --jobs with a smaller number"
LISTS = ("kernel_times", "nccl", "network", "slow", "fault", "width")
"""The changes that are lists of texts; in a file a text with blanks between them is accepted, for faults with
commas.
"""
T = TypeVar("T")
_KEYS = frozenset(("name", *(one.name for one in fields(Changes)))) - {"as_run"}


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class Outcome:
    variant: Variant
    step_ns: int
    """The median of the steps that count, in ns."""
    virtual_ns: int
    other_states: int
    """The number of PyTorch's own questions whether work is complete that are answered differently."""
    left: str
    """The reason why there are no figures; empty if there are."""


def read_variants(path: Path) -> list[Variant]:
    """Reads variants from a TOML file: [[variant]] tables, and a [grid] table of lists, all combinations of which are
    variants. Raises UsageError.
    """
    source, values = read_toml(path, UsageError)
    table = FileTable(values, "", (source,), UsageError)
    found = [_variant(one) for one in table.tables("variant")]
    grid = table.table("grid", optional=True)
    found += [_variant(FileTable(one, "grid", (source,), UsageError)) for one in _grid(grid)]
    table.end()
    if not found:
        raise UsageError(f"{path}: no variants", 'for example: [grid] with gpu = ["h100", "b200"]')
    return found


def _grid(grid: FileTable) -> Iterator[dict[str, Any]]:
    lists = {key: grid.value(key) for key in grid.keys()}  # noqa: SIM118 - a Table is no mapping
    for key, choices in lists.items():
        if not isinstance(choices, list) or not choices:
            raise grid.error(key, f"expected a list of one value or more, found {shown(choices)}")
    combinations = prod(map(len, lists.values()))
    if combinations > MOST_VARIANTS:
        raise grid.wrong(grid.name, f"{combinations:,} combinations, more than {MOST_VARIANTS:,}")
    if lists:
        for chosen in itertools.product(*lists.values()):
            yield dict(zip(lists, chosen, strict=True))


def _variant(given: FileTable) -> Variant:
    changes: dict[str, Any] = {}
    for key in given.keys():  # noqa: SIM118 - a Table is no mapping
        value = given.value(key)
        if key not in _KEYS:
            raise given.error(key, f"unknown key; {meant_or_known(key, sorted(_KEYS))}")
        if key in LISTS:
            texts = _split(key, value) if isinstance(value, str) else value
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise given.error(key, f"expected texts, found {shown(value)}")
            changes[key] = tuple(texts)
        elif not isinstance(value, str):
            raise given.error(key, f"expected a text, found {shown(value)}")
        elif value:
            changes[key] = value
    name = changes.pop("name", "")
    return Variant(name or _name(changes), Changes(**changes))


def _split(key: str, text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()] if key == "fault" else text.split()


def _name(changes: Mapping[str, Any]) -> str:
    texts = (value if isinstance(value, str) else " ".join(value) for value in changes.values())
    return " ".join(filter(None, texts)) or "as recorded"


class Player:
    """Plays variants of one recording. What they share is computed once."""

    def __init__(self, recording: Recording, allowed: Allowed) -> None:
        self._recording = recording
        self._allowed = allowed
        self._casts: dict[tuple[object, ...], Recording] = {}
        self._pricings: dict[tuple[object, ...], Pricing | None] = {}

    def play(self, variant: Variant) -> Outcome:
        """Plays the variant. Raises UsageError for an invalid machine."""
        recording, changes = self._recording, variant.changes
        spec = spec_of(recording, changes, Path(os.devnull))
        try:
            slow = slow_gpus(changes, spec.world_size)
            recording = self._cast(changes, spec, slow)
            check_memory(recording, spec, self._allowed)
            check_attributes(recording, spec, self._allowed)
            executed = execute_on(recording, spec, self._pricing(recording, spec, changes, slow), self._allowed)
        except PathChanged as error:
            return Outcome(variant, 0, 0, 0, error.message)
        snapshot = executed.timeline.snapshot([0])
        states: Compared = executed.compared["query"]
        step_ns = int(step_document(snapshot)["median_ns"])
        return Outcome(variant, step_ns, snapshot.now_ns, states.other, "")

    def _cast(self, changes: Changes, spec: RunSpec, slow: Mapping[int, float]) -> Recording:
        """The recording for the ranks of this machine. Variants that differ only in other settings share it."""
        key = (changes.slow, changes.width, changes.replicas, spec.faults)
        return _kept(self._casts, key, lambda: cast_for(self._recording, changes, spec, slow, self._allowed))

    def _pricing(
        self, recording: Recording, spec: RunSpec, changes: Changes, slow: Mapping[int, float]
    ) -> Pricing | None:
        """The prices for this machine. Variants that differ in their network share them."""
        key = (
            changes.cluster,
            changes.gpu,
            changes.host,
            changes.kernel_times,
            changes.slow,
            recording.own,
            changes.width,
        )
        return _kept(self._pricings, key, lambda: pricing_for(recording, spec, slow))


def _kept(known: dict[tuple[object, ...], T], key: tuple[object, ...], make: Callable[[], T]) -> T:
    if key not in known:
        while len(known) >= MOST_KEPT:
            known.pop(next(iter(known)))
        known[key] = make()
    return known[key]


_player: list[Player] = []
"""The player of a worker's process."""


def _start(recording: Recording, allowed: Allowed) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    process_setup.prctl(process_setup.PR_SET_PDEATHSIG, signal.SIGKILL)
    _player.append(Player(recording, allowed))


def _play(portion: Sequence[tuple[int, Variant]]) -> list[tuple[int, Outcome]]:
    with uncollected():
        return [(number, _player[0].play(variant)) for number, variant in portion]


def play_all(
    recording: Recording, variants: Sequence[Variant], allowed: Allowed, jobs: int
) -> Iterator[tuple[int, Outcome]]:
    """Plays all variants, in so many processes, which share what has been read of the recording. Yields each outcome as
    soon as it is known, with the variant's number. Variants with the same prices are played one after the other. Raises
    UsageError.
    """
    order = sorted(enumerate(variants), key=lambda one: _prices_of(one[1]))
    if jobs <= 1 or len(variants) == 1:
        player = Player(recording, allowed)
        for number, variant in order:
            with uncollected():
                outcome = player.play(variant)
            yield number, outcome
        return
    recording.read_ahead()
    each = max(1, min(MOST_OF_A_PORTION, -(-len(order) // (4 * jobs))))
    portions = [order[at : at + each] for at in range(0, len(order), each)]
    yield from _in_processes(min(jobs, len(portions)), partial(_start, recording, allowed), portions)


def _in_processes(
    count: int, start: Callable[[], None], portions: Sequence[Sequence[tuple[int, Variant]]]
) -> Iterator[tuple[int, Outcome]]:
    """Plays the portions in processes, none of which is left, however this ends. Raises EnvironmentUnusable."""
    others = set(active_children())
    with ProcessPoolExecutor(count, get_context("fork"), start) as pool:
        try:
            for played in as_completed([pool.submit(_play, portion) for portion in portions]):
                yield from played.result()
        except BaseException as error:
            for process in set(active_children()) - others:
                process.kill()  # the pool would wait for them, and for ever if it could not fork all
            if isinstance(error, BlockingIOError):
                raise EnvironmentUnusable(process_setup.NO_PROCESS, "replay --jobs with a smaller number") from None
            if isinstance(error, BrokenProcessPool):
                raise EnvironmentUnusable("a process that replays variants was ended", MEMORY_HINT) from None
            raise


def _prices_of(variant: Variant) -> tuple[str, ...]:
    changes = variant.changes
    lists = (*changes.kernel_times, *changes.slow)
    return (changes.cluster or "", changes.gpu or "", changes.host or "", *lists)
