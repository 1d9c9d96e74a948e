"""Launches tell of their operands if the coordinator does not know the kernel: it is asked for again."""

import ctypes
import struct

import pytest

from .coordinator import BLOCK, GRID, Dim3

MIB, KIB = 1 << 20, 1 << 10
FLOAT32, NONE = 7, 0


def launched(running, name, make):
    """Returns the signatures of a launch. `make(rank, a, b)`: its parameters as bytes; a has one MiB, b 64 KiB."""

    def program(rank):
        kernel, a, b = rank.kernel(name), ctypes.c_void_p(), ctypes.c_void_p()
        assert rank.c.cudaMalloc(ctypes.byref(a), MIB) == 0
        assert rank.c.cudaMalloc(ctypes.byref(b), 64 * KIB) == 0
        held = [ctypes.create_string_buffer(body, len(body)) for body in make(rank, a.value, b.value)]
        params = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        assert rank.c.cudaLaunchKernel(kernel, Dim3(*GRID), Dim3(*BLOCK), params, 0, None) == 0

    return [text.split(";") for text in running(program).signatures]


def word(value):
    return struct.pack("<Q", value)


def test_a_kernel_that_is_known_is_asked_for_once(running):
    (text,) = launched(running, "_Z9my_kernelPKfPfi", lambda rank, a, b: (word(a), word(b), word(3)))
    assert text[0] == "kernel"


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        (0, 0, "1048576,65536"),
        (MIB // 2, 0, "~524288,65536"),
        (4096, 0, "~1048576,65536"),  # rounded up to 3 %
    ],
)
def test_one_that_is_not_is_asked_for_again_with_the_blocks_of_its_pointers(of_a, of_b, expected, running):
    """Its numbers are not told: a step's number would make every launch another signature."""
    make = lambda rank, a, b: (word(a + of_a), word(b + of_b), word(3))  # noqa: E731
    first, again = launched(running, "_Z14unknown_kernelPKfPfi", make)
    assert first[0] == "kernel"
    assert again[0] == "sized"
    assert again[-2:] == ["-", expected]


def test_two_pointers_into_a_block_count_it_once_from_the_lower_one(running):
    make = lambda rank, a, b: (word(a + MIB // 2), word(a + MIB // 4), word(3))  # noqa: E731
    again = launched(running, "_Z14unknown_kernelPKfPfi", make)[-1]
    assert again[-1] == "~786432"


def test_numbers_are_told_where_all_of_them_are_sizes(running):
    name = "_ZN18transformer_engine24unknown_gated_act_kernelEPKfPfmi"
    again = launched(running, name, lambda rank, a, b: (word(a), word(b), word(8192), struct.pack("<i", 4096)))[-1]
    assert again[-2:] == ["8192,4096", "1048576,65536"]


def test_pointers_and_tensor_maps_within_structs(running):
    """A tensor map tells how large the tensor is, whatever block it lies in."""

    def make(rank, a, b):
        tensor_map = ctypes.create_string_buffer(128)
        dims, strides = (ctypes.c_uint64 * 2)(128, 64), (ctypes.c_uint64 * 1)(512)
        box, steps = (ctypes.c_uint * 2)(64, 64), (ctypes.c_uint * 2)(1, 1)
        arguments = (tensor_map, FLOAT32, 2, ctypes.c_void_p(a), dims, strides, box, steps, NONE, NONE, NONE, NONE)
        assert rank.c.cuTensorMapEncodeTiled(*arguments) == 0
        return (word(7) + word(b) + tensor_map.raw,)

    again = launched(running, "_Z14unknown_kernelN3foo3BarE", make)[-1]
    assert again[-1] == f"65536,{128 * 64 * 4}"
