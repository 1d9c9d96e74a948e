"""The ranks' connections: records in, facts to virtual time, answers out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emu.contract import records
from phantora_async.errors import Mismatch, ProtocolError, RunFailure
from phantora_async.folding.mirrored_ranks import MirroredRanks
from phantora_async.folding.witnesses import Witnesses
from phantora_async.ingest.backpressure import Backpressure
from phantora_async.ingest.channel import Channel
from phantora_async.ingest.communicators import Answers
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.reasons import LastSteps
from phantora_async.recording import Recorder
from phantora_async.virtual_time import Timeline

ANY = -1
"""The process number of an answer that goes to the rank's latest process, since no process asked for it."""


class Connections:
    """Feeds the timeline what ranks send, sends the ranks their answers, and pauses those that are far ahead."""

    def __init__(
        self,
        timeline: Timeline,
        fact_builder: FactBuilder,
        world_size: int,
        *,
        last_steps: LastSteps | None = None,
        recorder: Recorder | None = None,
        mirrored_ranks: MirroredRanks | None = None,
        witnesses: Witnesses | None = None,
    ) -> None:
        """`last_steps` and `recorder` keep facts, the recorder all of them and the answers; None: they are not kept.
        `mirrored_ranks`: the ranks that have no processes; None: all have. `witnesses`: of a folded run; None: it has
        none.
        """
        self._witnesses = witnesses
        self._mirrored_ranks = mirrored_ranks
        self._last_steps = last_steps
        self._recorder = recorder
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._world_size = world_size
        self._backpressure = Backpressure(timeline, world_size)
        self._channels: dict[int, Channel] = {}
        """The channel of each rank's latest connected process, or of its last one if all have gone."""
        self._processes: dict[int, list[Channel]] = {}
        """All channels that have connected, by rank. A rank has several if it executes another program, or if a child
        of it uses its GPU.
        """
        self._ended: set[int] = set()
        """The ranks whose process has ended with an error."""
        self._asked_to_flush: set[Channel] = set()
        self._flushed: set[Channel] = set()
        """The processes that have sent FLUSHED and nothing since."""
        self.pids: dict[int, int] = {}
        """The process ids, as this process sees them, of the ranks that have connected."""

    def connect(self, channel: Channel) -> None:
        """Adds the process. Raises ProtocolError if there is no such rank, or it has connected before."""
        hello = channel.hello
        if not 0 <= hello.rank < self._world_size:
            raise ProtocolError(hello.rank, f"there are {self._world_size} ranks")
        if hello.world_size != self._world_size:
            raise ProtocolError(hello.rank, f"it expects {hello.world_size} ranks, but the run has {self._world_size}")
        processes = self._processes.setdefault(hello.rank, [])
        if processes:
            if any(hello.process == other.hello.process for other in processes):
                raise ProtocolError(hello.rank, "a second process says it is this rank")
            self._fact_builder.process_joins(hello.rank)
        processes.append(channel)
        channel.of_rank = processes
        self._channels[hello.rank] = channel
        self.pids[hello.rank] = channel.pid

    def flush(self, ranks: Iterable[int]) -> bool:
        """Asks processes of sleeping ranks for the work that nothing follows, unless they have reported it. Returns
        true if some have not answered yet.
        """
        of_ranks = (channel for rank in ranks for channel in self._processes.get(rank, ()))
        unflushed = {channel for channel in of_ranks if channel.open and not channel.said_bye} - self._flushed
        for channel in unflushed - self._asked_to_flush:
            channel.send(records.Flush.encode(0))
        self._asked_to_flush |= unflushed
        return bool(unflushed)

    def at_rest(self, ranks: Iterable[int]) -> None:
        """Tells processes of sleeping ranks that all sleep and nothing is left to simulate."""
        for rank in ranks:
            for channel in self._processes.get(rank, ()):
                if channel.open and not channel.said_bye:
                    channel.send(records.AtRest.encode(0))

    @property
    def flushing(self) -> bool:
        """True if processes that were asked for such work have not answered yet."""
        return any(channel.open for channel in self._asked_to_flush)

    def flushed(self, channel: Channel, arrived: list[Any]) -> tuple[list[Any], bool]:
        """The records of a process without FLUSHED, and whether nothing followed that."""
        self._flushed.discard(channel)
        if channel not in self._asked_to_flush or all(record.kind != records.FLUSHED for record in arrived):
            return arrived, False
        self._asked_to_flush.discard(channel)
        last = bool(arrived[-1].kind == records.FLUSHED)
        if last:
            self._flushed.add(channel)
        return [record for record in arrived if record.kind != records.FLUSHED], last

    def done_by(self, rank: int) -> Sequence[int]:
        """The ranks with timelines of their own whose work this rank's process does, itself among them."""
        return (rank,) if self._mirrored_ranks is None else self._mirrored_ranks.with_played((rank,))

    def disconnected(self, rank: int) -> None:
        """Handles the end of one of the rank's processes: an older one goes on, if there is one."""
        left = [channel for channel in self._processes.get(rank, ()) if channel.open]
        if left and not self._channels[rank].open:
            self._channels[rank] = left[-1]
            self.pids[rank] = left[-1].pid

    def connected(self, rank: int) -> bool:
        """Returns true if the rank has a process that is connected."""
        return any(channel.open for channel in self._processes.get(rank, ()))

    def is_latest(self, channel: Channel) -> bool:
        """Returns true if no other process of its rank has connected after it."""
        return self._channels.get(channel.rank) is channel

    def take(self, rank: int, arrived: list[Any]) -> None:
        """Handles records of one rank, in order. Raises RunFailure if the run cannot continue after them."""
        info = self._fact_builder.rank_info[rank]
        goes_on = info.bye is None
        if self._mirrored_ranks is None:
            fed = self._take_in(rank, arrived)
        else:
            with self._witnessed(rank, arrived):
                self._mirrored_ranks.check(rank, arrived)
                fed = self._take_in(rank, arrived)
                fed += sum(self._take_in(*its) for its in self._mirrored_ranks.records_after(rank, arrived))
        self.send(self._fact_builder.take_answers())
        if goes_on and info.bye is not None:
            self._release_ended()
        if self._backpressure.must_pause(rank, fed) and rank not in self._ended:
            self._channels[rank].pause()

    @contextmanager
    def _witnessed(self, rank: int, arrived: list[Any]) -> Iterator[None]:
        """A context that compares witnesses with their role. If ranks of a role differ, that is raised, also in place
        of a failure within: it is the cause of that.
        """
        if self._witnesses is None:
            yield
            return
        self._witnesses.look(rank, arrived)
        try:
            yield
        except RunFailure:
            self._witnesses.check()
            raise
        self._witnesses.check()

    def _take_in(self, rank: int, arrived: list[Any]) -> int:
        """Gives the records to virtual time. Returns how many facts they are."""
        try:
            facts = self._fact_builder.take(rank, arrived)
        except RunFailure as failure:
            if isinstance(failure, Mismatch):
                self._timeline.feed(rank, list(failure.before))
                failure.before = ()
            # After --until or --steps the run has its end already. Ranks that do not fit together any more still tell
            # the rest of their counts, and the report has them.
            if self._recorder is not None:
                self._recorder.take(rank, arrived, ())
            raise
        self._timeline.feed(rank, facts)
        if self._last_steps is not None:
            self._last_steps.add(rank, facts)
        if self._recorder is not None:
            self._recorder.take(rank, arrived, facts)
        return len(facts)

    def note_waits(self) -> None:
        """Passes on the waits outside of virtual time that ranks have had while they were passed over."""
        for wait in self._timeline.take_outside_waits():
            if self._last_steps is not None:
                self._last_steps.waited(wait)
            if self._recorder is not None:
                self._recorder.waited(wait)

    def take_answers(self) -> Answers:
        """The answers that virtual time has given since the last call."""
        answers = self._timeline.take_answers()
        if self._recorder is not None:
            self._recorder.answered(answers)
        if self._mirrored_ranks is not None:
            answers = self._mirrored_ranks.answers.first(answers)
        for rank, _ in answers:
            self._fact_builder.answered(rank)
        return answers

    def rank_ended(self, rank: int) -> None:
        """Handles the end of a rank with exit code 0: if it sent no BYE, this counts as one. Raises Deadlock if others
        wait.
        """
        if self._fact_builder.rank_info[rank].bye is None:
            for ended in self.done_by(rank):
                facts = self._fact_builder.rank_ended(ended)
                self._timeline.feed(ended, facts)
                if self._recorder is not None:
                    self._recorder.take(ended, facts, facts)
            self._release_ended()

    def _release_ended(self) -> None:
        """Handles a BYE. When all ranks have sent one, none has to wait any longer for bytes that it has promised to
        others.
        """
        if all(info.bye is not None and not info.bye.exit_code for info in self._fact_builder.own_info):
            self.stop_all()

    def drain(self, rank: int) -> None:
        """Reads all that the rank, whose process has ended, has sent, however far ahead of virtual time it is."""
        for channel in self._processes.get(rank, ()):
            channel.resume()
        self._ended.add(rank)

    def restart(self, dropped: int) -> None:
        """Prepares a restart, after all processes have ended: `dropped` facts of theirs will not be executed, and ranks
        may connect again.
        """
        for known in (self._channels, self._processes, self._ended, self.pids, self._asked_to_flush, self._flushed):
            known.clear()
        self._backpressure.restart(dropped)
        if self._last_steps is not None:
            self._last_steps.restart()
        if self._recorder is not None:
            self._recorder.give_up("ranks were started again")

    def begin_again(self, rank: int) -> None:
        """Records that another process of the rank goes on in place of one that has ended well."""
        if self._recorder is not None:
            self._recorder.give_up(f"rank {rank} went on with another process")

    def send(self, answers: Answers) -> None:
        """Sends the answers, with one write for each process."""
        parts: dict[tuple[int, int], list[bytes]] = {}
        for rank, encoded in answers:
            process = records.process_asking(encoded) if len(self._processes.get(rank, ())) > 1 else ANY
            parts.setdefault((rank, process), []).append(encoded)
        for (rank, process), encoded_parts in parts.items():
            if rank in self._channels:
                self._channel(rank, process).send(b"".join(encoded_parts))

    def _channel(self, rank: int, process: int) -> Channel:
        """The channel of the process that has asked, or of the rank's latest process for an answer that none asked
        for.
        """
        for channel in self._processes[rank] if process != ANY else ():
            if channel.hello.process == process:
                return channel
        return self._channels[rank]

    def stop_all(self) -> None:
        """Tells every process of every rank to end. What ranks then send is read at once."""
        self.resume_all()
        for channels in self._processes.values():
            for channel in channels:
                if channel.open:
                    channel.resume()
                    channel.send(records.Stop.encode(0))

    def resume(self) -> None:
        """Reads again from paused ranks with which virtual time has nearly caught up."""
        for rank in self._backpressure.may_resume():
            self._channels[rank].resume()

    def resume_all(self) -> bool:
        """Reads again from all paused ranks, which may then run further ahead than before. Returns true if there were
        any.

        This is for a rank that sleeps: it may be waiting for a message that a paused rank would send.
        """
        resumed = self._backpressure.double()
        for rank in resumed:
            self._channels[rank].resume()
        return bool(resumed)
