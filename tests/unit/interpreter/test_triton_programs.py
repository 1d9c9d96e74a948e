"""What the hook is told of Triton's kernels."""

from __future__ import annotations

from emu.interpreter.triton_programs import one_line, parameter_widths

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


def test_what_is_no_program_has_no_parameters() -> None:
    assert parameter_widths("nonsense") == ""
