"""Connections of other machines: who is let in, what is done with the others, and what somebody on the way can do."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from phantora_async import entrance
from phantora_async.errors import MachineFailed
from phantora_async.remote import keys, port, wire
from phantora_async.remote.reach import Streams, reach
from phantora_async.remote.sealed import Cut, Sealed

from .connections import Between, Taken, closed, until

TOKEN, OTHER = "a token that nobody guesses", "another token, as long as it takes"
LIMIT = 1 << 18


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SCRYPT_N", 2)


class Hall:
    """A port, and a passage that takes everybody."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self.remarks: list[str] = []
        self.known: list[str] = []
        self.port = port.Port(TOKEN, self)

    def admit(self, opening: wire.Opening, address: str) -> asyncio.Protocol | None:
        self.taken.append(Taken(opening))
        return self.taken[-1]

    def refused(self, remark: str) -> None:
        self.remarks.append(remark)

    def knows(self, address: str) -> bool:
        return address in self.known

    @property
    def place(self) -> tuple[str, int]:
        return wire.address(self.port.address)

    async def reach(self, token: str = TOKEN, *, through: tuple[str, int] | None = None) -> Streams:
        return await reach(*(through or self.place), keys.context_of(token, keys.MACHINE), 60, LIMIT)

    async def stranger(self) -> Streams:
        return await asyncio.open_connection(*self.place)


@pytest_asyncio.fixture
async def hall() -> AsyncIterator[Hall]:
    found = Hall()
    await found.port.listen("127.0.0.1", 0)
    yield found
    found.port.close()
    await asyncio.sleep(0)


async def test_who_holds_the_token_is_let_in_however_its_bytes_arrive(hall: Hall) -> None:
    between = Between(hall.place, lambda data: [bytes([byte]) for byte in data])
    _, writer = await hall.reach(through=await between.listen())
    writer.write(wire.opening(wire.RANK, 3, 77) + b"rec")
    _, other = await hall.reach()
    other.write(wire.opening(wire.MACHINE) + b"hello")
    await until(lambda: len(hall.taken) == 2 and sum(len(taken.data) for taken in hall.taken) == 8)
    found = {taken.opening: taken.data for taken in hall.taken}
    assert found == {wire.Opening(wire.RANK, 3, 77): b"rec", wire.Opening(wire.MACHINE, 0, 0): b"hello"}
    assert hall.remarks == []
    assert not any(TOKEN.encode() in data or b"hello" in data for data in between.heard)
    for end in (writer, other):
        end.close()
    between.close()


@pytest.mark.parametrize(
    "said", [b"phantora-mach-2\n" + bytes(100), b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(100), bytes(1 << 20)]
)
async def test_others_are_closed_without_an_answer(hall: Hall, said: bytes) -> None:
    reader, writer = await hall.stranger()
    writer.write(said)
    assert await closed(reader) == b""
    writer.close()
    assert hall.taken == []
    assert hall.remarks == ["refused a connection from 127.0.0.1: it does not hold the run's token"]


async def test_a_machine_with_another_token_is_refused_by_both_sides(hall: Hall) -> None:
    with pytest.raises(MachineFailed, match="does not hold this token"):
        await hall.reach(OTHER)
    await until(lambda: hall.remarks)
    careless = keys.context_of(OTHER, keys.MACHINE)
    careless.verify_mode = ssl.CERT_NONE
    reader, writer = await reach(*hall.place, careless, 0, LIMIT)  # it takes the coordinator for the right one
    writer.write(wire.opening(wire.MACHINE) + b"hello")
    assert await closed(reader) == b""
    writer.close()
    assert hall.taken == []
    assert len(hall.remarks) == 2


async def test_each_role_has_a_key_of_its_own(hall: Hall) -> None:
    """A coordinator's key makes no machine: what one coordinator shows is of no use to be let in by another."""
    wrong = keys.context_of(TOKEN, keys.MACHINE)
    certificate, key = keys._identity(keys.secret_of(TOKEN), keys.COORDINATOR)
    keys._load(wrong, certificate + key)
    reader, writer = await reach(*hall.place, wrong, 0, LIMIT)
    writer.write(wire.opening(wire.MACHINE))
    await closed(reader)
    writer.close()
    assert hall.taken == []


async def test_a_handshake_cannot_be_replayed(hall: Hall) -> None:
    between = Between(hall.place)
    _, writer = await hall.reach(through=await between.listen())
    writer.write(wire.opening(wire.MACHINE) + b"hello")
    await until(lambda: hall.taken and hall.taken[0].data)
    reader, again = await hall.stranger()
    for piece in between.heard:
        again.write(piece)
        await asyncio.sleep(0.02)
    await closed(reader)
    assert len(hall.taken) == 1
    for end in (writer, again):
        end.close()
    between.close()


async def test_a_machine_is_not_taken_in_by_its_own_words() -> None:
    """Whoever owns the port sends back what it hears."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    with pytest.raises(MachineFailed, match="no coordinator of this version"):
        await reach(*server.sockets[0].getsockname(), keys.context_of(TOKEN, keys.MACHINE), 0, LIMIT)
    server.close()


async def test_nothing_is_said_to_who_does_not_hold_the_token() -> None:
    heard = Taken()
    anybody = keys.context_of(OTHER, keys.COORDINATOR)
    anybody.verify_mode = ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Sealed(anybody, heard, server_side=True), "127.0.0.1", 0)
    with pytest.raises(MachineFailed, match="does not hold this token"):
        await reach(*server.sockets[0].getsockname(), keys.context_of(TOKEN, keys.MACHINE), 0, LIMIT)
    await until(lambda: heard.ended is not None)
    assert heard.data == b""
    server.close()


@pytest.mark.parametrize("harm", ["changed", "doubled", "cut"])
async def test_who_is_on_the_way_can_only_end_a_connection(hall: Hall, harm: str) -> None:
    known = False

    def change(data: bytes) -> list[bytes]:
        if not known:
            return [data]
        return {"changed": [data[:-1] + bytes([data[-1] ^ 1])], "doubled": [data, data], "cut": [data[:-5]]}[harm]

    between = Between(hall.place, change)
    _, writer = await hall.reach(through=await between.listen())
    writer.write(wire.opening(wire.MACHINE))
    await until(lambda: hall.taken)
    known = True
    said = len(between.heard)
    writer.write(b"five!")
    if harm == "cut":
        await until(lambda: len(between.heard) > said)
        writer.transport.abort()
    await until(lambda: hall.taken[0].ended is not None)
    assert hall.taken[0].data == (b"five!" if harm == "doubled" else b"")
    assert not hall.taken[0].goodbye, "the end is not the machine's own"
    assert hall.taken[0].ended != "None"
    between.close()


async def test_silent_connections_take_no_more_than_their_places(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more of other addresses' places. They have to go although they still have time."""
    monkeypatch.setattr(port, "PATIENCE_S", 10_000.0)
    silent = [await hall.stranger() for _ in range(300)]
    elsewhere = socket.create_connection(hall.place, source_address=("127.0.0.2", 0))
    _, writer = await hall.reach()
    writer.write(wire.opening(wire.MACHINE))
    await until(lambda: hall.taken)
    held = [stranger.address for stranger in hall.port._strangers]
    assert len(held) <= port.MOST_STRANGERS
    assert "127.0.0.2" in held
    assert "others needed its place" in hall.remarks[0]
    assert len(hall.remarks) == port.MOST_REMARKS
    assert hall.remarks[-1].endswith("; more of them are not shown")
    assert await closed(silent[0][0]) == b"", "the oldest one"
    for _, end in silent:
        end.close()
    elsewhere.close()
    writer.close()


async def test_machines_that_have_joined_keep_their_places(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MOST_STRANGERS", 3)
    hall.known.append("127.0.0.2")
    first = [socket.create_connection(hall.place, source_address=("127.0.0.2", 0)) for _ in range(2)]
    await until(lambda: len(hall.port._strangers) == 2)
    others = [socket.create_connection(hall.place) for _ in range(5)]
    await until(lambda: len(hall.remarks) == 4)
    assert [stranger.address for stranger in hall.port._strangers] == ["127.0.0.2", "127.0.0.2", "127.0.0.1"]
    for end in first + others:
        end.close()


async def test_a_process_without_files_lets_a_stranger_go(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "WITHOUT_FILES_S", 0.01)
    reader, first = await hall.stranger()
    await until(lambda: hall.port._strangers)
    waiting = [socket.create_connection(hall.place) for _ in range(10)]
    free = os.dup(0)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        assert await closed(reader) == b""
        assert "others needed its place" in hall.remarks[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    _, writer = await hall.reach()
    writer.write(wire.opening(wire.MACHINE))
    await until(lambda: hall.taken)
    for end in (first, writer, *waiting):
        end.close()


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
async def test_a_connection_that_takes_too_long_is_closed(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(port, "PATIENCE_S", 0.05)
    reader, writer = await hall.stranger()
    writer.write(said)
    assert await closed(reader) == b""
    writer.close()
    text = "refused a connection from 127.0.0.1: it has not shown within 0.05 s that it holds the run's token"
    assert hall.remarks == [text]


async def test_known_machines_must_say_their_opening_in_time(hall: Hall) -> None:
    reader, writer = await hall.reach()
    writer.write(b"half")
    (stranger,) = hall.port._strangers
    await until(lambda: stranger._said == b"half")
    stranger._too_late()
    assert await closed(reader) == b""
    writer.close()
    assert len(hall.remarks) == 1
    assert not hall.port._strangers


async def test_strangers_that_have_gone_leave_no_memory_behind(hall: Hall) -> None:
    """The coordinator hardly ever looks for garbage that refers to itself."""
    gc.collect()
    gc.disable()
    try:
        for count, said in enumerate((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b""), 1):
            _, writer = await hall.stranger()
            writer.write(said)
            writer.close()
            await until(lambda count=count: hall.port._refused == count)
        await until(lambda: not [one for one in gc.get_objects() if isinstance(one, Sealed)])
    finally:
        gc.enable()


async def test_a_reset_is_told(hall: Hall) -> None:
    end = socket.create_connection(hall.place)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await until(lambda: hall.port._strangers)
    end.close()
    await until(lambda: hall.remarks)
    assert "it closed before it had shown that it holds the run's token" in hall.remarks[0]


async def test_a_port_where_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phantora_async.remote.reach.PATIENCE_S", 0.05)
    context = keys.context_of(TOKEN, keys.MACHINE)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = silent.getsockname()
        with pytest.raises(MachineFailed, match="no answer within"):
            await reach(*place, context, 0.1, LIMIT)
    with pytest.raises(MachineFailed, match="cannot reach the coordinator"):
        await reach(*place, context, 0, LIMIT)


# ---- what is above a sealed connection ---------------------------------------------------------------------------


async def pair(hall: Hall) -> tuple[Taken, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await hall.reach()
    writer.write(wire.opening(wire.MACHINE))
    await until(lambda: hall.taken)
    return hall.taken[0], reader, writer


async def test_nothing_is_lost_when_the_other_side_closes_while_reading_is_paused(hall: Hall) -> None:
    taken, _, writer = await pair(hall)
    taken.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(bytes(5_000_000))
    writer.close()
    await asyncio.sleep(0.05)
    assert (taken.data, taken.goodbye) == (b"", False)
    taken.transport.resume_reading()  # type: ignore[attr-defined]
    await until(lambda: taken.goodbye)
    assert len(taken.data) == 5_000_000
    taken.transport.close()
    await until(lambda: taken.ended)
    assert taken.ended == "None"


async def test_one_side_may_end_before_the_other(hall: Hall) -> None:
    taken, reader, writer = await pair(hall)
    writer.write_eof()
    await until(lambda: taken.goodbye)
    taken.transport.write(bytes(3_000_000))  # type: ignore[attr-defined]
    taken.transport.close()
    assert len(await reader.read()) == 3_000_000
    writer.close()


async def test_a_connection_that_breaks_says_so(hall: Hall) -> None:
    taken, _, writer = await pair(hall)
    writer.transport._below.close()  # type: ignore[attr-defined]
    await until(lambda: taken.ended)
    assert taken.ended == str(Cut("the connection was cut"))
