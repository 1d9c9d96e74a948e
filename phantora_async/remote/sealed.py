"""A TLS connection over a TCP transport that does what asyncio's own does not: paused reading loses nothing when the
other side closes, one direction may end before the other, and the handshake is bounded in bytes.

For what is above it is a transport. ``connection_made`` is called when the handshake has succeeded, ``connection_lost``
also when it has failed. Nothing refers in a circle to a connection that is over: its buffers go at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, cast

from phantora_async.remote import wire

PIECE_NBYTES = 1 << 18
MOST_HANDSHAKE_NBYTES = 1 << 14
"""The most bytes that the other side may send before it is known. A handshake takes about 2 KiB."""
LINGER_S = 10.0
"""The seconds after ``close`` that the other side may take to read what was sent to it, and to close."""


class Cut(ConnectionResetError):
    """The connection ended without the other side's goodbye: by its death, or by somebody on the way."""


class Sealed(asyncio.Transport, asyncio.Protocol):
    def __init__(self, context: ssl.SSLContext, above: asyncio.Protocol, *, server_side: bool) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._above: asyncio.BaseProtocol = above
        self._below: asyncio.Transport | None = None
        self._known = False
        """The handshake has succeeded."""
        self._handshake_nbytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self._heard_all = False
        """The other side has said goodbye: nothing more comes."""
        self._said_all = False
        self._closing = False
        self._lost = False
        self._why: Exception | None = None

    async def handshake(self) -> None:
        """Returns when the other side is known. Raises ssl.SSLError or ConnectionError."""
        if self._lost:
            raise self._why or Cut("the connection was closed")
        if not self._known:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    # ---- as the protocol of what is below ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        if self._closing:  # before it began
            self._below.abort()
            return
        with contextlib.suppress(OSError):  # it has gone already
            wire.prepare(transport.get_extra_info("socket"))
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return  # nobody reads it any more
        self._incoming.write(data)
        if not self._known:
            self._handshake_nbytes += len(data)
            if self._handshake_nbytes > MOST_HANDSHAKE_NBYTES:
                self._fail(ssl.SSLError("a handshake that is too long"))
                return
            self._shake_hands()
        if self._known:
            self._read()

    def eof_received(self) -> bool:
        """Handles the end of the data from below. All of it has been read: below, the end is not reported while reading
        is paused.
        """
        if not self._heard_all and not self._closing:
            self._fail(Cut("the connection was cut"))
        if self._closing:
            self._end()
        return not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._why = self._why or exc
        if self._why is None and not (self._heard_all or self._said_all):
            self._why = Cut("the connection was cut")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._why or Cut("the connection was closed"))
        above, self._above = self._above, asyncio.Protocol()
        above.connection_lost(self._why)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    # ---- inside --------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # it may say why
            self._fail(error)
            return
        self._flush()
        self._known = True
        self._above.connection_made(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read(self) -> None:
        while not (self._paused or self._closing or self._heard_all):
            try:
                data = self._tls.read(PIECE_NBYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                self._fail(error)
                return
            if data:
                cast(asyncio.Protocol, self._above).data_received(data)
                continue
            self._heard_all = True
            if not cast(asyncio.Protocol, self._above).eof_received():
                self.close()
        if not self._lost:
            self._flush()  # an answer of TLS's own

    def _flush(self) -> None:
        if self._below is not None and self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        self._why = self._why or error.with_traceback(None)  # which would hold this object
        self.abort()

    def _end(self) -> None:
        if self._below is not None and not self._lost:
            self._below.close()

    # ---- as the transport of what is above ---------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._said_all or self._closing:
            return
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:PIECE_NBYTES]) :]
            self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Ends this direction with a goodbye; the other side may go on sending."""
        if self._said_all or self._below is None or self._lost:
            return
        self._said_all = True
        if self._known:
            with contextlib.suppress(ssl.SSLError):  # the other side's goodbye has not come yet
                self._tls.unwrap()
            self._flush()
        if not self._below.is_closing():
            self._below.write_eof()

    def close(self) -> None:
        """Closes the connection after what was written. Further data is received and dropped: else it would break the
        connection.
        """
        if self._closing or self._lost:
            return
        self.write_eof()
        self._closing = True
        if self._heard_all or not self._known:
            self._end()
        elif self._below is not None:
            self._below.resume_reading()
            asyncio.get_running_loop().call_later(LINGER_S, self._end)

    def abort(self) -> None:
        self._closing = True
        if self._below is not None and not self._lost:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._above

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        if not self._paused and self._below is not None and not self._closing:
            self._paused = True
            self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and self._below is not None and not self._closing:
            self._paused = False
            self._below.resume_reading()
            asyncio.get_running_loop().call_soon(self._read)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size() if self._below is not None else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default) if self._below is not None else default
