"""The store: what is written once is mapped by others, and freed when nobody maps it."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.keeping.client import Client
from emu.weights import machine, pages
from emu.weights.pages import Block
from emu.weights.store import Store

from ..keeping.running import running_keeper

NBYTES = 3 << 20


class PrivateMemory:
    """A stand-in for a storage: private memory that begins in the middle of a page."""

    def __init__(self, phase: int = 64) -> None:
        self._map = mmap.mmap(-1, NBYTES + 2 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._begin = pages.ctypes.addressof(pages.ctypes.c_char.from_buffer(self._map)) + phase
        self.block = Block(self._begin, NBYTES)

    def data_ptr(self) -> int:
        return self._begin

    def bytes(self) -> bytes:
        return bytes(self.block.memory())


class Computation:
    def __init__(self, memory: PrivateMemory, value: int) -> None:
        self.calls = 0
        self._memory, self._value = memory, value

    def __call__(self) -> bytes:
        self.calls += 1
        self._memory.block.memory()[:] = bytes([self._value]) * NBYTES
        return b"after %d" % self._value


def _no_names(address: int, nbytes: int, name: bytes) -> None:
    """Takes the place of Hook.name_host, and does nothing."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with running_keeper(tmp_path / "run") as client:
        yield Store(client, tmp_path / "locks", 2, contextlib.nullcontext(), _no_names)


def fill(store: Store, key: str, memory: PrivateMemory, value: int) -> int:
    """Returns how often the values were computed: 0 or 1."""
    computation = Computation(memory, value)
    assert store.fill(key, memory.block, memory, computation) == b"after %d" % value
    assert memory.bytes() == bytes([value]) * NBYTES
    return computation.calls


@pytest.mark.parametrize("in_memory", [True, False])
def test_values_are_computed_once_and_written_pages_are_private(
    store: Store, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "room_for", lambda nbytes: in_memory)
    monkeypatch.setattr(machine, "disk_has_room_for", lambda nbytes, folder: True)
    first, second, third = PrivateMemory(), PrivateMemory(), PrivateMemory()
    assert fill(store, "key", first, 5) == 1
    assert fill(store, "key", second, 5) == 0
    assert fill(store, "other", third, 6) == 1
    second.block.memory()[100:103] = b"abc"
    assert first.bytes() == bytes([5]) * NBYTES
    assert second.bytes()[99:104] == b"\5abc\5"
    assert fill(store, "key", PrivateMemory(), 5) == 0


def test_values_are_not_shared_where_neither_memory_nor_disk_has_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    twentieth = 1000
    disk = SimpleNamespace(f_frsize=4096, f_blocks=20 * twentieth, f_bavail=0)
    monkeypatch.setattr(machine, "room_for", lambda nbytes: False)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    first, second, third = PrivateMemory(0), PrivateMemory(0), PrivateMemory(0)
    disk.f_bavail = twentieth + 2 * NBYTES // 4096 - 1
    assert fill(store, "key", first, 5) == 1
    assert fill(store, "key", second, 5) == 1
    disk.f_bavail += 1
    assert fill(store, "key", third, 5) == 1
    assert fill(store, "key", PrivateMemory(0), 5) == 0


def test_the_origin_of_a_block_ends_with_the_first_write(store: Store) -> None:
    memory, copy = PrivateMemory(), PrivateMemory()
    assert store.origin(memory.block) is None
    fill(store, "key", memory, 5)
    origin = store.origin(memory.block)
    assert origin is not None
    part = Block(memory.block.address + 4096, 2 << 20)
    assert store.origin(part) is not None
    assert store.copy(copy.block, copy, memory.block)
    assert copy.bytes() == memory.bytes()
    memory.bytes()  # reading changes nothing
    assert store.origin(memory.block) is not None
    memory.block.memory()[NBYTES - 1 :] = b"x"  # in a page that the block shares with others
    assert store.origin(memory.block) is None
    assert store.origin(part) is not None
    memory.block.memory()[1 << 20 : (1 << 20) + 1] = b"x"
    assert store.origin(part) is None
    assert not store.copy(PrivateMemory().block, copy, memory.block)
    assert store.origin(copy.block) is not None


def test_a_block_that_has_been_freed_has_no_origin(store: Store) -> None:
    memory = PrivateMemory()
    block = memory.block
    fill(store, "key", memory, 5)
    del memory
    assert store.origin(block) is None
    assert not store.has_blocks()


def test_values_are_freed_when_all_have_had_them_and_nobody_maps_them(store: Store) -> None:
    first = PrivateMemory()
    fill(store, "key", first, 5)
    del first
    second = PrivateMemory()
    assert fill(store, "key", second, 5) == 0, "the second process may still need them"
    del second
    assert fill(store, "key", PrivateMemory(), 5) == 1


def test_values_that_nobody_maps_make_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, unused = PrivateMemory(), PrivateMemory()
    fill(store, "kept", kept, 5)
    fill(store, "unused", unused, 6)
    del unused
    answers = iter([False, False, True])
    monkeypatch.setattr(machine, "room_for", lambda nbytes: next(answers, True))
    fill(store, "new", PrivateMemory(), 7)
    assert fill(store, "kept", PrivateMemory(), 5) == 0
    assert fill(store, "unused", PrivateMemory(), 6) == 1
    assert kept.bytes() == bytes([5]) * NBYTES


def test_a_child_keeps_what_its_parent_frees(store: Store) -> None:
    memory = PrivateMemory()
    fill(store, "key", memory, 5)
    fill(store, "key", PrivateMemory(), 5)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)
        os._exit(0 if memory.bytes() == bytes([5]) * NBYTES else 1)
    del memory
    assert fill(store, "key", PrivateMemory(), 5) == 0, "the child maps them"
    os.write(writing, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(reading)
    os.close(writing)


def test_a_program_may_close_all_files(store: Store) -> None:
    memory = PrivateMemory()
    fill(store, "key", memory, 5)
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 2000)
        os._exit(fill(store, "key", PrivateMemory(), 5) + 2 * fill(store, "new", PrivateMemory(), 6))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    os.closerange(700, 800)
    assert fill(store, "new", PrivateMemory(), 6) == 0


def test_without_a_keeper_values_are_computed(tmp_path: Path) -> None:
    alone = Store(Client(str(tmp_path)), tmp_path / "locks", 2, contextlib.nullcontext(), _no_names)
    assert [fill(alone, "key", PrivateMemory(), 5) for _ in range(2)] == [1, 1]


def test_zeros_need_no_memory_until_they_are_written(store: Store) -> None:
    memory = PrivateMemory()
    memory.block.memory()[:] = b"x" * NBYTES
    pages.map_zeros(memory.block)
    assert pages.untouched(pages.whole_pages(memory.block))
    assert memory.bytes() == bytes(NBYTES)
