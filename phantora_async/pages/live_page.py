"""The live page of a run: sends it the run's state, as often as ``Pace`` allows."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from phantora_async.pages.live_server import LiveServer
from phantora_async.pages.pace import Pace
from phantora_async.pages.view import parts, view

LOOK_S = 0.25
"""The seconds between two checks whether the next state is due, while somebody looks."""
Document = Mapping[str, Any]


class Run(Protocol):
    """The source of the live page's data; the coordinator."""

    def progress(self) -> Document:
        """The figures that change all the time: parts of `live`, and of the report's `simulated`."""

    def ranks(self) -> Document:
        """The figures of every rank that change all the time: parts of `live`, and of the report's `simulated`."""

    def report_so_far(self) -> Document: ...


class LivePage:
    """Serves the live page: ``start``; ``show`` a run until cancelled; ``close``."""

    def __init__(
        self,
        listening: socket.socket,
        token: str,
        script: str,
        arguments: tuple[str, ...],
        tell: Callable[[str], None],
    ) -> None:
        """`tell` is called with remarks for the user."""
        self._run: Document = {"script": script, "arguments": list(arguments)}
        self._title = " ".join([script, *arguments])
        self._server = LiveServer(listening, token, self._title, tell)

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        await self._server.start()

    async def show(self, run: Run) -> None:
        def state(document: Document) -> Document:
            return parts({"live": document["live"], "report": {"simulated": document["simulated"]}})

        made: list[tuple[Pace, Callable[[], Document]]] = [
            (Pace(), lambda: self._parts(run.report_so_far(), {})),
            (Pace(), lambda: state(run.ranks())),
            (Pace(), lambda: state(run.progress())),
        ]
        while True:
            await self._server.somebody_looks()
            for pace, make in made:
                if pace.due(time.monotonic()):
                    sent_nbytes, began_s = self._server.sent_nbytes, time.thread_time()
                    self._server.publish(make())
                    pace.took(time.monotonic(), time.thread_time() - began_s, sent_nbytes)
            await asyncio.sleep(LOOK_S)

    def _parts(self, document: Document, live: Document | None) -> dict[str, Any]:
        return parts(view({**document, "run": self._run}, live) | {"title": self._title})

    async def close(self, document: Document | None, text: str) -> None:
        """Sends the last state when the run has ended; `text` says how. `document`: its report, if there is one."""
        last = {} if document is None else self._parts(document, None)
        await self._server.close(last | {"ended": text})
