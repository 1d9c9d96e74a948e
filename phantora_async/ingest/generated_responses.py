"""Collects the responses that ranks have generated with lengths of `--lengths`, from GENERATION records."""

from __future__ import annotations

from dataclasses import dataclass, field

from emu.contract import records


@dataclass(slots=True)
class GeneratedResponses:
    programs: dict[str, dict[int, records.Generation]] = field(default_factory=dict)
    """The last record, whose totals count, by the program that generates, then by rank."""

    def take(self, rank: int, record: records.Generation) -> None:
        program = record.payload.decode(errors="replace").rstrip("\0")
        self.programs.setdefault(program, {})[rank] = record
