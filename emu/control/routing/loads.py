"""Counts how often each candidate was chosen by the routing policy, and tells the coordinator for the report."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ...interpreter.hook_library import Hook


class RouterLayer(NamedTuple):
    """A layer that chooses among candidates by scores, such as a router of a mixture of experts."""

    module: str
    """The class of the module that chooses; "" if the program does so while no module is called, or chooses classes."""
    operation: str
    layer: int
    chosen: int
    """The number of candidates that each row chooses."""
    candidates: int


class CountedChoice:
    """One call of a router: it counts once its indices are used and its loads are known, whichever comes last. In a
    CUDA graph they become known again at each launch.
    """

    def __init__(self, loads: RoutingLoads, router: RouterLayer, line: str) -> None:
        self._loads, self._router, self._line = loads, router, line
        self._used = False
        self._chosen: list[int] | None = None

    def used(self, labels: bool = False) -> None:
        """Notes that the program uses the indices. `labels`: it compares them with labels, so they are classes and no
        experts.
        """
        if labels:
            self._router = self._router._replace(module="")
        self._used = True
        if self._count():
            self._loads.send(self._router)

    def known(self, chosen: list[int]) -> None:
        """Takes note of how often each candidate was chosen. It may be called on the hook's thread, which must not send
        records.
        """
        self._chosen = chosen
        self._count()

    def _count(self) -> bool:
        with self._loads.lock:
            chosen = self._chosen
            if not self._used or chosen is None:
                return False
            self._chosen = None
            self._loads.add(self._router, self._line, chosen)
            return True


class RoutingLoads:
    """The totals of all routers since the rank's start."""

    def __init__(self, hook: Hook) -> None:
        self.lock = threading.Lock()
        self._hook = hook
        self._totals: dict[RouterLayer, tuple[int, list[int]]] = {}
        self._sent: dict[RouterLayer, int] = {}
        self._lines: dict[RouterLayer, str] = {}

    def add(self, router: RouterLayer, line: str, loads: list[int]) -> None:
        """Adds one call at `line`, `file:line` of the script ("" if unknown). The caller holds the lock."""
        self._lines.setdefault(router, line)
        calls, before = self._totals.get(router, (0, None))
        total = loads if before is None else [a + b for a, b in zip(before, loads, strict=True)]
        self._totals[router] = calls + 1, total

    def send(self, router: RouterLayer) -> None:
        """Sends the totals of the router, after 1, 2, 4, 8 ... calls."""
        if self._totals[router][0] >= 2 * self._sent.get(router, 0):
            self._send(router)

    def report(self) -> None:
        """Sends all totals, at the rank's end."""
        for router in list(self._totals):
            self._send(router)

    def _send(self, router: RouterLayer) -> None:
        calls, loads = self._totals[router]
        if calls == self._sent.get(router, 0):
            return
        self._sent[router] = calls
        text = f"{self._lines[router]}\n{router.module}\n{router.operation}"
        self._hook.routing(calls, router.layer, router.chosen, loads, text)
