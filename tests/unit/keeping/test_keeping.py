"""Published pieces stay as they are, whoever tries to change them; the keeper outlives any client."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.keeping.client import Client, Piece, path_of

from .running import running_keeper

NBYTES = 2 * mmap.PAGESIZE
PUNCH_HOLE_KEEP_SIZE = 3


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_keeper(tmp_path / "run") as made:
        yield made


def memory(value: int) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(descriptor, bytes([value]) * NBYTES)
    return descriptor


def bytes_of(piece: Piece | None) -> bytes:
    assert piece is not None
    return os.pread(piece.descriptor, piece.nbytes, 0)


def changes(descriptor: int) -> list[str]:
    """Returns the attempts to change the piece that succeed."""
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    attempts = {
        "write": lambda: os.pwrite(descriptor, b"x", 0),
        "write to it opened again": lambda: os.pwrite(again, b"x", 0),
        "map": lambda: mmap.mmap(again, NBYTES, mmap.MAP_SHARED, mmap.PROT_WRITE),
        "shorten": lambda: os.ftruncate(again, 0),
        "lengthen": lambda: os.ftruncate(again, 2 * NBYTES),
    }
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    if ctypes.CDLL(None).fallocate(again, PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(NBYTES)) == 0:
        done.append("punch a hole")
    return done


def test_nobody_changes_what_is_published(client: Client) -> None:
    own = memory(1)
    published = client.put("key", "rest", 2, own)
    found = client.get("key")
    assert published is not None
    assert found is not None
    assert found.rest == "rest"
    for descriptor in (own, published.descriptor, found.descriptor):
        assert changes(descriptor) == []
    assert bytes_of(found) == b"\1" * NBYTES


def test_memory_that_its_publisher_can_still_write_to_is_not_published(client: Client) -> None:
    own = memory(1)
    with mmap.mmap(own, NBYTES, mmap.MAP_SHARED, mmap.PROT_WRITE), pytest.raises(OSError, match="busy"):
        client.put("key", "", 2, own)
    assert client.get("key") is None


def test_the_first_that_publishes_a_key_counts(client: Client) -> None:
    client.put("key", "", 3, memory(1))
    assert bytes_of(client.put("key", "", 3, memory(2))) == b"\1" * NBYTES
    assert bytes_of(client.get("key")) == b"\1" * NBYTES


def test_a_file_is_copied(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\1" * NBYTES)
    with path.open("r+b") as file:
        client.put("key", "", 2, file.fileno(), file=True)
        file.write(b"\2" * NBYTES)
    assert bytes_of(client.get("key")) == b"\1" * NBYTES


def test_pieces_go_when_all_have_had_them_and_nobody_holds_them(client: Client) -> None:
    first = client.put("key", "", 2, memory(1))
    assert first is not None
    client.release(first.number)
    second = client.get("key")
    assert second is not None, "another process may still ask for it"
    client.release(second.number)
    assert client.get("key") is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"nothing",
        b"[]",
        b"[" * 60_000,
        b'{"do": "put"}',
        b'{"do": "get", "key": []}',
        b'{"do": "release", "number": 1e999}',
        b'{"do": "release", "number": 5}',
        json.dumps({"do": "put", "key": "key", "rest": "", "wanted": 1, "file": False}).encode(),
    ],
)
def test_the_keeper_outlives_what_a_client_sends(client: Client, tmp_path: Path, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.connect(path_of(str(tmp_path / "run")))
        socket.send_fds(other, [message], [memory(2)])  # not sealed
        assert client.get("key") is None
    assert bytes_of(client.put("key", "", 2, memory(1))) == b"\1" * NBYTES


def test_a_keeper_without_descriptors_refuses_and_goes_on(tmp_path: Path) -> None:
    """A connection that stays in the queue would keep the keeper busy for ever."""
    with running_keeper(tmp_path / "run", most_files=16) as client, contextlib.ExitStack() as others:
        client.put("key", "", 2, memory(1))
        ends = [others.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(32)]
        for end in ends:
            end.connect(path_of(str(tmp_path / "run")))
        assert ends[-1].recv(1) == b""
        assert bytes_of(client.get("key")) == b"\1" * NBYTES
