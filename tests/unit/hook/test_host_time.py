"""Host time: what is counted, on which thread, and what it costs."""

import collections
import ctypes
import gc
import re
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import profiles
from emu.contract import records
from emu.interpreter import frame_counter
from emu.interpreter.frame_layout import find_layout

from .test_ranges import Nvtx

ROOT = Path(__file__).parents[3]
NODE = b"autograd::engine::evaluate_function: MmBackward0, op_id = 1"
WORK = {f"host_ns__{kind}": 0 for kind in ("cold_op", "outer_op", "frame", "code_unit", "hot_frame", "hot_code_unit")}


def counts(rank):
    """Units of each kind so far, by name."""
    rank.c.phantora_host_kind.restype = ctypes.c_char_p
    n = rank.c.phantora_host_counts(None, 0)
    found = (ctypes.c_uint64 * n)()
    rank.c.phantora_host_counts(found, n)
    return {rank.c.phantora_host_kind(kind).decode(): found[kind] for kind in range(n)}


def counted(rank, work):
    """What `work` adds to the counts."""
    before = counts(rank)
    work()
    after = counts(rank)
    return {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}


def test_a_host_description_names_the_kinds_that_the_library_counts(running):
    """In its order, in which records number them."""

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
        ([b"c10d::allreduce_, op_id = 3, sizes = [[4]]"], {"collective_op": 1, "outer_op": 1, "cold_op": 1}),
        ([b"mine, op_id = 3"], {"scope": 1}),
        ([b"mine"], {}),
        ([b"nccl:all_reduce, op_id = 3, sizes = [[4]]"], {}),
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
            {"op": 2, "outer_op": 1, "boxed_op": 1, "listed_tensor": 2, "cold_op": 2},
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
        assert counted(rank, lambda: nvtx.range(add))["cold_op"] == 1

    running(program)


def test_each_kind_has_its_cost(running):
    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        nvtx.range(b"aten::add, op_id = 3, sizes = [[4], []]", b"aten::view, op_id = 3, sizes = [[4]]")
        rank.launch(kernel)

    told = running(program, **WORK | {"host_ns__op": 700, "host_ns__view_op": 50, "host_ns__launch": 6_000})
    assert told.of(records.SEGMENT)[0].host_ns == 6_750


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


# ---- Python functions ------------------------------------------------------------------------------------------------


def count_frames(rank, rules=()):
    gc.disable()  # hypothesis, where another test has used it, has Python call a function before and after a collection
    for file, name, kind in rules:
        rank.c.phantora_frame_rule(file.encode(), name.encode(), kind)
    offsets = find_layout().offsets()
    count = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int32))(("phantora_count_frames", rank.c))
    assert count((ctypes.c_int32 * len(offsets))(*offsets)) == 0
    function()


def function():
    return None


def calls_another():
    return function()


def generator():
    yield 1
    yield 2


def frames_of(rank, work):
    found = counted(rank, work)
    return found.get("frame", 0) + found.get("hot_frame", 0), found.get("resume", 0)


def test_functions_are_counted_where_they_are_entered_and_generators_where_they_go_on(running):
    def program(rank):
        count_frames(rank)
        none, _ = frames_of(rank, int)
        assert frames_of(rank, function) == (none + 1, 0)
        assert frames_of(rank, lambda: [calls_another() for _ in range(10)])[0] >= none + 21
        assert frames_of(rank, lambda: list(generator()))[1] == 3

    running(program)


def test_the_same_work_counts_the_same(running):
    def program(rank):
        count_frames(rank)
        work = lambda: [re.compile(f"a{i}b+").match("ab") for i in range(20)]  # noqa: E731
        for _ in range(2):
            counted(rank, work)
        first, second = counted(rank, work), counted(rank, work)
        assert first == second

    running(program)


def test_a_function_run_a_moment_ago_is_hot(running):
    def program(rank):
        count_frames(rank)
        found = counted(rank, lambda: [calls_another() for _ in range(100)])
        assert found["hot_frame"] >= 198
        assert found["frame"] <= 8

    running(program)


def test_the_host_s_description_says_what_its_caches_keep(running):
    """With caches for less than one function each is new, and an operator is when one Python function lies between."""

    def program(rank):
        count_frames(rank)
        assert "hot_frame" not in counted(rank, lambda: [calls_another() for _ in range(100)])
        nvtx, add = Nvtx(rank), b"aten::add, op_id = 1, sizes = [[4]]"
        assert counted(rank, lambda: [nvtx.range(add) for _ in range(3)])["cold_op"] == 3

    running(program, hot_within_functions=0, cold_after_functions=0)


def test_functions_cost_by_their_code_and_rules_make_some_free_or_leave_out_all_below(running):
    here = str(Path(__file__))

    def program(rank):
        count_frames(rank, [(here, "function", frame_counter.FREE), (here, "calls_another", frame_counter.ASIDE)])
        none, _ = frames_of(rank, int)
        assert frames_of(rank, function)[0] == none
        assert frames_of(rank, calls_another)[0] == none
        assert frames_of(rank, lambda: (calls_another(), generator()))[0] == none + 2
        nvtx = Nvtx(rank)
        before = counts(rank)
        aside(lambda: nvtx.range(b"aten::add, op_id = 3, sizes = [[4]]"))
        assert counts(rank)["op"] == before["op"] + 1

    running(program)


def aside(work):
    work()


def test_what_the_emulation_uses_of_the_standard_library_is_free_but_not_what_it_calls_for_the_program(running):
    here = str(Path(__file__))
    rules = [(here, "ours", frame_counter.OURS), (textwrap.__file__, "", frame_counter.LIBRARY)]
    rules.append(("<string>", "", frame_counter.LIBRARY))
    pair = collections.namedtuple("pair", "first second")

    def program(rank):
        count_frames(rank, rules)
        none, _ = frames_of(rank, int)
        assert frames_of(rank, lambda: pair(1, 2))[0] == none + 2
        wrapped, _ = frames_of(rank, lambda: textwrap.wrap("a b"))
        assert wrapped > none + 2
        assert frames_of(rank, lambda: ours(lambda: 0))[0] == none + 2
        assert frames_of(rank, lambda: ours(pair, 1, 2))[0] == none + 1
        assert frames_of(rank, lambda: ours(textwrap.wrap, "a b"))[0] == none + 1
        assert frames_of(rank, lambda: ours(lambda: textwrap.wrap("a b")))[0] == wrapped + 1
        assert frames_of(rank, lambda: (ours(int), pair(1, 2)))[0] == none + 2

    running(program)


def ours(function, *arguments):
    return function(*arguments)


def test_functions_take_host_time_on_their_thread(running):
    def program(rank):
        count_frames(rank)
        begin = rank.c.phantora_host_clock_ns()
        for _ in range(100):
            function()
        taken = rank.c.phantora_host_clock_ns() - begin
        assert 100 * 1_000 <= taken <= 130 * 1_000, taken

    cost = {"host_ns__frame": 1_000, "host_ns__hot_frame": 1_000, "host_ns__code_unit": 0, "host_ns__hot_code_unit": 0}
    running(program, **cost)


def test_python_called_by_an_operator_is_a_callback(running):
    def program(rank):
        count_frames(rank)
        nvtx = Nvtx(rank)

        def operator():
            nvtx.push(b"aten::add, op_id = 3, sizes = [[4]]")
            function()
            nvtx.pop()

        def announced():
            nvtx.push(b"mine, op_id = 3")
            function()
            nvtx.pop()

        assert counted(rank, operator)["callback"] == 1
        assert "callback" not in counted(rank, announced)

    running(program)


def test_python_calls_an_operator_wherever_the_python_function_itself_was_called(running):
    """A node's or an operator's own Python function calls operators as the script does: FSDP's hooks do."""

    def program(rank):
        count_frames(rank)
        nvtx = Nvtx(rank)

        def calls_an_operator():
            nvtx.range(b"aten::mul, op_id = 4, sizes = [[4]]")

        def node():
            nvtx.push(b"_HookBackward, seq = 1, op_id = 3, sizes = [[4]]")
            calls_an_operator()
            nvtx.pop()

        assert counted(rank, node)["outer_op"] == 2

    running(program)


@pytest.mark.parametrize(
    ("kept_mib", "mib", "expected"),
    [
        (2, 1, {"table_kib": 1024}),
        (2, 3, {"table_kib": 3072, "fresh_table_kib": 3072}),
        (4, 3, {"table_kib": 3072}),
    ],
)
def test_tables_that_an_operator_copies_for_its_kernel_cost_by_size_and_large_ones_more(
    running, kept_mib, mib, expected
):
    def program(rank):
        nvtx, nbytes = Nvtx(rank), mib << 20
        device, host = rank.malloc(nbytes), rank.host(nbytes)

        def packing():
            nvtx.push(b"aten::_chunk_cat, op_id = 3, sizes = [[4], [4]]")
            assert rank.c.cudaMemcpyAsync(device, host, nbytes, 1, None) == 0
            nvtx.pop()

        found = counted(rank, packing)
        assert {kind: n for kind, n in found.items() if kind.endswith("table_kib")} == expected

    running(program, kept_table_nbytes=kept_mib << 20)


class Slim:
    def __new__(cls):
        return object.__new__(cls)


class Plain:
    def __init__(self):
        pass


def test_objects_whose_class_makes_them_in_python_cost_more(running):
    def program(rank):
        count_frames(rank)
        assert counted(rank, Slim)["constructor"] == 1
        assert "constructor" not in counted(rank, Plain)
        before = rank.c.phantora_host_clock_ns()
        Slim()
        made = rank.c.phantora_host_clock_ns() - before
        before = rank.c.phantora_host_clock_ns()
        Plain()
        assert made - (rank.c.phantora_host_clock_ns() - before) == 7_000

    cost = {"host_ns__frame": 1_000, "host_ns__hot_frame": 1_000, "host_ns__code_unit": 0, "host_ns__hot_code_unit": 0}
    running(program, **cost, host_ns__constructor=7_000)


def test_the_emulation_s_functions_are_free_and_compiling_is_left_out():
    kinds = {(file, function): kind for file, function, kind in frame_counter.rules()}
    assert kinds[str(ROOT / "emu") + "/", ""] == frame_counter.OURS
    assert kinds["*/torch/_dynamo/convert_frame.py", ""] == frame_counter.ASIDE
    from emu.control.control_tensors import ControlTensors

    (aside_of_ours,) = (function for (file, function), kind in kinds.items() if "control" in file)
    assert aside_of_ours == ControlTensors.unrecorded.__qualname__, "what computes control tensors has another name"


def test_every_interpreter_that_is_supported_exports_what_counting_takes():
    exported = ctypes.pythonapi
    assert hasattr(exported, "_PyEval_EvalFrameDefault")
    assert hasattr(exported, "_PyInterpreterState_SetEvalFrameFunc")
    assert hasattr(exported, "PyUnstable_Code_GetExtra") or hasattr(exported, "_PyCode_GetExtra"), sys.version
