"""Machines that join: the token, addresses, which servers they get, and what they may say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async.errors import UsageError
from phantora_async.ingest.channel import Channel
from phantora_async.liveness.sleep_detector import NotKnownYet, SleepDetector
from phantora_async.remote import keys, machines, wire
from phantora_async.remote.remote_processes import RemoteProcesses, pid_of

TOKEN = "a token that nobody guesses"


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SCRYPT_N", 2)


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wire.TOKEN_VARIABLE, raising=False)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert (wire.read_token(file), wire.read_token(None)) == (TOKEN, "")
    monkeypatch.setenv(wire.TOKEN_VARIABLE, TOKEN)
    assert wire.read_token(None) == TOKEN
    wrong = ((b"", "empty"), (b"short", "too short"), (b"password-password", "too short"), (b"a" * 70, "too short"))
    for content, said in (*wrong, (b"\xff\xfe" * 20, "not text"), (bytes(5000), "no token")):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            wire.read_token(file)
    with pytest.raises(UsageError, match="No such file"):
        wire.read_token(tmp_path / "none")


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "host:", ":1", "host:x", "host:65536", "host:0", "host:-1", "host:１２", "host:²", "host:1_0"),
        *("host:" + "9" * 5000, "h" * 64 + ":1", "h." * 200 + ":1", "a..b:1", "a b:1", "a\nb:1", "a\0:1", "[]:1"),
    ],
)
def test_impossible_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT") as raised:
        wire.address(text)
    assert len(str(raised.value)) < 200


def test_addresses() -> None:
    assert wire.address("node-1.cluster:65535") == ("node-1.cluster", 65_535)
    assert wire.address("[::1]:1") == ("::1", 1)
    assert wire.address("10.0.0.1:0", least_port=0) == ("10.0.0.1", 0)


def test_servers_are_spread_evenly() -> None:
    for servers in range(1, 20):
        for count in range(1, servers + 1):
            parts = machines.portions(range(servers), count)
            assert [server for part in parts for server in part] == list(range(servers))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


class Transport(asyncio.Transport):
    """The transport of a machine that a test speaks for."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        pass


async def say(*messages: dict[str, Any] | bytes) -> list[dict[str, Any]]:
    """Returns what the session hears of the first of two machines, which has server 0 with ranks 0 and 1."""
    found = machines.Machines((2, 2), TOKEN)
    found.expect([[0], [1]])
    speakers = [found.admit(wire.Opening(wire.MACHINE, 0, 0), address) for address in ("10.0.0.8", "10.0.0.9")]
    for speaker in speakers:
        assert speaker is not None
        speaker.connection_made(Transport())
        speaker.data_received(wire.encode("hello", version=records.VERSION, name="x", seat=-1))
    await found.start({})
    for message in messages:
        encoded = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        speakers[0].data_received(encoded)  # type: ignore[union-attr]
    heard = []
    while not found._events.empty():
        heard.append(found._events.get_nowait())
    return heard[2:]


EXITED = {"event": "exited", "rank": 1, "server": 0, "code": 1, "signal": None, "untold": False}


async def test_a_machine_speaks_of_its_own_servers() -> None:
    assert await say(EXITED) == [EXITED]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (EXITED | {"rank": 2}, "exited of rank 2, which is not on this machine"),
        (EXITED | {"server": 1}, "exited of server 1, which is not on this machine"),
        (EXITED | {"code": "no"}, "exited with code = 'no'"),
        (EXITED | {"rank": True}, "exited with rank = True"),
        ({"event": "exited"}, "exited with rank = None"),
        ({"event": "machine_lost", "address": "x", "servers": [], "why": ""}, "'machine_lost' is unknown"),
        ({"event": "hello", "version": records.VERSION, "name": "x", "seat": -1}, "hello out of order"),
        (b"[" * 100_000 + b"\n", "nested too deep"),
        (b"\xff\xfe\n", "can't decode"),
        (b"{}\n", "not a message"),
    ],
)
async def test_other_messages_end_the_run_naming_the_machine(message: Any, said: str) -> None:
    (lost,) = await say(message)
    assert (lost["event"], lost["address"], lost["servers"]) == ("machine_lost", "10.0.0.8", [0])
    assert said in lost["why"]


async def test_a_machine_that_says_its_seat_gets_that_portion() -> None:
    found = machines.Machines((2, 2, 2), TOKEN)
    found.expect([[0, 1], [2]])
    speakers = []
    for seat in (1, 1, 7, 0):
        speaker = found.admit(wire.Opening(wire.MACHINE, 0, 0), f"10.0.0.{seat}")
        assert isinstance(speaker, machines._Machine)
        speaker.connection_made(Transport())
        speaker.data_received(wire.encode("hello", version=records.VERSION, name="x", seat=seat))
        speakers.append(speaker)
    assert [speaker.servers for speaker in speakers] == [[2], [], [], [0, 1]]
    remarks = [found._events.get_nowait()["remark"] for _ in range(found._events.qsize())]
    assert remarks[1:3] == [
        "refused a connection from 10.0.0.1: there is no place 1 for it",
        "refused a connection from 10.0.0.7: there is no place 7 for it",
    ]


async def test_a_rank_of_another_machine_is_none_of_its_own() -> None:
    found = machines.Machines((2, 2), TOKEN)
    failures: list[Exception] = []

    class Failed:
        def failed(self, error: Exception) -> None:
            failures.append(error)

    channel = Channel(Failed(), 77, found._ranks[0])  # type: ignore[arg-type]
    channel.data_received(records.Hello.encode(0, records.VERSION, 2, 4, 0, 0, 1, 0, 0, payload=b"node000"))
    assert "rank 2: " in str(failures[0])
    assert "not one of the ranks of the machine that sent it" in str(failures[0])


def test_threads_of_another_machine_are_asked_for_and_used_once() -> None:
    asked: list[tuple[int, int]] = []
    processes = RemoteProcesses(lambda machine, pid: asked.append((machine, pid)))
    number = pid_of(1, 4711)
    detector = SleepDetector(processes)
    assert not detector.look(0, number, 0)
    with pytest.raises(NotKnownYet):
        processes.look(number)
    assert asked == [(1, 4711)], "one question at a time"
    sleeping = {"4711": ["python", True, True, 5_000, False]}
    processes.answered(1, 4711, sleeping)
    assert not detector.look(0, number, 0), "the first look"
    assert not detector.look(0, number, 0), "an answer tells nothing twice"
    assert asked == [(1, 4711)] * 2
    processes.answered(1, 4711, sleeping)
    assert detector.look(0, number, 0)
    with pytest.raises(NotKnownYet):
        processes.look(number)
    processes.answered(1, 4711, None)
    assert processes.look(number) is None


def test_machines_that_answer_late_are_not_asleep_at_once() -> None:
    """Rank 0 slept before rank 1 was seen for the first time: in between rank 0 may have woken it."""
    asked: list[int] = []
    processes = RemoteProcesses(lambda machine, pid: asked.append(pid))
    detector = SleepDetector(processes)
    pids = {rank: pid_of(rank, rank + 1) for rank in range(2)}

    def answer(rank: int) -> None:
        assert asked.pop() == rank + 1
        processes.answered(rank, rank + 1, {str(rank + 1): ["python", True, True, 5_000, False]})

    def seen(rank: int) -> bool:
        detector.look(rank, pids[rank], 0)
        answer(rank)
        return detector.look(rank, pids[rank], 0)

    assert [seen(0), seen(0), seen(1), seen(1)] == [False, True, False, True]
    assert not detector.asleep_at_once(pids)
    for rank in (1, 0):
        answer(rank)
    assert detector.asleep_at_once(pids), "both have been asked before either has answered"
