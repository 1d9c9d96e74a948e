"""Which elements of the host's tensors nobody computed."""

from __future__ import annotations

import pytest
import torch

from emu.reads.elements import Flags, addresses, flags_in, flags_of, pieces
from emu.reads.host_memory import HostMemory
from emu.reads.marked import Mark

pytestmark = pytest.mark.torch
MARK, OTHER = Mark("train.py:3", "float32", "0"), Mark("train.py:4", "float32", "0")


def memory() -> HostMemory:
    return HostMemory(lambda: None, lambda on: None)


def test_a_known_element_beside_an_unknown_one() -> None:
    host, values = memory(), torch.zeros(2, 3)
    host.mark(values, MARK, [True, False, False, False, True, True])
    assert host.find(values) is MARK
    assert host.flags(values) == [True, False, False, False, True, True]
    assert host.flags(values.t()) == [True, False, False, True, False, True]
    assert host.find(values[0, 1:]) is None
    assert host.find(values[:, 0]) is MARK
    assert host.find(values[:1, 1]) is None
    assert host.flags(values[1].expand(2, 3)) == [False, True, True] * 2
    assert host.flags(values[1, 1:]) is None, "both"


def test_elements_that_are_written_are_known_again() -> None:
    host, values = memory(), torch.zeros(2, 2)
    host.mark(values, MARK)
    assert host.flags(values) is None, "all"
    host.clear(values[:, 1])
    assert host.flags(values) == [True, False, True, False]
    assert host.find(values[:, 1]) is None
    host.mark(values, OTHER, [False, True, False, False])
    assert host.find(values[:, 0]) is None
    assert host.find(values) is OTHER
    host.clear(values)
    assert not host


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_pieces_of_memory(dtype: torch.dtype) -> None:
    values = torch.zeros(4, dtype=dtype)
    at, item = values.data_ptr(), values.element_size()
    assert [*pieces(values, [False, True, True, False])] == [(at + item, at + 3 * item)]
    assert [*pieces(values[::2], [False, True])] == [(at + 2 * item, at + 3 * item)]
    assert [*addresses(values[::2])] == [at, at + 2 * item]


@pytest.mark.parametrize("unknown", [{0}, {5, 6, 9}, {*range(1, 10)}])
def test_flags_say_where_bytes_are_unknown(unknown: set[int]) -> None:
    values = torch.zeros(10)
    missing = {values.data_ptr() + 4 * element + byte for element in unknown for byte in range(4)}
    asked: list[int] = []

    def count(address: int, nbytes: int) -> int:
        asked.append(nbytes)
        return len(missing & {*range(address, address + nbytes)})

    assert flags_in(values, count) == [element in unknown for element in range(10)]
    assert asked[0] == 40, "of what is known, or unknown, as a whole one question is asked"
    assert flags_in(values, lambda address, nbytes: 0) is None
    assert flags_in(values, lambda address, nbytes: nbytes) is None


def test_flags_of_lists() -> None:
    def leaf(value: object) -> Flags | None:
        return [value == "x"] if isinstance(value, str) else [False] * len(value) if isinstance(value, set) else None

    assert flags_of(["a", ["x", {1, 2}], ("x",)], leaf) == [False, True, False, False, True]
    assert flags_of(["a", 3], leaf) is None
