"""A rank without a program: a client of the coordinator's socket that says what a test tells it to."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from emu.contract import records


class FakeRank:
    """``async with FakeRank(socket, rank, world) as r``: says HELLO and announces stream 1 and 2 of device 0."""

    def __init__(self, path: Path, rank: int, world_size: int, version: int = records.VERSION) -> None:
        self._path = path
        self.rank = rank
        self._hello = records.Hello.encode(0, version, rank, world_size, 0, rank, 1, 0, 0, payload=b"node000")
        self._questions = 0
        self._got: list[Any] = []
        self._news = asyncio.Event()
        self._gone = False
        self.world_size = world_size
        self.comm = 0
        self._calls = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_unix_connection(str(self._path))
        self._listening = asyncio.create_task(self._listen())
        self.say(self._hello)
        for stream in (1, 2):
            self.say(records.StreamCreate.encode(0, stream, 0, 0, 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Says nothing more, and hears nothing."""
        self._listening.cancel()
        self._writer.close()

    def say(self, *encoded: bytes) -> None:
        self._writer.write(b"".join(encoded))

    async def _listen(self) -> None:
        """Does what a rank's reader does: takes what comes, and answers FLUSH even while the program sleeps."""
        rest = b""
        with suppress(ConnectionError):
            while data := await self._reader.read(1 << 16):
                found, used = records.decode_down(rest + data)
                rest = (rest + data)[used:]
                self.say(*(records.Flushed.encode(0) for record in found if record.kind == records.FLUSH))
                self._got += (record for record in found if record.kind != records.FLUSH)
                self._news.set()
        self._gone = True
        self._news.set()

    async def hear(self, kind: int) -> Any:
        """Returns the next record of that kind; others are kept for later calls. EOFError if the coordinator has
        gone."""
        while True:
            for place, record in enumerate(self._got):
                if record.kind == kind:
                    return self._got.pop(place)
            if self._gone:
                raise EOFError
            self._news.clear()
            await self._news.wait()

    def launched(self, **launches: int) -> None:
        """Tells launches: ``launched(k7=2)`` says that the signature of key 7 has been launched twice since the last
        call.
        """
        counts = [records.LaunchCount.encode(int(key[1:]), count, 0, 0) for key, count in launches.items()]
        self.say(records.LaunchCounts.encode(0, len(counts), 0, payload=b"".join(counts)))

    async def ask(self, encoded: bytes) -> Any:
        """Sends a question; returns its reply."""
        self.say(encoded)
        (question,), _ = records.decode_up(encoded)
        return await self.hear(records.REPLY_OF[question.kind])

    async def clock(self, after: int = 0) -> int:
        self._questions += 1
        return int((await self.ask(records.ClockRead.encode(after, self._questions))).now_ns)

    async def join_world(self) -> None:
        """Joins the rank's first communicator, of all ranks."""
        ask = records.CommInit.encode(0, 1 << 40, self.world_size, self.rank, self.rank, 0, payload=b"world".ljust(128))
        answer = await self.ask(ask)
        assert (answer.rank, answer.nranks) == (self.rank, self.world_size)
        self.comm = answer.comm

    def collective(
        self, op: int, count: int, *, dtype: int = 0, data: bytes = b"", token: int = 0, after: int = 0, peer: int = 0
    ) -> None:
        part = records.NcclOp.encode(self.comm, self._calls, op, dtype, 0, peer, count, token, len(data), 1.0)
        self._calls += 1
        self.say(records.NcclLaunch.encode(after, 2, 1, payload=part + data.ljust(-(-len(data) // 8) * 8, b"\0")))

    def sync(self) -> None:
        self.say(records.HostWait.encode(0, 3, 0, 0))

    def bye(self, exit_code: int = 0, words: bytes = b"") -> None:
        self.say(records.Bye.encode(0, exit_code, 0, payload=words))
