"""Connections of other machines: who is let in, and what is done with the others."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest

from phantora_async.errors import UsageError
from phantora_async.liveness.sleep_detector import NotKnownYet, SleepDetector
from phantora_async.remote import machines, port, wire
from phantora_async.remote.remote_processes import RemoteProcesses, pid_of

TOKEN = "a token that nobody guesses"


class Taken(asyncio.Protocol):
    def __init__(self, opening: wire.Opening) -> None:
        self.opening = opening
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data


class Hall:
    """A passage that takes everybody."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self.remarks: list[str] = []

    def admit(self, opening: wire.Opening, address: str) -> asyncio.Protocol | None:
        self.taken.append(Taken(opening))
        return self.taken[-1]

    def refused(self, remark: str) -> None:
        self.remarks.append(remark)


def with_port(scenario: Any) -> Hall:
    """Runs ``scenario(connect, hall)`` beside a port."""
    hall = Hall()

    async def run() -> None:
        found = port.Port(TOKEN, hall)
        await found.listen("127.0.0.1", 0)
        host, number = wire.address(found.address)

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(host, number)

        try:
            await scenario(connect, hall)
        finally:
            found.close()

    asyncio.run(run())
    return hall


def test_who_knows_the_token_is_let_in_however_its_bytes_arrive() -> None:
    async def scenario(connect: Any, hall: Hall) -> None:
        _, writer = await connect()
        for byte in wire.opening(wire.RANK, TOKEN, 3, 77) + b"rec":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        _, other = await connect()
        other.write(wire.opening(wire.MACHINE, TOKEN) + b"hello")
        while len(hall.taken) < 2 or sum(len(taken.data) for taken in hall.taken) < 8:
            await asyncio.sleep(0)
        for end in (writer, other):
            end.close()

    hall = with_port(scenario)
    found = {taken.opening: taken.data for taken in hall.taken}
    assert found == {wire.Opening(wire.RANK, 3, 77): b"rec", wire.Opening(wire.MACHINE, 0, 0): b"hello"}
    assert hall.remarks == []


@pytest.mark.parametrize(
    "said",
    [
        wire.opening(wire.RANK, "another token"),
        wire.opening(b"something else\n\n", TOKEN),
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(100),
        bytes(1 << 20),
    ],
)
def test_others_are_closed_without_an_answer(said: bytes) -> None:
    async def scenario(connect: Any, hall: Hall) -> None:
        reader, writer = await connect()
        writer.write(said)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    hall = with_port(scenario)
    assert hall.taken == []
    assert hall.remarks == ["refused a connection from 127.0.0.1: it does not know the run's token"]


def test_silent_connections_take_no_more_than_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MOST_WAITING", 4)

    async def scenario(connect: Any, hall: Hall) -> None:
        silent = [await connect() for _ in range(6)]
        while len(hall.remarks) < 2:
            await asyncio.sleep(0)
        silent[0][1].close()
        while len(hall.remarks) < 3:
            await asyncio.sleep(0)
        _, writer = await connect()
        writer.write(wire.opening(wire.RANK, TOKEN))
        while not hall.taken:
            await asyncio.sleep(0)
        for _, end in silent:
            end.close()
        writer.close()

    hall = with_port(scenario)
    assert sum("too many connections wait" in remark for remark in hall.remarks[:2]) == 2
    assert "it closed before it had said the run's token" in hall.remarks[2]


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "PATIENCE_S", 0.01)

    async def scenario(connect: Any, hall: Hall) -> None:
        reader, writer = await connect()
        assert await reader.read() == b""
        writer.close()

    assert with_port(scenario).remarks == ["refused a connection from 127.0.0.1: it said nothing for 0.01 s"]


def test_only_the_first_refusals_are_told() -> None:
    async def scenario(connect: Any, hall: Hall) -> None:
        for _ in range(8):
            reader, writer = await connect()
            writer.write(bytes(wire.NBYTES))
            assert await reader.read() == b""
            writer.close()

    remarks = with_port(scenario).remarks
    assert len(remarks) == port.MOST_REMARKS
    assert remarks[-1].endswith("; more of them are not shown")


def test_the_opening_does_not_contain_the_token() -> None:
    opening = wire.opening(wire.RANK, TOKEN, 1, 2)
    assert len(opening) == wire.NBYTES == struct.calcsize(">16s32sII")
    assert TOKEN.encode() not in opening
    assert wire.read_opening(opening, TOKEN) == wire.Opening(wire.RANK, 1, 2)
    assert wire.read_opening(opening, TOKEN + " ") is None


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wire.TOKEN_VARIABLE, raising=False)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert (wire.read_token(file), wire.read_token(None)) == (TOKEN, "")
    monkeypatch.setenv(wire.TOKEN_VARIABLE, TOKEN)
    assert wire.read_token(None) == TOKEN
    for content, said in ((b"", "empty"), (b"short", "too short"), (b"\xff\xfe" * 20, "not text")):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            wire.read_token(file)
    with pytest.raises(UsageError, match="No such file"):
        wire.read_token(tmp_path / "none")


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536"])
def test_impossible_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        wire.address(text)


def test_servers_are_spread_evenly() -> None:
    for servers in range(1, 20):
        for count in range(1, servers + 1):
            parts = [machines._portion(servers, count, number) for number in range(count)]
            assert [server for part in parts for server in part] == list(range(servers))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_threads_of_another_machine_are_asked_for_and_used_once() -> None:
    asked: list[tuple[int, int]] = []
    processes = RemoteProcesses(lambda machine, pid: asked.append((machine, pid)))
    number = pid_of(1, 4711)
    detector = SleepDetector(processes)
    assert not detector.look(0, number, 0)
    with pytest.raises(NotKnownYet):
        processes.threads(number)
    assert asked == [(1, 4711)], "one question at a time"
    sleeping = {"4711": ["python", True, True, 5_000]}
    for _ in range(2):
        processes.answered(1, 4711, sleeping)
        slept = detector.look(0, number, 0)
        assert not detector.look(0, number, 0), "an answer tells nothing twice"
    assert slept
    assert detector.runnable(number), "as long as it is not known"
    processes.answered(1, 4711, None)
    assert processes.threads(number) is None
