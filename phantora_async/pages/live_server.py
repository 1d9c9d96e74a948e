"""Serves the page of a run while it lasts, for browsers on this machine.

A browser loads the page once; then it is sent what changes, as server-sent events. Making the state costs the
coordinator time, so it is made only while somebody looks, and the less often the longer it takes: ``Pace``. Whoever
wants the page must know its token. Requests that come from another page, or by another host name (DNS rebinding), are
refused. A connection that does not become a viewer may last PATIENCE_S, and is closed first when there are too many.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from phantora_async.entrance import MOST_VISITORS, Entrance
from phantora_async.pages.page import page
from phantora_async.wording import utf8

CLOSE_S = 3.0
"""The seconds that viewers may take to receive the last state."""
KEEP_ALIVE_S = 15.0
MOST_VIEWERS = 100
PATIENCE_S = 30.0
"""The seconds for which a connection may last that is no viewer's."""
IDLE_S = 10.0
"""The seconds for which it may last without a request."""
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LiveServer:
    """Serves the page: ``start``, ``publish`` while there are ``viewers``, ``close``. Implements the entrance's
    ``Visitors``.
    """

    def __init__(self, listening: socket.socket, token: str, title: str, tell: Callable[[str], None]) -> None:
        """`listening`: a socket with an address of this machine; `tell` is called with remarks for the user."""
        port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/?token={token}"
        self.viewers = 0
        self.sent_nbytes = 0
        """The bytes sent to all viewers since the last ``publish``."""
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._token = token.encode()
        self._entrance = Entrance(listening, self)
        self._visits: dict[object, _Visit] = {}
        """The visits by aiohttp's protocol, the oldest one first."""
        self._html = page({"title": title, "report": None, "notes": [], "live": {}}).encode(errors="backslashreplace")
        self._parts: dict[str, tuple[int, bytes]] = {}
        """The parts by name: the version in which each changed last, and its JSON."""
        self._version = 0
        self._over = False
        self._changed = asyncio.Event()
        self._looked = asyncio.Event()
        """Set while somebody looks."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/events", self._events)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=IDLE_S,
            lingering_time=0,
            logger=_logger(tell),
        )

    async def start(self) -> None:
        await self._runner.setup()
        self._entrance.open()

    async def somebody_looks(self) -> None:
        """Waits until there is a viewer."""
        await self._looked.wait()

    def publish(self, parts: Mapping[str, Any]) -> None:
        """Sends the changed parts to all viewers. `parts`: by name, which says where in the view they belong:
        ``a.b``.
        """
        self._version += 1
        self.sent_nbytes = 0
        for name, value in parts.items():
            encoded = orjson.dumps(utf8(value))
            known = self._parts.get(name)
            if known is None or known[1] != encoded:
                self._parts[name] = self._version, encoded
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def close(self, last: Mapping[str, Any]) -> None:
        """Ends the server after the run: viewers get the last state first."""
        self._over = True
        self.publish(last)
        waited_s = 0.0
        while self.viewers and waited_s < CLOSE_S:
            await asyncio.sleep(0.02)
            waited_s += 0.02
        self._entrance.close()
        await self._runner.cleanup()

    # ---- connections -----------------------------------------------------------------------------------------------

    def take_in(self, address: str) -> asyncio.BaseProtocol:
        assert self._runner.server is not None, "start comes first"
        handler = self._runner.server()
        self._visits[handler] = visit = _Visit(handler, self._visits)
        if len(self._visits) > MOST_VISITORS:
            self.send_one_away()
        return visit

    def lost(self, protocol: asyncio.BaseProtocol, error: OSError) -> None:
        cast(_Visit, protocol).leave()

    def crowd(self) -> bool:
        return len(self._visits) - self.viewers > (MOST_VISITORS - MOST_VIEWERS) // 2

    def send_one_away(self) -> None:
        for visit in self._visits.values():
            if not visit.looks:
                visit.leave()
                return

    # ---- requests --------------------------------------------------------------------------------------------------

    def _check(self, request: web.Request) -> None:
        """Checks the request's origin and token. Raises HTTPForbidden."""
        if request.host not in self._hosts:
            raise web.HTTPForbidden(text="this page has no such host name\n")
        origin = request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            raise web.HTTPForbidden(text="requests of other pages are refused\n")
        # A link of another page may be followed, if it knows the token; anything else of another page may not.
        of_another = request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")
        if of_another and request.headers.get("Sec-Fetch-Mode") != "navigate":
            raise web.HTTPForbidden(text="requests of other pages are refused\n")
        if not hmac.compare_digest(request.query.get("token", "").encode(), self._token):
            raise web.HTTPForbidden(text="open the whole address that the run has printed: it has a token\n")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        return web.Response(body=self._html, content_type="text/html", charset="utf-8", headers=HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        if self.viewers >= MOST_VIEWERS:
            raise web.HTTPServiceUnavailable(text=f"{MOST_VIEWERS} pages show this run already\n")
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        self.viewers += 1
        self._looked.set()
        visit = self._visits.get(request.protocol)
        if visit is not None:
            visit.looks = True
        try:
            await response.prepare(request)
            await self._send_changes(response)
        except ConnectionError:
            pass  # the browser has gone
        finally:
            self.viewers -= 1
            if visit is not None:
                visit.looks = False
                visit.limit()
            if not self.viewers:
                self._looked.clear()
        return response

    async def _send_changes(self, response: web.StreamResponse) -> None:
        """Sends changes until the end. A slow viewer misses states in between."""
        seen = 0
        while True:
            changed = self._changed
            over, version = self._over, self._version
            parts = [(name, part) for name, (since, part) in self._parts.items() if since > seen]
            if parts:
                seen = version
                text = b",".join(b"%s:%s" % (orjson.dumps(name), part) for name, part in parts)
                await self._send(response, b"data: {%s}\n\n" % text)
            if over:
                await self._send(response, b"event: over\ndata: {}\n\n")
                return
            try:
                await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
            except TimeoutError:
                await self._send(response, b": still there\n\n")

    async def _send(self, response: web.StreamResponse, content: bytes) -> None:
        self.sent_nbytes += len(content)
        await response.write(content)


class _Visit(asyncio.Protocol):
    """A connection, which passes its data to aiohttp's protocol."""

    def __init__(self, handler: asyncio.Protocol, visits: dict[object, _Visit]) -> None:
        self._handler = handler
        self._visits = visits
        self._transport: asyncio.Transport | None = None
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self.looks = False
        self.limit()

    def limit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._too_late)

    def _too_late(self) -> None:
        if not self.looks:
            self.leave()

    def leave(self) -> None:
        self._over = True
        self._visits.pop(self._handler, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._handler.connection_made(transport)
        if self._over:  # before it began
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc)
        self.leave()


def _logger(tell: Callable[[str], None]) -> logging.Logger:
    """A logger that passes on aiohttp's messages without tracebacks. Requests that no browser would send are answered,
    but not reported.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError):
                tell(f"live page: {record.getMessage()}{f': {error!r}' if error is not None else ''}")

    logger = logging.Logger("live page", logging.ERROR)
    logger.addHandler(Handler())
    return logger
