"""An attention that is told where its lengths lie costs by what is there: at each launch, and at each of a graph."""

import ctypes
import struct

import pytest

from emu.control.extensions.attention import together
from emu.control.routing.groups import rounded

from .coordinator import BLOCK, GRID, Dim3

ALL = 2**64 - 1
H2D = 1
NAME = "_Z16flash_fwd_kernelPKf"


class Cache:
    """Lengths in device memory."""

    def __init__(self, rank, sequences):
        self.c, self.n = rank.c, sequences
        self.ends, self.used = rank.malloc(4096), rank.malloc(4096)

    def write(self, queries, keys):
        ends = [sum(queries[:i]) for i in range(self.n + 1)]
        for to, values in ((self.ends, ends), (self.used, keys)):
            body = struct.pack(f"<{len(values)}i", *values)
            assert self.c.cudaMemcpy(to, body, len(body), H2D) == 0

    def tell(self, before=ALL, after=0, joined=1):
        fields = (self.n, self.ends, 0, self.used, 0, before, after, joined)
        self.c.phantora_lengths((ctypes.c_uint64 * len(fields))(*fields))


def launch(rank, kernel, stream=0):
    assert rank.c.cudaLaunchKernel(kernel, Dim3(*GRID), Dim3(*BLOCK), None, 0, stream) == 0


def counts(signature):
    return tuple(map(int, signature.split(";")[-8:]))


def kernels(coordinator):
    return [text for text in coordinator.signatures if not text.startswith("copy;")]


def kinds(coordinator):
    return [text.partition(";")[0] for text in kernels(coordinator)]


@pytest.mark.parametrize(("before", "after"), [(None, None), (None, 0), (130, 0), (0, 7)])
def test_a_launch_counts_what_packed_sequences_compute(running, before, after):
    lengths = ((300, 300), (130, 257), (1, 300), (5, 5), (257, 130))

    def program(rank):
        cache = Cache(rank, len(lengths))
        cache.write(*zip(*lengths, strict=True))
        cache.tell(ALL if before is None else before, ALL if after is None else after)
        launch(rank, rank.kernel(NAME))

    (text,) = kernels(running(program))
    assert text.startswith("sequences;")
    assert counts(text) == tuple(map(rounded, together(lengths, before, after)))


def test_heads_that_share_keys_fill_a_row_together(running):
    def program(rank):
        cache = Cache(rank, 3)
        cache.write((1, 40, 100), (1000, 40, 1000))
        cache.tell(joined=4)
        launch(rank, rank.kernel(NAME))

    (text,) = kernels(running(program))
    sequences, queries, keys, rows, columns, tiles, longest, _ = counts(text)
    # 4 of 128 places; 160 pairs of a query and a head fill two rows; 400 fill four, which end at query 31, 63, 95, 99.
    assert (sequences, rows, columns) == (3, 1 + 2 + 4, 8 + 1 + 8)
    assert (queries, keys) == (rounded(141), rounded(2040))
    assert tiles == rounded(8 + 2 + 8 * 4)
    assert longest == 8
    expected = together(((1, 1000), (40, 40), (100, 1000)), None, 0, joined=4)
    assert counts(text) == tuple(map(rounded, expected))


def test_a_graph_has_the_lengths_of_each_launch(running):
    def program(rank):
        cache, stream, kernel = Cache(rank, 2), rank.stream(), rank.kernel(NAME)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        cache.write((1, 1), (128, 128))
        assert rank.c.cudaStreamBeginCapture(ctypes.c_void_p(stream), 0) == 0
        cache.tell()
        launch(rank, kernel, stream)
        rank.c.phantora_lengths(None)
        launch(rank, kernel, stream)
        assert rank.c.cudaStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) == 0
        assert rank.c.cudaGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0)) == 0
        for keys in ((128, 128), (3500, 3500), (128, 128)):
            cache.write((1, 1), keys)
            assert rank.c.cudaGraphLaunch(executable, stream) == 0
        assert rank.c.cudaGraphExecDestroy(executable) == 0
        assert rank.c.cudaGraphDestroy(graph) == 0

    done = running(program, cost=lambda text: (1000 * counts(text)[2], 1) if text.startswith("seq") else (7, 7))
    texts = [text for text in done.signatures if text.startswith("sequences;")]
    assert [counts(text)[2] for text in texts] == [256, rounded(7000)]
    assert kinds(done).count("kernel") == 1  # the launch after it has no lengths


def test_lengths_that_are_not_known_leave_the_kernel_as_it_was(running):
    def program(rank):
        cache = Cache(rank, 2)
        cache.tell()
        launch(rank, rank.kernel(NAME))

    assert kinds(running(program)) == ["kernel"]
