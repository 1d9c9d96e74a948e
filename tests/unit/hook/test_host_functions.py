"""Host time of Python functions: which are counted, on which thread, and what they cost."""

import collections
import ctypes
import gc
import re
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.compiler import skipped_work
from emu.interpreter import audit_hooks, frame_counter
from emu.interpreter.frame_layout import find_layout
from emu.reads import host_memory

from .test_host_time import ROOT, counted, counts
from .test_ranges import Nvtx


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
    return sum(found.get(kind, 0) for kind in ("frame", "warm_frame", "hot_frame")), found.get("resume", 0)


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


def test_functions_that_are_not_the_programs_work_are_not_counted_on_their_thread(running):
    def program(rank):
        count_frames(rank)
        rank.c.phantora_aside(1)
        rank.c.phantora_aside(1)
        assert frames_of(rank, function) == (0, 0)
        rank.c.phantora_aside(-1)
        assert frames_of(rank, function) == (0, 0), "the two nest"
        rank.c.phantora_aside(-1)
        assert frames_of(rank, function)[0] >= 1

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

    running(program, hot_within_functions=0, warm_within_functions=0, cold_after_functions=0)


def test_a_function_cools_down_and_so_does_an_operator(running):
    """The first caches hold 10 functions here, the second 60; an operator counts like eight functions."""

    def program(rank):
        count_frames(rank)
        nvtx, add, other = Nvtx(rank), b"aten::add, op_id = 1, sizes = [[4]]", b"aten::mul, op_id = 2, sizes = [[4]]"
        function(), nvtx.range(add), nvtx.range(other)
        assert "warm_frame" in counted(rank, function)
        assert counted(rank, lambda: nvtx.range(add))["warm_op"] == 1
        counted(rank, lambda: [nvtx.range(other) for _ in range(8)])
        assert "frame" in counted(rank, function)
        assert counted(rank, lambda: nvtx.range(add))["cold_op"] == 1
        rank.c.phantora_host_grows_old()
        assert counted(rank, lambda: nvtx.range(add))["cold_op"] == 1

    running(program, hot_within_functions=10, warm_within_functions=60, cold_after_functions=10)


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


def test_showing_a_warning_is_no_work(running):
    """Frameworks give some on one rank alone."""
    rules = [rule for rule in frame_counter.rules() if "warnings.py" in rule[0]]

    def program(rank):
        count_frames(rank, rules)
        warnings.simplefilter("always")
        warnings.showwarning = lambda *given: None
        none, _ = frames_of(rank, lambda: 0)
        assert frames_of(rank, lambda: warnings.warn("text", stacklevel=1))[0] == none

    running(program)


def test_audit_hooks_are_no_work(running):
    """Whether a library that has one is imported may be a guess."""
    rules = [rule for rule in frame_counter.rules() if "audit_hooks.py" in rule[0]]

    def program(rank):
        count_frames(rank, rules)
        heard = []
        none, _ = frames_of(rank, lambda: sys.audit("one"))
        audit_hooks.install()
        sys.addaudithook(lambda event, arguments: heard.append((event, calls_another())))
        heard.clear()
        assert frames_of(rank, lambda: sys.audit("two"))[0] == none
        assert ("two", None) in heard

    running(program)


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


def test_a_program_s_traceback_counts_as_much_as_without_the_emulation(running):
    def program(rank):
        count_frames(rank, frame_counter.rules())
        place = skipped_work._remembered(SimpleNamespace(), textwrap.dedent)
        place("  x + y"), textwrap.dedent("  x + y")
        assert frames_of(rank, lambda: place("  x + y")) == frames_of(rank, lambda: textwrap.dedent("  x + y"))

    running(program)


def test_functions_take_host_time_on_their_thread(running):
    def program(rank):
        count_frames(rank)
        begin = rank.c.phantora_host_clock_ns()
        for _ in range(100):
            function()
        taken = rank.c.phantora_host_clock_ns() - begin
        assert 100 * 1_000 <= taken <= 130 * 1_000, taken

    cost = {f"host_ns__{heat}frame": 1_000 for heat in ("", "warm_", "hot_")}
    cost |= {f"host_ns__{heat}code_unit": 0 for heat in ("", "warm_", "hot_")}
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


def test_an_operator_hands_its_tensors_over_once_and_a_node_to_each_hook(running):
    """DTensor's operators ask Python for hashes, placements and meshes, too: those are functions like others."""

    def program(rank):
        count_frames(rank)
        nvtx = Nvtx(rank)

        def calls_three(announces):
            def work():
                nvtx.push(announces)
                for _ in range(3):
                    function()
                nvtx.pop()

            return work

        operator, node = b"aten::mm, op_id = 3, sizes = [[4]]", b"autograd::engine::evaluate_function: A, op_id = 4"
        assert counted(rank, calls_three(operator))["callback"] == 1
        assert counted(rank, calls_three(node))["callback"] == 3
        twice = counted(rank, lambda: (calls_three(operator)(), calls_three(operator)()))
        assert twice["callback"] == 2

    running(program)


def test_an_operator_of_another_library_is_boxed_if_it_is_written_in_python(running):
    """An operator in C++ is called through its schema alone, which takes a twentieth of that: DTensor's collectives."""

    def program(rank):
        count_frames(rank)
        nvtx = Nvtx(rank)

        def runs(announces, *called):
            def work():
                nvtx.push(announces)
                for one in called:
                    one()
                nvtx.pop()

            return work

        theirs, ours = b"other::mix, op_id = 3, sizes = [[4]]", b"aten::mm, op_id = 3, sizes = [[4]]"
        assert counted(rank, runs(theirs, function, function))["boxed_op"] == 1
        assert "boxed_op" not in counted(rank, runs(theirs))
        assert "boxed_op" not in counted(rank, runs(ours, function))
        nested = counted(rank, runs(ours, lambda: nvtx.range(theirs)))
        assert "boxed_op" not in nested

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
        clock = rank.c.phantora_host_clock_ns
        began = clock()
        Slim()
        made = clock()
        Plain()
        ended = clock()
        assert (made - began) - (ended - made) == 7_000

    cost = {f"host_ns__{heat}frame": 1_000 for heat in ("", "warm_", "hot_")}
    cost |= {f"host_ns__{heat}code_unit": 0 for heat in ("", "warm_", "hot_")}
    running(program, **cost, host_ns__constructor=7_000)


def test_the_emulation_s_functions_are_free_and_compiling_is_left_out():
    kinds = {(file, function): kind for file, function, kind in frame_counter.rules()}
    assert kinds[str(ROOT / "emu") + "/", ""] == frame_counter.OURS
    assert kinds["*/torch/_dynamo/convert_frame.py", ""] == frame_counter.ASIDE
    from emu.control.control_tensors import ControlTensors

    (aside_of_ours,) = (function for (file, function), kind in kinds.items() if "control" in file)
    assert aside_of_ours == ControlTensors.unrecorded.__qualname__, "what computes control tensors has another name"


def test_where_the_host_s_unknown_values_lie_is_looked_up_for_nothing(running):
    """Whether a new tensor has an old one's address is another in each run, and so is what is asked of the old one."""
    ours = str(ROOT / "emu") + "/"
    rules = [rule for rule in frame_counter.rules() if rule[0].startswith(ours)]

    class Storage:
        def expired(self):  # a function of PyTorch's, which counts where the program calls it
            return False

    def program(rank):
        count_frames(rank, rules)
        memory = host_memory.HostMemory(lambda: None, lambda on: None)
        memory._storages = {at: host_memory._Storage(Storage()) for at in range(64)}
        none, _ = frames_of(rank, lambda: 0)
        assert frames_of(rank, lambda: Storage().expired())[0] == none + 1
        assert frames_of(rank, lambda: memory._forget_dead())[0] == none
        assert len(memory._storages) == 64

    running(program)


def test_every_interpreter_that_is_supported_exports_what_counting_takes():
    exported = ctypes.pythonapi
    assert hasattr(exported, "_PyEval_EvalFrameDefault")
    assert hasattr(exported, "_PyInterpreterState_SetEvalFrameFunc")
    assert hasattr(exported, "PyUnstable_Code_GetExtra") or hasattr(exported, "_PyCode_GetExtra"), sys.version
