"""Collects the responses that ranks have generated with lengths of `--lengths`, from GENERATION records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from emu.contract import records


class Responses(NamedTuple):
    """The responses of one rank by one program, since the rank's start."""

    batches: int
    responses: int
    ended: int
    """The responses whose end token was sampled; the others were cut."""
    tokens: int
    longest: int
    """The tokens of the longest response."""
    places: int
    """The tokens that there would be if each response were as long as the longest of its batch."""


@dataclass(slots=True)
class GeneratedResponses:
    programs: dict[str, dict[int, Responses]] = field(default_factory=dict)
    """The totals by the program that generates, then by rank."""

    def take(self, rank: int, record: records.Generation) -> None:
        """Takes a record. Its totals replace those of the one before."""
        program = record.payload.decode(errors="replace").rstrip("\0")
        self.programs.setdefault(program, {})[rank] = Responses(
            record.batches, record.responses, record.ended, record.tokens, record.longest, record.places
        )
