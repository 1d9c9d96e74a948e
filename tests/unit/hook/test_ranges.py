"""NVTX ranges: ops of signatures, and where steps end."""

import ctypes

import pytest

from emu.contract import records

INJECTED = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
TABLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
PUSH, POP, MARK = 9, 11, 2


class Nvtx:
    """Does what NVTX's header does: offers its tables to the injection and calls what it put there."""

    def __init__(self, rank):
        self.slots = (ctypes.c_void_p * 16)()
        self.pointers = (ctypes.c_void_p * 16)(*(ctypes.addressof(self.slots) + 8 * i for i in range(16)))

        @TABLE
        def function_table(module, table, size):
            if module != 1:
                return 0
            table[0], size[0] = ctypes.addressof(self.pointers), 16
            return 1

        class Exports(ctypes.Structure):
            _fields_ = [("nbytes", ctypes.c_size_t), ("function_table", TABLE)]

        self.exports = Exports(ctypes.sizeof(Exports), function_table)
        offer = INJECTED(lambda which: ctypes.addressof(self.exports) if which == 1 else 0)
        assert rank.c.InitializeInjectionNvtx2(offer) == 1
        self.push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(self.slots[PUSH])
        self.pop = ctypes.CFUNCTYPE(ctypes.c_int)(self.slots[POP])
        self.mark = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self.slots[MARK])

    def range(self, *messages):
        for message in messages:
            self.push(message)
        for _ in messages:
            self.pop()


@pytest.mark.parametrize(
    ("message", "op"),
    [
        (b"aten::add", "aten::add;"),
        (b"aten::add, seq = 12, op_id = 3", "aten::add;"),
        (b"aten::mm, op_id = 7, sizes = [[8, 64], [64, 64]]", "aten::mm;[[8, 64], [64, 64]]"),
        (
            b"AddmmBackward0, seq = 4240, op_id = 17913, sizes = [[8, 64]], input_op_ids = [(17910,0)]",
            "AddmmBackward0;[[8, 64]]",
        ),
        (b"mine, with a comma, seq = 1, sizes = []", "mine, with a comma;[]"),
        (b"layer 3; forward\n", "layer 3, forward ;"),
    ],
)
def test_a_launch_belongs_to_the_innermost_range(running, message, op):
    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        assert nvtx.push(b"outer") == 0
        assert nvtx.push(message) == 1
        rank.launch(kernel)
        assert nvtx.pop() == 1
        rank.launch(kernel)
        assert nvtx.pop() == 0
        rank.launch(kernel)

    told = running(program)
    assert told.signatures == [f"kernel;k;1,1,1;128,1,1;0;{suffix}" for suffix in (op, "outer;", ";")]
    assert told.of(records.COUNTERS)[-1].ops == 2


def test_the_same_op_has_the_same_signature_whatever_its_ids(running):
    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        for i in range(1_000):
            nvtx.push(b"aten::add, seq = %d, op_id = %d, sizes = [[4]]" % (i, 2 * i))
            rank.launch(kernel)
            nvtx.pop()

    assert len(running(program).signatures) == 1


BACKWARD, STEP = b"autograd::engine::evaluate_function: MmBackward0, op_id = 1", b"Optimizer.step#AdamW.step"


def steps(running, script):
    def program(rank):
        script(Nvtx(rank))

    told = running(program)
    for i, record in enumerate(told.records):
        if record.kind == records.MARKER:
            assert told.records[i - 1].kind == records.COUNTERS
    return [r.payload.rstrip(b"\0") for r in told.of(records.MARKER) if r.marker == records.MarkerKind.STEP]


def test_an_optimizer_after_backward_ends_a_step(running):
    def script(nvtx):
        nvtx.range(STEP)  # nothing to apply yet
        for _ in range(3):
            nvtx.range(BACKWARD)
            nvtx.range(STEP, b"aten::_foreach_add_")
            nvtx.range(STEP)  # a second optimizer of the same step

    assert steps(running, script) == [STEP] * 3


def test_a_closure_with_backward_inside_the_optimizer_counts_once(running):
    assert steps(running, lambda nvtx: nvtx.range(STEP, BACKWARD)) == [STEP]


def test_explicit_steps_switch_the_rule_off(running):
    def script(nvtx):
        for _ in range(2):
            nvtx.mark(b"phantora.step")
            nvtx.range(BACKWARD)
            nvtx.range(STEP)
        nvtx.range(b"phantora.step")

    assert steps(running, script) == [b"phantora.step"] * 3
