"""Both ends of connections, and somebody between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from phantora_async.remote import wire


class Taken(asyncio.Protocol):
    def __init__(self, opening: wire.Opening | None = None) -> None:
        self.opening = opening
        self.data = b""
        self.ended: str | None = None
        self.goodbye = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.goodbye = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = str(exc)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Returns what comes until the other side has gone."""
    with contextlib.suppress(OSError):  # reset, or told why
        return await reader.read()
    return b""


class Between:
    """Passes on what two sides say, as `change` has it, and keeps what the machine has said."""

    def __init__(self, to: tuple[str, int], change: Callable[[bytes], list[bytes]] = lambda data: [data]) -> None:
        self._to = to
        self._change = change
        self._servers: list[asyncio.Server] = []
        self.heard: list[bytes] = []

    async def listen(self) -> tuple[str, int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._servers.append(server)
        return "127.0.0.1", server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._to)

        async def there() -> None:
            while data := await reader.read(1 << 16):
                self.heard.append(data)
                for piece in self._change(data):
                    far_writer.write(piece)
                    await far_writer.drain()
            far_writer.close()

        async def back() -> None:
            while data := await far_reader.read(1 << 16):
                writer.write(data)
            writer.close()

        with contextlib.suppress(ConnectionError):
            await asyncio.gather(there(), back())

    def close(self) -> None:
        for server in self._servers:
            server.close()
