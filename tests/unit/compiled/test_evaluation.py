"""Integers that Triton programs store are computed from known ones; what follows from others stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from emu.compiled.evaluation import Evaluator, Stores, TooLong  # noqa: E402
from emu.compiled.integer_stores import NotEvaluated, parameters_of, stores_integers  # noqa: E402
from emu.compiled.places import Places  # noqa: E402
from emu.compiled.steps import MemoryReader  # noqa: E402
from emu.formats.ttir import read_program  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

IN, OUT = 1 << 20, 1 << 30
HEAD = (
    "tt.func public @f(%in: !tt.ptr<i64> {tt.divisibility = 16 : i32}, %out: !tt.ptr<i64>, %n: i32) "
    "attributes {noinline = false} {"
)


def program(*lines: str) -> Any:
    return read_program("|".join(("module {", HEAD, *lines, "tt.return", "}", "}")))


def evaluator(numbers: list[int] | None) -> Evaluator:
    """Makes an evaluator. `numbers`: the memory at IN; None: it is unknown."""

    def read(places: Places, element: str) -> Tensor | None:
        if numbers is None:
            return None
        return torch.tensor(numbers)[(places.addresses - IN) // 8]  # type: ignore[no-any-return]

    return Evaluator(MemoryReader(read))


def stored(numbers: list[int] | None, lines: list[str], grid: int = 1, n: int = 0) -> dict[int, int]:
    """Returns what the program stores at each place of the output."""
    return at_output(evaluator(numbers).stores(program(*lines), (grid, 1, 1), [IN, OUT, n]))


def at_output(stores: Stores) -> dict[int, int]:
    found = {}
    for places, values in stores.found:
        assert places.item == 8
        if values is not None:
            found.update(zip(((places.addresses - OUT) // 8).tolist(), values.tolist(), strict=True))
    return found


BLOCK_OF_4 = [
    "%c4 = arith.constant 4 : i32",
    "%pid = tt.get_program_id x : i32",
    "%start = arith.muli %pid, %c4 : i32",
    "%r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>",
    "%s = tt.splat %start : i32 -> tensor<4xi32>",
    "%i = arith.addi %s, %r : tensor<4xi32>",
    "%end = tt.splat %n : i32 -> tensor<4xi32>",
    "%mask = arith.cmpi slt, %i, %end : tensor<4xi32>",
    "%zero = arith.constant dense<0> : tensor<4xi64>",
    "%ip = tt.splat %in : !tt.ptr<i64> -> tensor<4x!tt.ptr<i64>>",
    "%ia = tt.addptr %ip, %i : tensor<4x!tt.ptr<i64>>, tensor<4xi32>",
    "%x = tt.load %ia, %mask, %zero : tensor<4x!tt.ptr<i64>>",
    "%op = tt.splat %out : !tt.ptr<i64> -> tensor<4x!tt.ptr<i64>>",
    "%oa = tt.addptr %op, %i : tensor<4x!tt.ptr<i64>>, tensor<4xi32>",
]
STORE = "tt.store %oa, %y, %mask : tensor<4x!tt.ptr<i64>>"


def test_all_instances_load_and_store_within_the_mask() -> None:
    lines = [*BLOCK_OF_4, "%y = arith.muli %x, %x : tensor<4xi64>", STORE]
    assert stored([1, 2, 3, 4, 5, 6], lines, grid=2, n=6) == {0: 1, 1: 4, 2: 9, 3: 16, 4: 25, 5: 36}
    assert stored(None, lines, grid=2, n=6) == {}


TO_I8 = "%t = arith.trunci %x : tensor<4xi64> to tensor<4xi8>|%y = arith.extsi %t : tensor<4xi8> to tensor<4xi64>"
LARGER = "%b = arith.cmpi sgt, %x, %k : tensor<4xi64>|%y = arith.select %b, %x, %k : tensor<4xi1>, tensor<4xi64>"


def compared(how: str, widened: str) -> str:
    return f"%b = arith.cmpi {how}, %x, %k : tensor<4xi64>|%y = arith.{widened} %b : tensor<4xi1> to tensor<4xi64>"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("%y = arith.divsi %x, %k : tensor<4xi64>", [-2, 0, 2, 3]),
        ("%y = arith.remsi %x, %k : tensor<4xi64>", [-1, 2, 1, 0]),
        ("%y = arith.shli %k, %k : tensor<4xi64>", [24] * 4),
        ("%y = arith.xori %x, %k : tensor<4xi64>", [-6, 1, 4, 10]),
        (compared("ult", "extui"), [0, 1, 0, 0]),
        (compared("slt", "extsi"), [-1, -1, 0, 0]),
        (TO_I8, [-7, 2, 7, 9]),
        (LARGER, [3, 3, 7, 9]),
    ],
)
def test_operations(operation: str, expected: list[int]) -> None:
    lines = [*BLOCK_OF_4, "%k = arith.constant dense<3> : tensor<4xi64>", *operation.split("|"), STORE]
    assert list(stored([-7, 2, 7, 9], lines, n=4).values()) == expected


def test_sums_and_running_sums() -> None:
    combine = ["^bb0(%a: i64, %b: i64):", "%c = arith.addi %a, %b : i64"]
    scan = [
        '%y = "tt.scan"(%x) <{axis = 0 : i32, reverse = false}> ({',
        *combine,
        "tt.scan.return %c : i64",
        "}) : (tensor<4xi64>) -> tensor<4xi64>",
    ]
    assert stored([5, 1, 2, 4], [*BLOCK_OF_4, *scan, STORE], n=4) == {0: 5, 1: 6, 2: 8, 3: 12}
    reduce = [
        '%all = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
        *combine,
        "tt.reduce.return %c : i64",
        "}) : (tensor<4xi64>) -> i64",
        "%y = tt.splat %all : i64 -> tensor<4xi64>",
    ]
    assert stored([5, 1, 2, 4], [*BLOCK_OF_4, *reduce, STORE], n=4) == dict.fromkeys(range(4), 12)


def test_the_place_of_the_largest() -> None:
    lines = [
        *BLOCK_OF_4,
        '%m:2 = "tt.reduce"(%x, %i) <{axis = 0 : i32}> ({',
        "^bb0(%a: i64, %i: i32, %b: i64, %j: i32):",
        "%g = arith.cmpi sge, %a, %b : i64",
        "%v = arith.select %g, %a, %b : i64",
        "%w = arith.select %g, %i, %j : i32",
        "tt.reduce.return %v, %w : i64, i32",
        "}) : (tensor<4xi64>, tensor<4xi32>) -> (i64, i32)",
        "%l = arith.extsi %m#1 : i32 to i64",
        "%y = tt.splat %l : i64 -> tensor<4xi64>",
        STORE,
    ]
    assert set(stored([5, 9, 9, 4], lines, n=4).values()) == {1}


def test_a_loop_and_a_branch() -> None:
    lines = [
        *BLOCK_OF_4,
        "%c0 = arith.constant 0 : i32",
        "%c1 = arith.constant 1 : i32",
        "%sum = scf.for %at = %c0 to %n step %c1 iter_args(%acc = %x) -> (tensor<4xi64>)  : i32 {",
        "%more = arith.addi %acc, %x : tensor<4xi64>",
        "scf.yield %more : tensor<4xi64>",
        "}",
        "%first = arith.cmpi eq, %pid, %c0 : i32",
        "%y = scf.if %first -> (tensor<4xi64>) {",
        "scf.yield %sum : tensor<4xi64>",
        "} else {",
        "scf.yield %x : tensor<4xi64>",
        "}",
        STORE,
    ]
    assert stored(list(range(8)), lines, grid=2, n=8) == {i: i * 9 if i < 4 else i for i in range(8)}


def test_what_follows_from_floats_is_not_worth_evaluating() -> None:
    integers = program(*BLOCK_OF_4, "%y = arith.muli %x, %x : tensor<4xi64>", STORE)
    floats = program(
        *BLOCK_OF_4,
        "%fp = tt.bitcast %ia : tensor<4x!tt.ptr<i64>> -> tensor<4x!tt.ptr<f32>>",
        "%f = tt.load %fp, %mask : tensor<4x!tt.ptr<f32>>",
        "%y = arith.fptosi %f : tensor<4xf32> to tensor<4xi64>",
        STORE,
    )
    evaluated = evaluator([]).evaluated
    assert stores_integers(integers, evaluated)
    assert not stores_integers(floats, evaluated)
    chosen = [
        "%first = arith.cmpi eq, %pid, %c4 : i32",
        "%y = scf.if %first -> (tensor<4xi64>) {",
        "scf.yield %x : tensor<4xi64>",
        "} else {",
        "scf.yield %zero : tensor<4xi64>",
        "}",
        STORE,
    ]
    assert stores_integers(program(*BLOCK_OF_4, *chosen), evaluated)
    by_float = [chosen[0].replace("%first", "%second"), "%first = tt.strange %second : i1", *chosen[1:]]
    assert not stores_integers(program(*BLOCK_OF_4, *by_float), evaluated)


def test_an_operation_that_is_not_known_leaves_its_results_unknown() -> None:
    lines = [*BLOCK_OF_4, "%z = tt.strange %x : tensor<4xi64>", "%y = arith.addi %z, %x : tensor<4xi64>", STORE]
    assert stored([1, 2, 3, 4], lines, n=4) == {}


@pytest.mark.parametrize("kind", ["!tt.tensordesc<4xf32>", "!tt.ptr<tensor<4xi32>>", "tensor<4xi32>", "index"])
def test_programs_with_parameters_of_other_types_are_refused(kind: str) -> None:
    other = read_program("|".join((HEAD.replace("%n: i32", f"%n: {kind}"), "tt.return", "}")))
    with pytest.raises(NotEvaluated):
        parameters_of(other)


def test_a_launch_that_takes_too_long_is_given_up() -> None:
    lines = [*BLOCK_OF_4, "%y = arith.muli %x, %x : tensor<4xi64>", STORE]
    with pytest.raises(TooLong):
        stored([0] * 16, lines, grid=1 << 19, n=4)
    loop = [
        *BLOCK_OF_4,
        "%c0 = arith.constant 0 : i32",
        "%c1 = arith.constant 1 : i32",
        "%y = scf.for %at = %c0 to %n step %c1 iter_args(%acc = %x) -> (tensor<4xi64>)  : i32 {",
        "%more = arith.addi %acc, %x : tensor<4xi64>",
        "scf.yield %more : tensor<4xi64>",
        "}",
        STORE,
    ]
    with pytest.raises(TooLong):
        stored([0] * 4, loop, n=100_000)


EARLY_RETURN = [  # the last instance stores -1 behind the numbers of the others, each of which stores its own
    "%c-1_i64 = arith.constant -1 : i64",
    "%pid = tt.get_program_id x : i32",
    "%to = tt.addptr %out, %pid : !tt.ptr<i64>, i32",
    "%last = arith.cmpi eq, %pid, %n : i32",
    "cf.cond_br %last, ^bb1, ^bb2",
    "^bb1:  // pred: ^bb0",
    "tt.store %to, %c-1_i64 : !tt.ptr<i64>",
    "tt.return",
    "^bb2:  // pred: ^bb0",
    "%from = tt.addptr %in, %pid : !tt.ptr<i64>, i32",
    "%x = tt.load %from : !tt.ptr<i64>",
    "cf.br ^bb3(%x : i64)",
    "^bb3(%y: i64):  // pred: ^bb2",
    "tt.store %to, %y : !tt.ptr<i64>",
]


def test_an_instance_that_returns_early_stores_nothing_more() -> None:
    assert stored([5, 6, 7, 8], EARLY_RETURN, grid=3, n=2) == {0: 5, 1: 6, 2: -1}


def test_what_is_stored_without_being_known_is_told_by_its_place() -> None:
    """Only if all addresses are known nothing else has been overwritten."""
    stores = evaluator(None).stores(program(*EARLY_RETURN), (3, 1, 1), [IN, OUT, 2])
    assert stores.are_all
    known = [
        (one.places.addresses.tolist(), None if one.values is None else one.values.tolist()) for one in stores.found
    ]
    assert sorted(known) == [([OUT, OUT + 8], None), ([OUT + 16], [-1])]
    at_loaded = ["%x = tt.load %in : !tt.ptr<i64>", "%to = tt.addptr %out, %x : !tt.ptr<i64>, i64"]
    at_loaded.append("tt.store %to, %x : !tt.ptr<i64>")
    assert not evaluator(None).stores(program(*at_loaded), (1, 1, 1), [IN, OUT, 2]).are_all


def test_a_thousand_instances_that_take_a_few_ways_are_followed() -> None:
    """Each turns as often as its number says, modulo 3: three ways, whatever the number of instances."""
    lines = [
        "%c0 = arith.constant 0 : i32",
        "%c1 = arith.constant 1 : i32",
        "%c3 = arith.constant 3 : i32",
        "%zero = arith.constant 0 : i64",
        "%ten = arith.constant 10 : i64",
        "%pid = tt.get_program_id x : i32",
        "%end = arith.remsi %pid, %c3 : i32",
        "%sum = scf.for %i = %c0 to %end step %c1 iter_args(%s = %zero) -> (i64) : i32 {",
        "%more = arith.addi %s, %ten : i64",
        "scf.yield %more : i64",
        "}",
        "%to = tt.addptr %out, %pid : !tt.ptr<i64>, i32",
        "tt.store %to, %sum : !tt.ptr<i64>",
    ]
    assert stored([], lines, grid=1000) == {place: place % 3 * 10 for place in range(1000)}


def test_instances_whose_loops_begin_elsewhere_are_followed_together() -> None:
    """As rows of a batch, one behind the other: 300 sequences, each of two numbers, whose places begin at 2 * pid."""
    lines = [
        "%c1 = arith.constant 1 : i32",
        "%c2 = arith.constant 2 : i32",
        "%pid = tt.get_program_id x : i32",
        "%first = arith.muli %pid, %c2 : i32",
        "%last = arith.addi %first, %c2 : i32",
        "scf.for %i = %first to %last step %c1 : i32 {",
        "%from = tt.addptr %in, %i : !tt.ptr<i64>, i32",
        "%value = tt.load %from : !tt.ptr<i64>",
        "%to = tt.addptr %out, %i : !tt.ptr<i64>, i32",
        "tt.store %to, %value : !tt.ptr<i64>",
        "}",
    ]
    numbers = [7 * place for place in range(600)]
    assert stored(numbers, lines, grid=300) == {place: 7 * place for place in range(600)}


def test_loops_that_begin_elsewhere_may_turn_differently_often() -> None:
    """Instances 0 to 3 count from their own number to 3: three, two, one and no turns."""
    lines = [
        "%c1 = arith.constant 1 : i32",
        "%c4 = arith.constant 4 : i32",
        "%pid = tt.get_program_id x : i32",
        "%row = arith.muli %pid, %c4 : i32",
        "scf.for %i = %pid to %n step %c1 : i32 {",
        "%place = arith.addi %row, %i : i32",
        "%to = tt.addptr %out, %place : !tt.ptr<i64>, i32",
        "%value = arith.extsi %i : i32 to i64",
        "tt.store %to, %value : !tt.ptr<i64>",
        "}",
    ]
    assert stored([], lines, grid=4, n=3) == {0: 0, 1: 1, 2: 2, 5: 1, 6: 2, 10: 2}


class Repeated:
    """Launches of one program with the same arguments, while its memory at IN changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, numbers: list[int], lines: list[str], grid: int) -> None:
        self.numbers: list[int] | None = numbers
        self._program, self._grid = program(*lines), grid
        self._evaluator = Evaluator(MemoryReader(self._read))
        self.followed = 0
        follow = self._evaluator._followed

        def followed(*arguments: Any) -> Any:
            self.followed += 1
            return follow(*arguments)

        monkeypatch.setattr(self._evaluator, "_followed", followed)

    def _read(self, places: Places, element: str) -> Tensor | None:
        if self.numbers is None:
            return None
        return torch.tensor(self.numbers)[(places.addresses - IN) // 8]  # type: ignore[no-any-return]

    def launch(self) -> dict[int, int]:
        return at_output(self._evaluator.stores(self._program, (self._grid, 1, 1), [IN, OUT, 0]))


ROWS = [
    "%c0 = arith.constant 0 : i64",
    "%c1 = arith.constant 1 : i64",
    "%ten = arith.constant 10 : i64",
    "%pid = tt.get_program_id x : i32",
    "%from = tt.addptr %in, %pid : !tt.ptr<i64>, i32",
    "%x = tt.load %from : !tt.ptr<i64>",
    "%to = tt.addptr %out, %pid : !tt.ptr<i64>, i32",
    "%sum = scf.for %i = %c0 to %x step %c1 iter_args(%s = %c0) -> (i64) : i64 {",
    "%more = arith.addi %s, %ten : i64",
    "scf.yield %more : i64",
    "}",
    "tt.store %to, %sum : !tt.ptr<i64>",
]
"""Each instance turns as often as its number says."""


def test_a_launch_repeats_what_follows_from_numbers_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*BLOCK_OF_4, "%y = arith.muli %x, %x : tensor<4xi64>", "tt.store %oa, %y : tensor<4x!tt.ptr<i64>>"]
    lines[7] = "%mask = arith.cmpi sge, %i, %end : tensor<4xi32>"
    launches = Repeated(monkeypatch, [1, 2, 3, 4, 5, 6, 7, 8], lines, grid=2)
    assert launches.launch() == {0: 1, 1: 4, 2: 9, 3: 16, 4: 25, 5: 36, 6: 49, 7: 64}
    launches.numbers = [1, 2, 3, 9, 5, 6, 7, 8]
    assert launches.launch() == {0: 1, 1: 4, 2: 9, 3: 81, 4: 25, 5: 36, 6: 49, 7: 64}
    assert launches.launch() == {0: 1, 1: 4, 2: 9, 3: 81, 4: 25, 5: 36, 6: 49, 7: 64}, "it is stored again"
    assert launches.followed == 1


def test_a_launch_that_takes_another_way_is_followed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Repeated(monkeypatch, [1, 2, 1], ROWS, grid=3)
    assert launches.launch() == {0: 10, 1: 20, 2: 10}
    assert launches.launch() == {0: 10, 1: 20, 2: 10}
    assert launches.followed == 1
    launches.numbers = [1, 1, 2]
    assert launches.launch() == {0: 10, 1: 10, 2: 20}
    assert launches.followed == 2


def test_numbers_that_become_unknown_or_known_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*BLOCK_OF_4, "%y = arith.muli %x, %x : tensor<4xi64>", "tt.store %oa, %y : tensor<4x!tt.ptr<i64>>"]
    lines[7] = "%mask = arith.cmpi sge, %i, %end : tensor<4xi32>"
    launches = Repeated(monkeypatch, [1, 2, 3, 4], lines, grid=1)
    assert launches.launch() == {0: 1, 1: 4, 2: 9, 3: 16}
    launches.numbers = None
    assert launches.launch() == {}
    assert launches.launch() == {}
    launches.numbers = [5, 6, 7, 8]
    assert launches.launch() == {0: 25, 1: 36, 2: 49, 3: 64}
    assert launches.followed == 3


def test_addresses_that_follow_from_loaded_numbers_change_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first number says where the second one is, and where it is stored."""
    lines = [
        "%at = tt.load %in : !tt.ptr<i64>",
        "%from = tt.addptr %in, %at : !tt.ptr<i64>, i64",
        "%x = tt.load %from : !tt.ptr<i64>",
        "%to = tt.addptr %out, %at : !tt.ptr<i64>, i64",
        "tt.store %to, %x : !tt.ptr<i64>",
    ]
    launches = Repeated(monkeypatch, [1, 40, 50], lines, grid=1)
    assert launches.launch() == {1: 40}
    launches.numbers = [2, 40, 50]
    assert launches.launch() == {2: 50}
    assert launches.followed == 1
