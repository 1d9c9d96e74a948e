"""The page of a run while it lasts, for browsers on this machine.

A browser loads the page once; then it is sent what changes, as server-sent events. Making the state costs the
coordinator time, so it is made only while somebody looks, and the less often the longer it takes: ``Pace``. Whoever
wants the page must know its token. Requests that come from another page, or by another host name (DNS rebinding), are
refused.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from phantora_async.pages.page import page

CLOSE_S = 3.0
"""How long viewers may take to receive the last state."""
KEEP_ALIVE_S = 15.0
MOST_VIEWERS = 100
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LiveServer:
    """``start``, ``publish`` while ``viewers``, ``close``. `listening`: a socket of this machine's own address."""

    def __init__(self, listening: socket.socket, token: str, title: str) -> None:
        port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/?token={token}"
        self.viewers = 0
        self.sent_nbytes = 0
        """To all viewers since the last ``publish``."""
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._token = token.encode()
        self._socket = listening
        self._html = page({"title": title, "report": None, "notes": [], "live": {}}).encode()
        self._parts: dict[str, tuple[int, bytes]] = {}
        """By name: the version in which it changed last, and JSON."""
        self._version = 0
        self._over = False
        self._changed = asyncio.Event()
        self._looked = asyncio.Event()
        """Somebody looks."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/events", self._events)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, handler_cancellation=True)

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def somebody_looks(self) -> None:
        """Returns when there is a viewer."""
        await self._looked.wait()

    def publish(self, parts: Mapping[str, Any]) -> None:
        """Sends those that have changed to all viewers. `parts`: by name, where in the view they belong: ``a.b``."""
        self._version += 1
        self.sent_nbytes = 0
        for name, value in parts.items():
            encoded = orjson.dumps(value)
            known = self._parts.get(name)
            if known is None or known[1] != encoded:
                self._parts[name] = self._version, encoded
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def close(self, last: Mapping[str, Any]) -> None:
        """The run has ended: viewers get its last state, then the server is gone."""
        self._over = True
        self.publish(last)
        waited_s = 0.0
        while self.viewers and waited_s < CLOSE_S:
            await asyncio.sleep(0.02)
            waited_s += 0.02
        await self._runner.cleanup()

    # ---- requests --------------------------------------------------------------------------------------------------

    def _check(self, request: web.Request) -> None:
        """Raises HTTPForbidden."""
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
            raise web.HTTPForbidden(text="the address of this page has a token, which the run has printed\n")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        return web.Response(body=self._html, content_type="text/html", charset="utf-8", headers=HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        if self.viewers >= MOST_VIEWERS:
            raise web.HTTPServiceUnavailable(text=f"{MOST_VIEWERS} pages look at this run already\n")
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        self.viewers += 1
        self._looked.set()
        try:
            await response.prepare(request)
            await self._send_changes(response)
        except ConnectionError:
            pass  # the browser has gone
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._looked.clear()
        return response

    async def _send_changes(self, response: web.StreamResponse) -> None:
        """A slow viewer misses states in between."""
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
