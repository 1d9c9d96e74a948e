"""The live page of a run: what it is told, and how often."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping
from typing import Any, Protocol

from phantora_async.pages.live_server import LiveServer
from phantora_async.pages.pace import Pace
from phantora_async.pages.view import parts, view

LOOK_S = 0.25
"""How often it is seen whether the next state is due, while somebody looks."""
Document = Mapping[str, Any]


class Run(Protocol):
    """What the coordinator tells."""

    def live_state(self) -> Document:
        """`live`, and what changes all the time of `simulated`."""

    def report_so_far(self) -> Document: ...


class LivePage:
    """``start``; ``show`` a run until cancelled; ``close``."""

    def __init__(self, listening: socket.socket, token: str, script: str, arguments: tuple[str, ...]) -> None:
        self._run: Document = {"script": script, "arguments": list(arguments)}
        self._title = " ".join([script, *arguments])
        self._server = LiveServer(listening, token, self._title)

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        await self._server.start()

    async def show(self, run: Run) -> None:
        often, whole = Pace(), Pace()
        while True:
            await self._server.somebody_looks()
            sent_nbytes = self._server.sent_nbytes
            if whole.due(time.monotonic()):
                began_s = time.perf_counter()
                self._server.publish(self._parts(run.report_so_far(), {}))
                whole.took(time.monotonic(), time.perf_counter() - began_s, sent_nbytes)
            if often.due(time.monotonic()):
                began_s = time.perf_counter()
                state = run.live_state()
                self._server.publish(parts({"live": state["live"], "report": {"simulated": state["simulated"]}}))
                often.took(time.monotonic(), time.perf_counter() - began_s, sent_nbytes)
            await asyncio.sleep(LOOK_S)

    def _parts(self, document: Document, live: Document | None) -> dict[str, Any]:
        return parts(view({**document, "run": self._run}, live) | {"title": self._title})

    async def close(self, document: Document | None, text: str) -> None:
        """The run has ended; `text` says how. `document`: its report, if there is one."""
        last = {} if document is None else self._parts(document, None)
        await self._server.close(last | {"ended": text})
