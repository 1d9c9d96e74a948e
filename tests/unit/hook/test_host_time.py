"""Host time: what is counted, on which thread, and what it costs."""

import ctypes
import threading
from pathlib import Path

import pytest

import profiles
from emu.contract import records

from .coordinator import no_answer
from .test_ranges import Nvtx

ROOT = Path(__file__).parents[3]
NODE = b"autograd::engine::evaluate_function: MmBackward0, op_id = 1"
COLD_OR_WARM = (
    *("warm_op", "cold_op", "outer_op", "frame", "code_unit"),
    *("warm_frame", "warm_code_unit", "hot_frame", "hot_code_unit"),
)
WORK = {f"host_ns__{kind}": 0 for kind in COLD_OR_WARM}


def counts(rank):
    """Returns the units of each kind so far, by name."""
    rank.c.phantora_host_kind.restype = ctypes.c_char_p
    n = rank.c.phantora_host_counts(None, 0)
    found = (ctypes.c_uint64 * n)()
    rank.c.phantora_host_counts(found, n)
    return {rank.c.phantora_host_kind(kind).decode(): found[kind] for kind in range(n)}


def counted(rank, work):
    """Returns what `work` adds to the counts."""
    before = counts(rank)
    work()
    after = counts(rank)
    return {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}


def test_a_host_description_names_the_kinds_that_the_library_counts(running):
    """The names are in the library's order, in which records number them."""

    def program(rank):
        assert tuple(counts(rank)) == (*profiles.CALL_KINDS, *profiles.WORK_KINDS)

    running(program)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([b"aten::add, op_id = 3, sizes = [[4], []]"], {"op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"aten::add_, op_id = 3, sizes = [[4], []]"], {"in_place_op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"aten::view, op_id = 3, sizes = [[4], []]"], {"view_op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"aten::empty, op_id = 3, sizes = [[], []]"], {"empty_op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"aten::item, op_id = 3, sizes = [[]]"], {"value_op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"c10d::allreduce_, op_id = 3, sizes = [[4]]"], {"collective_op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"mine, op_id = 3"], {"scope": 1}),
        ([b"mine"], {}),
        ([b"nccl:all_reduce, op_id = 3, sizes = [[4]]"], {}),
        (
            [b"c10d::allreduce_, op_id = 3, sizes = [[4]]", b"all_reduce, op_id = 4"],
            {"collective_op": 1, "outer_op": 1, "cold_op": 1},
        ),
        (
            [b"mine, op_id = 2", b"aten::add, op_id = 3, sizes = [[4], []]"],
            {"scope": 1, "op": 1, "outer_op": 1, "cold_op": 1},
        ),
        (
            [b"aten::linear, op_id = 2, sizes = [[4]]", b"aten::t, op_id = 3, sizes = [[4]]"],
            {"op": 1, "view_op": 1, "outer_op": 1, "cold_op": 2},
        ),
        (
            [b"aten::_foreach_add_, op_id = 3, sizes = [[4], [4], [8], []]"],
            {"in_place_op": 1, "outer_op": 1, "cold_op": 1, "listed_tensor": 4},
        ),
        (
            [b"_Mine, seq = 3, op_id = 3, sizes = [[4]]", b"aten::mul, op_id = 3, sizes = [[4]]"],
            {"custom_node": 1, "op": 1, "outer_op": 1, "cold_op": 2},
        ),
        ([NODE, b"MmBackward0, seq = 1, op_id = 2, sizes = [[4]]"], {"node": 1, "op": 1, "cold_op": 2}),
        (
            [
                b"fsdp::chunk_cat, op_id = 2, sizes = [[4], [8, 2], [], []]",
                b"aten::_chunk_cat, op_id = 3, sizes = [[4]]",
            ],
            {"op": 2, "outer_op": 1, "listed_tensor": 2, "cold_op": 2},
        ),
        (
            [NODE, b"torch::autograd::AccumulateGrad, seq = 1, op_id = 2, sizes = [[4]]"],
            {"node": 1, "op": 1, "cold_op": 2},
        ),
    ],
)
def test_ranges_are_work_of_a_kind(running, messages, expected):
    def program(rank):
        nvtx = Nvtx(rank)
        assert counted(rank, lambda: nvtx.range(*messages)) == expected

    running(program)


def test_an_operator_is_cold_until_it_is_run_and_again_after_a_while(running):
    def program(rank):
        nvtx = Nvtx(rank)
        add, other = b"aten::add, op_id = 1, sizes = [[4]]", b"aten::mul, op_id = 2, sizes = [[8]]"
        assert counted(rank, lambda: [nvtx.range(add) for _ in range(3)])["cold_op"] == 1
        assert counted(rank, lambda: [nvtx.range(other) for _ in range(100)])["cold_op"] == 1
        assert "cold_op" not in counted(rank, lambda: nvtx.range(add))
        counted(rank, lambda: [nvtx.range(other) for _ in range(200)])
        assert counted(rank, lambda: nvtx.range(add))["warm_op"] == 1
        counted(rank, lambda: [nvtx.range(other) for _ in range(600)])
        assert counted(rank, lambda: nvtx.range(add))["cold_op"] == 1

    running(program)


def test_a_launch_is_hot_while_its_thread_has_launched_the_same_kernel_a_moment_ago(running):
    def program(rank):
        nvtx, one, other = Nvtx(rank), rank.kernel("one"), rank.kernel("other")
        add = b"aten::add, op_id = 1, sizes = [[4]]"
        assert counted(rank, lambda: rank.launch(one)) == {"launch": 1}
        assert counted(rank, lambda: rank.launch(other)) == {"launch": 1}
        assert counted(rank, lambda: rank.launch(one)) == {"hot_launch": 1}
        counted(rank, lambda: [nvtx.range(add) for _ in range(32)])  # 256 in a thread's age
        assert counted(rank, lambda: rank.launch(one)) == {"hot_launch": 1}
        counted(rank, lambda: nvtx.range(add))
        assert counted(rank, lambda: rank.launch(other)) == {"launch": 1}

    running(program)


def test_each_kind_has_its_cost(running):
    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        nvtx.range(b"aten::add, op_id = 3, sizes = [[4], []]", b"aten::view, op_id = 3, sizes = [[4]]")
        rank.launch(kernel)

    told = running(program, **WORK | {"host_ns__op": 700, "host_ns__view_op": 50, "host_ns__launch": 6_000})
    assert told.of(records.SEGMENT)[0].host_ns == 6_750


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def test_a_kernel_of_nccl_is_hot_if_the_thread_did_little_since_the_last_and_a_group_launches_one(running):
    def program(rank):
        nvtx, comm, c = Nvtx(rank), ctypes.c_void_p(), rank.c
        assert c.ncclCommInitRank(ctypes.byref(comm), 2, UniqueId(b"x"), 0) == 0
        stream, at = ctypes.c_void_p(rank.stream()), ctypes.c_void_p(rank.malloc(4096))

        def all_reduce():
            assert c.ncclAllReduce(at, at, ctypes.c_size_t(1), 7, 0, comm, stream) == 0

        def group():
            assert c.ncclGroupStart() == 0
            for _ in range(3):
                all_reduce()
            assert c.ncclGroupEnd() == 0

        assert counted(rank, all_reduce) == {"nccl": 1, "nccl_call": 1}
        assert counted(rank, all_reduce) == {"hot_nccl": 1, "nccl_call": 1}
        assert counted(rank, group) == {"hot_nccl": 1, "nccl_call": 3}
        counted(rank, lambda: [nvtx.range(b"aten::mul, op_id = 2, sizes = [[8]]") for _ in range(100)])
        assert counted(rank, group) == {"nccl": 1, "nccl_call": 3}
        assert counted(rank, lambda: (c.ncclGroupStart(), c.ncclGroupEnd())) == {}

    def answer(record):
        return (1, 0, 2) if record.kind == records.COMM_INIT else no_answer(record)

    running(program, answer=answer)


def test_making_the_id_of_a_communicator_takes_the_time_of_all_members(running):
    """All wait for the one that makes it, so that one has no more host time than the others."""

    def program(rank):
        comm, id_, c = ctypes.c_void_p(), UniqueId(), rank.c
        init = lambda: c.ncclCommInitRank(ctypes.byref(comm), 2, UniqueId(b"x"), 0)  # noqa: E731
        assert counted(rank, lambda: c.ncclGetUniqueId(ctypes.byref(id_))) == {}
        assert id_.internal
        assert counted(rank, init)["nccl"] == 2

    def answer(record):
        return (1, 0, 2) if record.kind == records.COMM_INIT else no_answer(record)

    running(program, answer=answer)


# ---- threads ---------------------------------------------------------------------------------------------------------


def on_thread(name, work):
    """Runs `work` on a thread that the operating system knows by that name, to its end."""

    def run():
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_a_backward_pass_goes_on_where_its_caller_is_and_the_caller_where_the_pass_has_ended(running):
    op, step = b"aten::add, op_id = 3, sizes = [[4]]", {"host_ns__op": 100, "host_ns__node": 1_000}

    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        for _ in range(2):
            nvtx.range(op)
            rank.c.phantora_backward()
            on_thread("pt_autograd_0", lambda: (nvtx.range(NODE), rank.launch(kernel)))
            nvtx.range(op)
            rank.launch(kernel)

    told = running(program, cost=lambda _: (1, 1), **WORK | step | {"host_ns__backward": 10})
    (first,) = told.of(records.SEGMENT)
    # Launches at 1,110 and 1,210, then at 2,320 and 2,420: each the sum of what was done before, on whatever thread.
    assert (first.host_ns, first.tail_ns) == (1_110, 2_420 - 1_110 + 1)


def test_another_thread_has_a_clock_of_its_own(running):
    op = b"aten::add, op_id = 3, sizes = [[4]]"

    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        nvtx.range(op)
        on_thread("loader", lambda: [nvtx.range(op) for _ in range(50)])
        nvtx.range(op)
        rank.launch(kernel)

    told = running(program, **WORK | {"host_ns__op": 100})
    assert told.of(records.SEGMENT)[0].host_ns == 200


def test_records_of_concurrent_threads_never_go_back_in_time(running):
    op = b"aten::add, op_id = 3, sizes = [[4]]"

    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        for _ in range(5):
            nvtx.range(op)
        rank.launch(kernel)
        on_thread("loader", lambda: (nvtx.range(op), rank.launch(kernel)))
        nvtx.range(op)
        rank.launch(kernel)

    told = running(program, cost=lambda _: (1, 1), **WORK | {"host_ns__op": 100})
    (segment,) = told.of(records.SEGMENT)
    assert (segment.host_ns, segment.launches, segment.tail_ns) == (500, 3, 101)
