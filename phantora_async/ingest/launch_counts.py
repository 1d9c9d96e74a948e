"""Counts how often ranks launched each signature: over the whole run, and over the steps whose figures count."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from emu.contract import records
from emu.contract.records import RecordError
from phantora_async.errors import ProtocolError
from phantora_async.virtual_time.results import WARM_UP


class Launched(NamedTuple):
    """The launches of one signature."""

    launches: int
    slowed_ns: int
    """The ns that the GPU's power limit added to the cost of all of them."""


NONE = Launched(0, 0)
Counts = Mapping[int, Launched]
"""Launches by the key of a cost."""
Key = TypeVar("Key", bound=Hashable)


class StepCounts(Generic[Key]):
    """The class counts what one rank does, since its start and between step ends."""

    __slots__ = ("_at_ends", "_at_first_steps", "_steps", "total")

    def __init__(self) -> None:
        self.total: dict[Key, Launched] = {}
        """The counts since the rank's start."""
        self._at_first_steps: list[Mapping[Key, Launched]] = []
        """The totals at the first WARM_UP + 1 step ends."""
        self._at_ends: dict[int, Mapping[Key, Launched]] = {}
        """The totals at the end of the last step that virtual time has come to, and of those after it, by number."""
        self._steps = 0

    def step_ended(self, reached: int) -> None:
        """Takes the counts until now as those at the end of a step. `reached`: the number of the rank's step ends that
        virtual time has come to.
        """
        counts = self.total.copy()
        self._at_ends = {number: one for number, one in self._at_ends.items() if number >= reached - 1}
        self._at_ends[self._steps] = counts
        self._steps += 1
        if len(self._at_first_steps) <= WARM_UP:
            self._at_first_steps.append(counts)

    def restart(self, steps: int) -> None:
        """Prepares for a new process of the rank: the first `steps` of its step ends count."""
        self._steps = steps
        self._at_ends.clear()
        del self._at_first_steps[steps:]
        while len(self._at_first_steps) < min(steps, WARM_UP + 1):
            self._at_first_steps.append(self.total.copy())

    def between_steps(self, first: int, last: int) -> Mapping[Key, Launched] | None:
        """The launches between two step ends, given by number; None if the counts at one of them are not kept."""
        if first >= len(self._at_first_steps) or last not in self._at_ends:
            return None
        before = self._at_first_steps[first]
        differences = {}
        for key, (launches, slowed_ns) in self._at_ends[last].items():
            earlier = before.get(key, NONE)
            if launches > earlier.launches:
                differences[key] = Launched(launches - earlier.launches, slowed_ns - earlier.slowed_ns)
        return differences


class LaunchCounts(StepCounts[int]):
    """One rank's launches by the key of their cost, from its LAUNCH_COUNTS and MARKER records."""

    __slots__ = ("sites",)

    def __init__(self) -> None:
        super().__init__()
        self.sites: dict[int, int] = {}
        """The number of the site at which a signature was launched first, of the last record that tells it."""

    def add(self, rank: int, record: records.LaunchCounts, check: Callable[[int, int], None]) -> None:
        """Adds the counts of a record. `check`: raises ProtocolError for a key that the rank cannot know. Raises it
        also for a record shorter than it says.
        """
        try:
            counts = records.LaunchCount.decode_all(record.payload, 0, record.entries)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        for key, launches, slowed_ns, at_site in counts:
            if at_site:
                self.sites[key] = at_site
            before = self.total.get(key)
            if before is None:
                check(rank, key)
                before = NONE
            self.total[key] = Launched(before.launches + launches, before.slowed_ns + slowed_ns)
