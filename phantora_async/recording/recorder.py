"""Records a run while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.ingest.communicators import Answers
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.recording.given_answers import GivenAnswers
from phantora_async.recording.plain import to_plain
from phantora_async.recording.rows import ROW, Irregular, RecordedRows, Tables
from phantora_async.recording.store import Writer
from phantora_async.run_spec import MachineView, RunSpec
from phantora_async.virtual_time import OutsideWait, Timelines
from phantora_async.virtual_time.facts import ends_step

FILE = "recording"
"""The name of the file in the folder of a recording."""
MOST_ROWS = 1 << 14
"""The most rows of a piece, if its step does not end before: all ranks' unfinished pieces are in memory. They are
counted from the step's begin, so that ranks that do the same have the same pieces, however their records arrive.
"""
_REPORT = records.marked("REPORT")
KEPT = ("kernel_times", "logged", "calls")
"""The parts of the run's report that a replay takes over."""
HISTORY_NBYTES = records.HistoryEntry.size()


class Recorder:
    """Records one run: ``take`` what ranks send, ``answered``, ``waited``; ``close`` when the run has ended."""

    def __init__(self, spec: RunSpec, folder: Path, timelines: Timelines | None = None) -> None:
        """`timelines`: None: each rank has its own."""
        self._spec = spec
        self._timelines = timelines = timelines or Timelines(spec.world_size)
        self._tables = Tables()
        ranks = timelines.own
        self._ranks = {rank: RecordedRows(rank, self._tables) for rank in ranks}
        self._chunks: dict[int, list[int]] = {rank: [] for rank in ranks}
        self._side = {rank: bytearray() for rank in ranks}
        self._answers = {rank: GivenAnswers() for rank in ranks}
        self._history = {rank: bytearray() for rank in ranks}
        self._lists: dict[int, records.HistoryList] = {}
        self._works: dict[int, records.HistoryWork] = {}
        self._waits: list[list[Any]] = []
        self._writer = Writer(folder / FILE)
        self._missing = ""

    def take(self, rank: int, arrived: Sequence[Any], facts: Sequence[Any]) -> None:
        """Takes records of one rank in their order, and the facts that virtual time is fed of them. Raises
        ProtocolError.
        """
        if self._missing:
            return
        rows, side = self._ranks[rank], self._side[rank]
        for record in arrived:
            if record.kind in _REPORT:
                side += _encoded(record)
            elif record.kind == records.HISTORY:
                if len(record.payload) != record.entries * HISTORY_NBYTES:
                    raise ProtocolError(rank, "HISTORY: a payload of another size")
                self._history[rank] += record.payload
            elif record.kind == records.HISTORY_LIST:
                self._lists.setdefault(record.number, record)
            elif record.kind == records.HISTORY_WORK:
                self._works.setdefault(record.work, record)
        try:
            for fact in facts:
                rows.add(fact)
                if ends_step(fact):
                    self._put_rows(rank, rest=True)
            self._put_rows(rank)
        except Irregular as error:
            self.give_up(str(error))
        except OSError as error:
            self.give_up(error.strerror or str(error))

    def _put_rows(self, rank: int, *, rest: bool = False) -> None:
        """Writes whole pieces of rows; `rest`: also the last one, which is not whole."""
        rows = self._ranks[rank]
        while len(rows.rows) > MOST_ROWS * ROW.itemsize or (rest and rows.rows):
            self._chunks[rank].append(self._writer.put(rows.take(MOST_ROWS), ROW.itemsize))

    def answered(self, answers: Answers) -> None:
        """Takes the answers of virtual time, each rank's in the order of its questions."""
        for rank, encoded in answers:
            self._answers[rank].add(encoded)

    def waited(self, wait: OutsideWait) -> None:
        """Takes the wait of a rank that was passed over."""
        place = self._ranks[wait.rank].rows_of(wait.facts_done)
        if wait.cause is None:
            self._waits.append([wait.rank, place, wait.for_ns, -1, 0])
        else:
            rank, facts = wait.cause
            self._waits.append([wait.rank, place, wait.for_ns, rank, self._ranks[rank].rows_of(facts)])

    def give_up(self, reason: str) -> None:
        """Records why the run cannot be recorded; it goes on."""
        self._missing = self._missing or reason

    def close(self, fact_builder: FactBuilder, report: dict[str, Any]) -> str:
        """Writes the recording. Returns the reason why there is none, else an empty text."""
        if not self._missing and report["failure"] is not None:
            self._missing = "the run failed"
        try:
            if not self._missing:
                self._write(fact_builder, report)
        except OSError as error:
            self._missing = error.strerror or str(error)
        if self._missing:
            self._writer.abandon()
        return self._missing

    def _write(self, fact_builder: FactBuilder, report: dict[str, Any]) -> None:
        ranks = []
        for number, rows in self._ranks.items():
            self._put_rows(number, rest=True)
            answers = self._answers[number]
            ranks.append(
                {
                    "rank": number,
                    "chunks": self._chunks[number],
                    "counters": self._writer.put(bytes(rows.counters)),
                    "history": self._writer.put(bytes(self._history[number]), HISTORY_NBYTES),
                    "side": self._writer.put(bytes(self._side[number])),
                    "queries": self._writer.put(bytes(answers.queries)),
                    "elapsed": self._writer.put(bytes(answers.elapsed)),
                    "clocks": self._writer.put(bytes(answers.clocks)),
                    "comms": list(rows.comms),
                    "creations": rows.creations,
                    "facts": rows.facts,
                }
            )
        # The header comes last: it refers to the pieces by number, and a file without it is no recording.
        self._writer.close(
            {
                "ranks": ranks,
                "lists": self._writer.put(b"".join(map(_encoded, self._lists.values()))),
                "works": self._writer.put(b"".join(map(_encoded, self._works.values()))),
                "kernels": [[list(call) for call in kernel] for kernel in self._tables.kernels],
                "comms": [[comm.id, comm.members, comm.devices, comm.label] for comm in self._tables.comms.values()],
                "creations": [[one.label, one.members or sorted(one.joined)] for one in self._tables.creations],
                "waits": self._waits,
                "costs": [[key, one.signature, to_plain(one.cost)] for key, one in fact_builder.costs.known.items()],
                "warnings": [
                    [text, ranks, count * len(ranks)]
                    for text, warned in fact_builder.warnings.items()
                    for count, ranks in _by_count(warned.by_rank(fact_builder.sharing)).items()
                ],
                "spec": _description(self._spec) | {"slowed": sorted(self._timelines.slowed)},
                "report": {name: report["simulated"][name] for name in KEPT if name in report["simulated"]},
            }
        )


def _by_count(counts: Mapping[int, int]) -> dict[int, list[int]]:
    """The ranks that gave a warning, by how often they gave it."""
    found: dict[int, list[int]] = {}
    for rank, count in counts.items():
        found.setdefault(count, []).append(rank)
    return found


def _encoded(record: Any) -> bytes:
    made: bytes = type(record).encode(record.host_ns, *record[4:-1], payload=record.payload, site=record.site)
    return made


def _description(spec: RunSpec) -> dict[str, Any]:
    names = [one.name for one in fields(MachineView)]
    return {name: to_plain(getattr(spec, name)) for name in names} | {"faults": list(map(str, spec.faults))}
