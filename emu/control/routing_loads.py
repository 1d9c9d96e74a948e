"""How often each candidate was chosen by the routing policy: told to the coordinator for the report."""

from __future__ import annotations

from typing import NamedTuple

from ..interpreter.hook_library import Hook


class Place(NamedTuple):
    """A choice of the program, in one layer."""

    module: str
    """The class of the module that chooses; "" if unknown."""
    operation: str
    layer: int
    chosen: int
    """By each row."""
    candidates: int


class RoutingLoads:
    """Totals since the rank's start."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._totals: dict[Place, tuple[int, list[int]]] = {}
        self._lines: dict[Place, str] = {}

    def add(self, line: str, module: str, layer: int, loads: list[int], operation: str, chosen: int) -> None:
        """One call at `line`, `file:line` of the script ("" if unknown). Sends the totals of its place after 1, 2, 4,
        8 ... calls.
        """
        place = Place(module, operation, layer, chosen, len(loads))
        self._lines.setdefault(place, line)
        calls, before = self._totals.get(place, (0, None))
        total = loads if before is None else [a + b for a, b in zip(before, loads, strict=True)]
        calls += 1
        self._totals[place] = calls, total
        if calls & (calls - 1) == 0:
            self._send(place, calls, total)

    def report(self) -> None:
        """Sends all totals, at the rank's end."""
        for place, (calls, loads) in self._totals.items():
            if calls & (calls - 1):
                self._send(place, calls, loads)

    def _send(self, place: Place, calls: int, loads: list[int]) -> None:
        text = f"{self._lines[place]}\n{place.module}\n{place.operation}"
        self._hook.routing(calls, place.layer, place.chosen, loads, text)
