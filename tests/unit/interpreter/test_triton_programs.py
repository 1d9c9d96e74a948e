"""Facts that the hook is told of Triton's kernels."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from emu.formats.ttir import one_line
from emu.interpreter.triton_programs import _tell, parameter_widths, stored_through

PROGRAM = """
#loc = loc("kernel.py":3:0)
module {
  tt.func public @k(%x: !tt.ptr<f32> loc("k.py":3:0), %n: i32 loc(unknown), %seed: i64, %rows: i64, %scale: f32) {
    %c = arith.constant 0 : i32 loc(#loc1)
    %c1 = arith.constant 1 : i32 loc(callsite(#loc1 at #loc2))
    %p = tt.addptr %x, %n : !tt.ptr<f32>, i32 loc(#loc)
    %r = arith.xori %seed, %seed : i64
    %f = arith.sitofp %r : i64 to f32
    %end = arith.trunci %rows : i64 to i32
    %s = scf.for %i = %c to %end step %c1 iter_args(%a = %f) -> (f32) : i32 {
      scf.yield %a : f32
    }
    tt.store %p, %s : !tt.ptr<f32>
    tt.return
  }
}
#loc1 = loc("kernel.py":4:0)
"""


def test_a_program_becomes_one_line_without_locations() -> None:
    text = one_line(PROGRAM)
    assert "\n" not in text
    assert "loc(" not in text
    assert text.split("|")[2] == "%c = arith.constant 0 : i32"
    assert one_line(text) == text.replace("|", "/"), "what separates lines may not be in them"


def test_only_integers_that_decide_the_work_are_read() -> None:
    """An address, and the end of a loop; the seed of random numbers would make a cost of its own of every launch."""
    assert parameter_widths(one_line(PROGRAM)) == "-4-8-"


def test_a_loop_s_carried_integers_decide() -> None:
    text = (
        "tt.func public @k(%step: i32, %noise: f32) {|%v = arith.addi %a, %step : i32|scf.yield %v, %noise : i32, f32|}"
    )
    assert parameter_widths(text) == "4-"


def test_counts_in_memory_that_end_a_loop_are_read() -> None:
    """A row's number of blocks, scaled; not the index of the first one, nor a pointer to what is loaded in vectors."""
    lines = (
        "tt.func public @k(%x: !tt.ptr<bf16>, %counts: !tt.ptr<i32>, %first: !tt.ptr<i32>, %n: i32) {",
        "%row = tt.get_program_id x : i32",
        "%at = tt.addptr %counts, %row : !tt.ptr<i32>, i32",
        "%blocks = tt.load %at : !tt.ptr<i32>",
        "%more = arith.muli %blocks, %two : i32",
        "%end = arith.minsi %more, %n : i32",
        "%at_1 = tt.addptr %first, %row : !tt.ptr<i32>, i32",
        "%begin = tt.load %at_1 : !tt.ptr<i32>",
        "%p = tt.addptr %x, %begin : !tt.ptr<bf16>, i32",
        "%s = scf.for %i = %c0 to %end step %c1 iter_args(%a = %p) -> (!tt.ptr<bf16>) : i32 {",
        "}",
    )
    assert parameter_widths("|".join(lines)) == "-c-4"


ROWS = (
    "tt.func public @k(%x: !tt.ptr<bf16>, %rows: !tt.ptr<i32>, %y: !tt.ptr<bf16>, %n: i32) {",
    "%at = tt.get_program_id x : i32",
    "%p = tt.addptr %rows, %at : !tt.ptr<i32>, i32",
    "%row = tt.load %p : !tt.ptr<i32>",
    "%wide = arith.extsi %row : i32 to i64",
    "%from = tt.addptr %x, %at : !tt.ptr<bf16>, i32",
    "%v = tt.load %from : !tt.ptr<bf16>",
    "%to = tt.addptr %y, %wide : !tt.ptr<bf16>, i64",
    "tt.store %to, %v : !tt.ptr<bf16>",
)


def test_a_pointer_at_whose_data_other_data_points_counts_with_its_bytes() -> None:
    """The rows of a permutation: what is stored lies anywhere in the output, what is read lies where the block says."""
    assert parameter_widths("|".join(ROWS)) == "--b-"
    product = "%d = tt.dot %a, %b, %c : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>"
    assert parameter_widths("|".join((*ROWS, product))) == "----"


def test_weights_that_a_number_chooses_count_with_their_bytes() -> None:
    """A number of -1 chooses none, and nothing is multiplied. A loop carries the pointers of both factors."""
    lines = (
        "tt.func public @k(%x: !tt.ptr<bf16>, %w: !tt.ptr<bf16>, %experts: !tt.ptr<i32>, %n: i32) {",
        "%c-1_i64 = arith.constant -1 : i64",
        "%p = tt.addptr %experts, %n : !tt.ptr<i32>, i32",
        "%expert = tt.load %p : !tt.ptr<i32>",
        "%expert_1 = arith.extsi %expert : i32 to i64",
        "%none = arith.cmpi eq, %expert_1, %c-1_i64 : i64",
        "cf.cond_br %none, ^bb1, ^bb2",
        "^bb1:  // pred: ^bb0",
        "tt.return",
        "^bb2:  // pred: ^bb0",
        "%at = arith.muli %expert_1, %stride : i64",
        "%b = tt.addptr %w, %at : !tt.ptr<bf16>, i64",
        "%s:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x, %bs = %b) -> (!tt.ptr<bf16>, !tt.ptr<bf16>) : i32 {",
        "%u = tt.load %a : !tt.ptr<bf16>",
        "%v = tt.load %bs : !tt.ptr<bf16>",
        "%d = tt.dot %u, %v, %c : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>",
        "}",
    )
    assert parameter_widths("|".join(lines)) == "-b-4"


def test_what_is_no_program_has_no_parameters() -> None:
    assert parameter_widths("nonsense") == ""


def test_stores_are_followed_to_the_pointers() -> None:
    assert stored_through(one_line(PROGRAM)) == "w----"


def test_a_pointer_that_is_only_loaded_from_is_not_written() -> None:
    text = (
        "tt.func public @k(%in: !tt.ptr<f32>, %out: !tt.ptr<f32>, %count: !tt.ptr<i32>, %n: i32) {"
        "|%at = tt.addptr %in, %n : !tt.ptr<f32>, i32|%index = tt.load %at : !tt.ptr<f32>"
        "|%to = tt.addptr %out, %index : !tt.ptr<f32>, i32|tt.store %to, %index : !tt.ptr<f32>"
        "|%old = tt.atomic_rmw add, acq_rel, gpu, %count, %n : (!tt.ptr<i32>, i32) -> i32|}"
    )
    assert stored_through(text) == "rww-"


def test_pointers_that_a_loop_carries_are_followed_one_by_one() -> None:
    text = (
        "tt.func public @k(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %n: i32) {"
        "|%r:2 = scf.for %i = %n to %n step %n iter_args(%p = %a, %q = %b) -> (!tt.ptr<f32>, !tt.ptr<f32>) : i32 {"
        "|%v = tt.load %p : !tt.ptr<f32>|tt.store %q, %v : !tt.ptr<f32>"
        "|%p2 = tt.addptr %p, %n : !tt.ptr<f32>, i32|%q2 = tt.addptr %q, %n : !tt.ptr<f32>, i32"
        "|scf.yield %p2, %q2 : !tt.ptr<f32>, !tt.ptr<f32>|}|}"
    )
    assert stored_through(text) == "rw-"


def test_a_program_that_stores_through_a_pointer_of_unknown_origin_may_store_through_all() -> None:
    text = (
        "tt.func public @k(%a: !tt.ptr<f32>, %n: i64) {"
        "|%p = tt.int_to_ptr %n : i64 -> !tt.ptr<f32>|tt.store %p, %v : !tt.ptr<f32>|}"
    )
    assert stored_through(text) == "w-"
    given = (
        "tt.func public @k(%a: !tt.ptr<f32>) {|cf.br ^bb1(%a)|^bb1(%p: !tt.ptr<f32>):|tt.store %p, %v : !tt.ptr<f32>|}"
    )
    assert stored_through(given) == "w"
    assert stored_through("tt.func public @k(%a: !tt.ptr<f32>) {|tt.call @f(%a) : (!tt.ptr<f32>) -> ()|}") == "w"


def test_a_table_of_pointers_is_told_from_what_they_lead_to() -> None:
    """As vLLM's tables of blocks: one pointer leads to what is loaded, another one to what is stored."""
    text = (
        "tt.func public @k(%rows: !tt.ptr<i32>, %in: !tt.ptr<i64>, %out: !tt.ptr<i64>, %n: i32) {"
        "|%row = tt.load %rows : !tt.ptr<i32>|%i = tt.addptr %in, %n : !tt.ptr<i64>, i32"
        "|%from = tt.load %i : !tt.ptr<i64>|%p = tt.int_to_ptr %from : i64 -> !tt.ptr<i32>"
        "|%v = tt.load %p : !tt.ptr<i32>|%o = tt.addptr %out, %n : !tt.ptr<i64>, i32"
        "|%to = tt.load %o : !tt.ptr<i64>|%q = tt.int_to_ptr %to : i64 -> !tt.ptr<i32>"
        "|%at = tt.addptr %q, %row : !tt.ptr<i32>, i32|tt.store %at, %v : !tt.ptr<i32>|}"
    )
    assert stored_through(text) == "rrt-"


def test_a_program_that_many_graphs_load_is_read_once() -> None:
    texts: list[str] = []

    class Program(str):
        """Counts who reads it."""

        def splitlines(self, keepends: bool = False) -> list[str]:
            texts.append(self)
            return super().splitlines(keepends)

        def replace(self, *arguments: Any) -> Any:
            return Program(super().replace(*arguments))

    text = "module {\n  tt.func public @once(%p: !tt.ptr<f32>, %n: i32) {\n    tt.return\n  }\n}\n"
    told = [MagicMock(), MagicMock()]
    computed = MagicMock(**{"number.return_value": 0})
    for function, hook in enumerate(told):
        _tell(hook, computed, function, Program(text))
    assert len(texts) == 1
    first, second = (hook.kernel_program.call_args.args for hook in told)
    assert (first[0], second[0]) == (0, 1)
    assert first[1:] == second[1:]
    assert first[2:4] == ("--", "r-")
