"""The end of a run: how each rank ended, which failure counts, and what is found out about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from emu.contract.folding import CannotBePlayed, NeedsParts
from phantora_async.coordinator.network_model import network_of
from phantora_async.coordinator.restarts import Restart
from phantora_async.coordinator.simulation import Simulation
from phantora_async.coordinator.whole_report import whole_report
from phantora_async.diagnosis.failure_report import FailureReport, needs_stacks
from phantora_async.diagnosis.polling_loops import describe_loops
from phantora_async.diagnosis.rank_states import RankState
from phantora_async.errors import (
    Deadlock,
    ExitCode,
    InternalError,
    Interrupted,
    Mismatch,
    NotFoldable,
    RankDied,
    RunFailure,
)
from phantora_async.faults import Death, begin_ns
from phantora_async.liveness.memory_kills import MemoryKills
from phantora_async.liveness.rank_stacks import Stacks, crash_site, known
from phantora_async.reasons import reasons_document
from phantora_async.report import Document, Usage
from phantora_async.wording import short, size

SETTLE_S = 0.5
"""The seconds that a rank may take after a failure to end with an exit code of its own, which then is the run's."""
LATE_S = 2.0
"""The seconds for which ranks that still run are awaited after a failure: which rank is the odd one is known when all
have called, and where the others wait when they have come there.
"""
QUIET_S = 0.1
"""The seconds without work of a rank's main thread after which it is taken to wait."""
SETTLE_EVERY_S = 0.02
STACKS_S = 5.0
"""The seconds that ranks may take to write their stacks: hundreds of them share this machine's processors."""
STACKS_EVERY_S = 0.05
ENDED_BY_EMULATION = {int(code): code.meaning for code in (ExitCode.INTERNAL, ExitCode.DISCONNECTED)}
"""The exit codes of a rank that the emulation ended, not its script, with their meaning."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the run: its failure, and the report of what was done."""

    failure: RunFailure | None
    """The failure; None if the run ended well."""
    report: Document
    unwritten: str = ""
    """The reason why the trace is incomplete; "" if it is complete."""
    unrecorded: str = ""
    """The reason why there is no recording although there was to be one; "" otherwise."""


class Exit(NamedTuple):
    """The end of a process: at least one of the two is 0."""

    code: int
    signal: int

    @property
    def well(self) -> bool:
        return not self.code and not self.signal


class RunEnd:
    """Collects exits and failures; ``settle``, then ``outcome``."""

    def __init__(self, simulation: Simulation, stacks: Stacks) -> None:
        self._witnesses = simulation.witnesses
        self._mirrored_ranks = simulation.mirrored_ranks
        self._last_steps = simulation.last_steps
        self._spec = simulation.spec
        self._timeline = simulation.timeline
        self._fact_builder = simulation.fact_builder
        self._network = simulation.network
        self._stacks = stacks
        self._memory_kills = MemoryKills()
        self._states: Sequence[RankState] = ()
        """The activity of each rank when the first failure was found."""
        self.failure: RunFailure | None = None
        self.reaction = ""
        """Says how ranks ended that waited for something dead."""
        self.stopped: Document | None = None
        """Names the option that has ended the run before its script; None if none has."""
        self.exits: dict[int, Exit] = {}
        self.over = asyncio.Event()
        """Set when the run has ended or failed."""

    def stop(self, why: Document) -> None:
        """Ends the run before its script, without a failure. `why`: see ``stopped``."""
        self.stopped = why
        self.over.set()

    def fail(self, failure: RunFailure, states: Sequence[RankState], pids: Mapping[int, int]) -> None:
        """Records that the run cannot continue. The first failure counts, unless a rank's own end follows: that is its
        cause.

        `states`: the activity of each rank; `pids`: the processes of the ranks that can be asked for their stacks.
        """
        if self.failure is None:
            self.failure = failure
            self._states = states
            self._stacks.forget()
            if needs_stacks(failure):
                for rank, pid in pids.items():
                    if rank not in self.exits:
                        self._stacks.ask(rank, pid)
        elif isinstance(failure, RankDied) and not isinstance(self.failure, RankDied | Interrupted):
            self.failure = failure
        self.over.set()

    async def settle(self, rank_states: Callable[[], Sequence[RankState]], computes: Callable[[int], bool]) -> None:
        """Waits until the failed rank's exit code and the stacks of ranks are known, and what the others have come to.
        `rank_states`: looks what each rank does now; `computes`: whether a rank's main thread runs now.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STACKS_S
        if isinstance(self.failure, RankDied):
            await asyncio.sleep(0.0 if self.failure.rank in self.exits else SETTLE_S)
            others = {rank for rank, info in enumerate(self._fact_builder.rank_info) if info.bye is None}
            await self._until_quiet(lambda: others - self._fact_builder.incomplete_collectives().keys(), computes)
            self._states = rank_states()
        elif not isinstance(self.failure, InternalError | Interrupted):
            await asyncio.sleep(SETTLE_S)
            if isinstance(self.failure, Mismatch):
                await self._until_quiet(self._fact_builder.not_yet_in_mismatch, computes)
        while not self._stacks.complete() and loop.time() < until_s:
            await asyncio.sleep(STACKS_EVERY_S)

    async def _until_quiet(self, awaited: Callable[[], set[int]], computes: Callable[[int], bool]) -> None:
        """Returns when none of these ranks has run for a while, or there are none, or some never rest."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LATE_S
        ran_s = loop.time()
        while (ranks := awaited()) and loop.time() < min(until_s, ran_s + QUIET_S):
            if any(rank not in self.exits and computes(rank) for rank in ranks):
                ran_s = loop.time()
            await asyncio.sleep(SETTLE_EVERY_S)

    def outcome(self, usage: Usage, restarts: Sequence[Restart]) -> Outcome:
        """The report, and the failure with its details."""
        failure = self.failure
        if text := self._network.replicated.differing():
            self._fact_builder.warn(0, text)
        if failure is None:
            return Outcome(None, self.report(usage, restarts, reasons=self._reasons()))
        run_dir = self._spec.run_dir
        if isinstance(failure, Mismatch):
            # Others have called since: they show which of the first two calls is the odd one.
            later = self._fact_builder.mismatch()
            if later and failure.sides and later[0].call == failure.sides[0].call:
                failure.sides = later
        everybody = range(self._spec.world_size)
        seen_at = known(everybody, self._stacks)
        beside = {rank: sites for rank in everybody if (sites := self._stacks.beside(rank))}
        loops = describe_loops(failure.polling, self._stacks.lines) if isinstance(failure, Deadlock) else ""
        found_out = FailureReport(failure, self._states, seen_at, self._stacks.keep(run_dir), beside, loops)
        now_ns = self._timeline.now_ns
        dead = [str(fault) for fault in self._spec.faults if isinstance(fault, Death) and begin_ns(fault) <= now_ns]
        if dead:
            failure.details = "\n".join(filter(None, [self.reaction, f"faults until then: {', '.join(dead)}"]))
        failure.details = found_out.details(self._fact_builder, run_dir)
        document = found_out.document(self._fact_builder, run_dir)
        return Outcome(failure, self.report(usage, restarts, int(failure.exit_code), document))

    def report(
        self,
        usage: Usage,
        restarts: Sequence[Restart],
        exit_code: int = 0,
        failure: Document | None = None,
        reasons: Document | None = None,
    ) -> Document:
        """Builds the report of the run until now."""
        return whole_report(
            self._spec,
            self._timeline,
            self._fact_builder,
            self._network,
            usage,
            restarts,
            exit_code,
            failure,
            self.stopped,
            reasons,
            self._folding(),
        )

    def _folding(self) -> Document | None:
        if self._witnesses is None or self._mirrored_ranks is None:
            return None
        return self._witnesses.document() | {"answered_otherwise": self._mirrored_ranks.answers.differing.document()}

    def _reasons(self) -> Document | None:
        last_steps, results, spec = self._last_steps, self._timeline.results, self._spec
        if last_steps is None:
            return None
        figures = [results.recent_steps(rank) for rank in range(spec.world_size)]
        costs, contents = self._fact_builder.costs, self._fact_builder.segment_contents
        return reasons_document(last_steps, figures, spec, costs, contents, partial(network_of, spec))

    def rank_died(self, rank: int) -> RankDied | NotFoldable:
        """The failure of a rank that ended, or said it ends, with an error."""
        exit = self.exits.get(rank, Exit(0, 0))
        bye = self._fact_builder.rank_info[rank].bye
        if self._spec.folding is not None and bye is not None and bye.exit_code == NeedsParts.CODE:
            words = self._fact_builder.rank_info[rank].last_words
            if CannotBePlayed.told(words):
                return NotFoldable(words, details="run it without --fold")
            reason, finer = NeedsParts.told(words)
            if finer:
                failure = NotFoldable(reason, details=f"to fold ranks that are alike: --fold '{finer}'")
                failure.finer = finer
                return failure
        if exit.well and bye is not None:
            exit = Exit(bye.exit_code, 0)
        return RankDied(rank, self._last_words(rank, exit), 128 + exit.signal if exit.signal else exit.code)

    def _last_words(self, rank: int, exit: Exit) -> str:
        """The sentence on the rank's end: ``rank 3 (server 0) ended with exit code 1: ValueError: no such luck
        (train.py:17); its log is ...``
        """
        rank_info, log = self._fact_builder.rank_info[rank], self._spec.run_dir / f"rank{rank}.log"
        text = f"rank {rank} (server {self._spec.server_of[rank]}) "
        words = rank_info.last_words
        if exit.signal:
            text += f"was ended by {self._memory_kills.signal_in_words(exit.signal)}"
            (snapshot,) = self._timeline.snapshot([rank]).ranks
            crashed, called = crash_site(log), self._fact_builder.site(rank, snapshot.last_site)
            text += f" at {crashed}" if crashed else f"; its last call before was at {called}" if called else ""
            if any(memory := rank_info.memory_at_end):
                had = f"{size(memory.allocated)} of a GPU ({size(memory.reserved)} with what it had cached)"
                text += f"; it had allocated at most {had}"
        else:
            text += f"ended with exit code {exit.code}"
            if rank_info.bye is None:
                words = ENDED_BY_EMULATION.get(exit.code, "")
        return f"{text}{': ' + words if words else ''}; its log is {short(log)}"
