"""Whatever bytes come over the network: nobody is let in by them, and a machine that has joined is lost by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.contract import records
from phantora_async.errors import UsageError
from phantora_async.remote import keys, wire
from phantora_async.remote.machines import Machines
from phantora_async.remote.sealed import MOST_HANDSHAKE_NBYTES, Sealed

from .damage import damaged_document, damaged_text, fuzz

TOKEN = "a token that nobody guesses"
SAID = b"so be it"
MESSAGES: list[dict[str, Any]] = [
    {"event": "isolation", "level": "none", "reason": "x"},
    {"event": "ready", "torch": "2.15.0", "python": "3.11.7"},
    {"event": "started", "rank": 0, "server": 0, "pid": 77},
    {"event": "threads", "pid": 77, "threads": {"77": ["python", True, True, 5_000]}},
    {"event": "exited", "rank": 1, "server": 0, "code": 0, "signal": None, "untold": False},
    {"event": "done"},
]


class Below(asyncio.Transport):
    """A transport that keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.ended = False

    def write(self, data: Any) -> None:
        self.said += data

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    abort = close


class Above(asyncio.Protocol):
    """Nobody may come so far."""

    known = False
    heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.known = True

    def data_received(self, data: bytes) -> None:
        self.heard += data


@pytest.fixture(scope="module")
def contexts() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "SCRYPT_N", 2)
        return [keys.context_of(TOKEN, role) for role in (keys.COORDINATOR, keys.MACHINE)]


class Side:
    def __init__(self, context: Any, *, server_side: bool) -> None:
        self.below, self.above = Below(), Above()
        self.sealed = Sealed(context, self.above, server_side=server_side)
        self.sealed.connection_made(self.below)

    def hear(self, other: Side) -> None:
        said, other.below.said = other.below.said, b""
        if said:
            self.sealed.data_received(said)


@fuzz(150)
@given(said=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda some: b"\x16\x03\x01" + some)))
def test_any_bytes_of_a_stranger(contexts: Any, said: bytes) -> None:
    coordinator = Side(contexts[0], server_side=True)
    for place in range(0, len(said), 50):
        coordinator.sealed.data_received(said[place : place + 50])
    assert not coordinator.above.known
    coordinator.sealed.data_received(bytes(MOST_HANDSHAKE_NBYTES))
    assert coordinator.below.ended


@fuzz(150)
@given(data=st.data(), turn=st.integers(0, 3))
def test_damage_on_the_way(contexts: Any, data: st.DataObject, turn: int) -> None:
    """One byte of the handshake, or of what follows it, is changed: what is heard is still what was said. (TLS ignores
    a byte of the first record's head.)
    """
    sides = Side(contexts[1], server_side=False), Side(contexts[0], server_side=True)
    for now in range(4):
        speaker, hearer = sides if now % 2 == 0 else sides[::-1]
        if speaker.above.known:
            speaker.sealed.write(SAID)
        said_nbytes = len(speaker.below.said)
        if now == turn and said_nbytes:
            said = bytearray(speaker.below.said)
            said[data.draw(st.integers(0, len(said) - 1))] ^= data.draw(st.integers(1, 255))
            speaker.below.said = bytes(said)
        hearer.hear(speaker)
        assert hearer.above.heard in (b"", SAID, SAID * 2)
        if now == turn >= 1 and said_nbytes:
            assert hearer.above.heard == b""


def speak(lines: bytes) -> list[dict[str, Any]]:
    """Returns what the session hears of a machine that says this."""

    async def run() -> list[dict[str, Any]]:
        found = Machines((2,), TOKEN)
        found.expect([[0]])
        speaker = found.admit(wire.Opening(wire.MACHINE, 0, 0), "10.0.0.8")
        assert speaker is not None
        speaker.connection_made(Below())
        speaker.data_received(wire.encode("hello", version=records.VERSION, name="x", seat=-1))
        await found.start({})
        speaker.data_received(lines)
        heard = []
        while not found._events.empty():
            heard.append(found._events.get_nowait())
        return heard[1:]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "context_of", lambda token, role: None)
        return asyncio.run(run())


def check(heard: list[dict[str, Any]]) -> None:
    for message in heard:
        if message["event"] == "machine_lost":
            assert message["address"] == "10.0.0.8"
        else:
            wire.check_machine_says(message)
            assert message.get("rank", 0) in (0, 1)
            assert message.get("server", 0) == 0


@fuzz(200)
@given(message=st.sampled_from(MESSAGES).flatmap(damaged_document))
def test_messages_with_wrong_values(message: Any) -> None:
    check(speak(json.dumps(message).encode() + b"\n"))


@fuzz(150)
@given(text=damaged_text("\n".join(map(json.dumps, MESSAGES)) + "\n"))
def test_messages_with_wrong_text(text: str) -> None:
    check(speak(text.encode(errors="surrogatepass")))


@fuzz(300)
@given(text=st.one_of(damaged_text("node-1:29400"), st.text(max_size=300)))
def test_addresses(text: str) -> None:
    try:
        host, port = wire.address(text)
    except UsageError:
        return
    assert 0 < port < 65_536
    assert 0 < len(host) < 254
    host.encode("idna")
