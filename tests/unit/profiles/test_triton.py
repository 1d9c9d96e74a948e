"""Triton's kernels are priced by what their program does."""

from __future__ import annotations

from statistics import median

import pytest

import profiles
from formats.ttir import TtirError, read_program
from laboratory.fits.model_error import MEASURED, Compared, compare, read
from profiles.triton.interpreter import launch_work
from profiles.triton.values import Buffer

GPU = profiles.load_gpu("h200")
ADD = """module {
tt.func public @add(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
%c1024 = arith.constant 1024 : i32
%i = tt.get_program_id x : i32
%s = arith.muli %i, %c1024 : i32
%r = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
%b = tt.splat %s : i32 -> tensor<1024xi32>
%at = arith.addi %b, %r : tensor<1024xi32>
%m = tt.splat %n : i32 -> tensor<1024xi32>
%k = arith.cmpi slt, %at, %m : tensor<1024xi32>
%0 = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
%1 = tt.addptr %0, %at : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
%2 = tt.load %1, %k : tensor<1024x!tt.ptr<f32>>
%3 = arith.addf %2, %2 : tensor<1024xf32>
%4 = tt.splat %o : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
%5 = tt.addptr %4, %at : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
tt.store %5, %3, %k : tensor<1024x!tt.ptr<f32>>
tt.return
}
}""".replace("\n", "|")
PRODUCT = """tt.func public @product(%x: !tt.ptr<bf16>, %o: !tt.ptr<f32>, %n: i32) {
%zero = arith.constant dense<0.000000e+00> : tensor<64x128xf32>
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%0 = tt.splat %x : !tt.ptr<bf16> -> tensor<64x32x!tt.ptr<bf16>>
%1 = tt.splat %x : !tt.ptr<bf16> -> tensor<32x128x!tt.ptr<bf16>>
%sum = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero) -> (tensor<64x128xf32>) : i32 {
%2 = tt.load %0 : tensor<64x32x!tt.ptr<bf16>>
%3 = tt.load %1 : tensor<32x128x!tt.ptr<bf16>>
%4 = tt.dot %2, %3, %a : tensor<64x32xbf16> * tensor<32x128xbf16> -> tensor<64x128xf32>
scf.yield %4 : tensor<64x128xf32>
}
tt.return
}""".replace("\n", "|")


def signature(program: str, blocks: int, arguments: str) -> str:
    return f"triton;kernel;{blocks},1,1;128,1,1;0;{arguments};{program};;"


def test_bytes_are_those_inside_the_mask() -> None:
    """A last block of which 24 of 1,024 elements exist."""
    work = launch_work(read_program(ADD), (4, 1, 1), {"n": 3 * 1024 + 24})
    assert work.reads["x"].asked_nbytes == work.writes["o"].asked_nbytes == 4 * (3 * 1024 + 24)
    assert work.memory_nbytes == 2 * 4 * (3 * 1024 + 24)
    assert not work.product_flops


def test_a_loop_multiplies_as_often_as_its_bound_says() -> None:
    for trips in (0, 1, 2, 3, 100):
        work = launch_work(read_program(PRODUCT), (10, 1, 1), {"n": trips})
        assert work.flops == pytest.approx(10 * trips * 2 * 64 * 128 * 32)
        assert work.guesses == 0


COUNTED = (
    PRODUCT.replace("%n: i32)", "%n: !tt.ptr<i32>)")
    .replace(
        "%sum =",
        "%row = tt.get_program_id x : i32|%at = tt.addptr %n, %row : !tt.ptr<i32>, i32|%end = tt.load %at : "
        "!tt.ptr<i32>|%sum =",
    )
    .replace("to %n step", "to %end step")
)


def test_counts_in_memory_end_the_loops_of_their_instances() -> None:
    of_one = 2 * 64 * 128 * 32
    work = launch_work(read_program(COUNTED), (4, 1, 1), {"n": (1, 5, 0, 2)})
    assert (work.flops, work.guesses) == (pytest.approx(8 * of_one), 0)
    beyond = launch_work(read_program(COUNTED), (4, 1, 1), {"n": (3,)})
    assert beyond.flops == pytest.approx((3 + 1 + 1 + 1) * of_one), "what is not told counts as one"


def test_a_signature_tells_counts_as_runs() -> None:
    def flops(counts: str) -> float:
        return profiles.CostModel(GPU).cost(signature(COUNTED, 8, f"-,-,{counts}")).flops

    assert flops("2x8") == pytest.approx(flops("1x4+3x4")) == pytest.approx(16 * 2 * 64 * 128 * 32)
    for wrong in ("2x", "x4", "1x0", "1x99999999", "+"):
        cost = profiles.CostModel(GPU).cost(signature(COUNTED, 8, f"-,-,{wrong}"))
        assert cost.source is profiles.Source.UNRECOGNISED


def test_a_bound_that_is_not_known_is_counted() -> None:
    assert launch_work(read_program(PRODUCT), (10, 1, 1), {}).guesses > 0
    cost = profiles.CostModel(GPU).cost(signature(PRODUCT, 10, "-,-,-"))
    assert cost.source is profiles.Source.UNRECOGNISED
    assert "loop" in cost.unknown


def test_time_follows_the_work_not_the_grid() -> None:
    model = profiles.CostModel(GPU)
    one, four = (model.cost(signature(PRODUCT, 132, f"-,-,{trips}")) for trips in (1_000, 4_000))
    assert one.source is profiles.Source.ROOFLINE
    assert four.flops == 4 * one.flops
    assert 3.5 < four.solo_ns / one.solo_ns < 4.5
    assert four.solo_ns >= four.flops / GPU.peak_flops("bf16") * 1e9


def test_large_sums_stream() -> None:
    blocks = 1 << 16
    cost = profiles.CostModel(GPU).cost(signature(ADD, blocks, f"-,-,{blocks * 1024}"))
    assert 0.75 < 2 * 4 * blocks * 1024 / cost.solo_ns / GPU.memory.bandwidth_gb_per_s < 1


@pytest.mark.parametrize("program", ["nonsense", ADD.replace("public ", ""), ADD[:200], "|" * 50])
def test_what_is_no_program_is_priced_by_its_grid(program: str) -> None:
    cost = profiles.CostModel(GPU).cost(signature(program, 64, "-"))
    assert cost.solo_ns > 0
    assert cost.source is profiles.Source.UNRECOGNISED or program.startswith("module")


def test_a_program_has_one_public_function() -> None:
    with pytest.raises(TtirError, match="no public function"):
        read_program("module {|}")


@pytest.mark.parametrize("grid", [(32, 1, 32), (16, 2, 32), (64, 4, 16)])
def test_rows_that_do_more_are_sampled_as_often_as_others(grid: tuple[int, int, int]) -> None:
    """Row i multiplies i + 1 times, as under a causal mask."""
    rows = grid[0]
    work = launch_work(read_program(COUNTED), grid, {"n": tuple(range(1, rows + 1))})
    products = grid[1] * grid[2] * rows * (rows + 1) / 2
    assert work.flops == pytest.approx(products * 2 * 64 * 32 * 128, rel=0.03)
    assert work.longest == pytest.approx(2 * rows / (rows + 1), rel=0.03)


LOOKED_UP = (
    PRODUCT.replace("%n: i32)", "%n: i32, %t: !tt.ptr<i64>)")
    .replace("%sum =", "%2 = tt.splat %t : !tt.ptr<i64> -> tensor<64x!tt.ptr<i64>>|%sum =")
    .replace("%2 = tt.load %0", "%6 = tt.load %2 : tensor<64x!tt.ptr<i64>>|%2 = tt.load %0")
)


def test_turns_of_a_loop_of_products_wait_for_what_a_mask_looks_up() -> None:
    work = launch_work(read_program(LOOKED_UP), (10, 1, 1), {"n": 7})
    assert (work.gathers, work.loops) == (70, 0)
    model = profiles.CostModel(GPU)
    plain, looked_up = (model.cost(signature(one, 132, "-,-,7,-")) for one in (PRODUCT, LOOKED_UP))
    assert looked_up.solo_ns - plain.solo_ns > 7 * 400


def test_loops_of_several_products_begin_where_they_have_turns() -> None:
    two = PRODUCT.replace(
        "scf.yield", "%5 = tt.dot %2, %3, %4 : tensor<64x32xbf16> * tensor<32x128xbf16> -> tensor<64x128xf32>|scf.yield"
    )
    assert launch_work(read_program(two), (10, 1, 1), {"n": 3}).loops == 10
    assert launch_work(read_program(two), (10, 1, 1), {"n": 0}).loops == 0


def test_compiled_kernels_find_what_was_written_just_before_in_the_cache() -> None:
    """Additions of 16 MB take less than the memory needs for them, of 1 GB more."""
    gpu = profiles.load_gpu("h100")
    for blocks, fits in ((1 << 11, True), (1 << 17, False)):
        cost = profiles.CostModel(gpu).cost(signature(ADD, blocks, f"-,-,{blocks * 1024}"))
        streamed = 2 * 4 * blocks * 1024 / gpu.memory.bandwidth_gb_per_s
        assert (cost.solo_ns - gpu.achieved.kernel_floor_ns < streamed) is fits


def on_an_h100(kind: str, every: int) -> list[Compared]:
    """Kernels as torch.compile made them, measured in forward and backward passes."""
    found = [one for one in read(MEASURED / "h100-kernels.jsonl.gz") if one.signature.startswith(f"triton;{kind}")]
    groups = compare(profiles.load_gpu("h100"), found[::every])
    return [one for ones in groups.values() for one in ones]


@pytest.mark.parametrize("kind", ["triton_poi", "triton_per"])
def test_sums_of_compiled_kernels_are_right(kind: str) -> None:
    found = on_an_h100(kind, every=1)
    assert len(found) >= 80
    assert sum(one.modelled_us for one in found) == pytest.approx(sum(one.measured.us for one in found), rel=0.04)


def test_half_of_flex_attention_s_kernels_are_within_a_tenth() -> None:
    assert median(abs(one.off) for one in on_an_h100("triton_tem_fused_flex", every=3)) < 0.1


PERMUTE = """tt.func public @permute(%x: !tt.ptr<bf16>, %map: !tt.ptr<i32>, %y: !tt.ptr<bf16>) {
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%c64 = arith.constant 64 : i32
%c1024 = arith.constant 1024 : i32
%row = tt.get_program_id x : i32
%r = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
%from = arith.muli %row, %c1024 : i32
%0 = tt.splat %from : i32 -> tensor<1024xi32>
%1 = arith.addi %0, %r : tensor<1024xi32>
%2 = tt.splat %x : !tt.ptr<bf16> -> tensor<1024x!tt.ptr<bf16>>
%3 = tt.addptr %2, %1 : tensor<1024x!tt.ptr<bf16>>, tensor<1024xi32>
%v = tt.load %3 : tensor<1024x!tt.ptr<bf16>>
%mine = arith.muli %row, %c64 : i32
%4 = tt.addptr %map, %mine : !tt.ptr<i32>, i32
%times = tt.load %4 : !tt.ptr<i32>
scf.for %i = %c0 to %times step %c1 : i32 {
%5 = tt.addptr %4, %i : !tt.ptr<i32>, i32
%to = tt.load %5 : !tt.ptr<i32>
%6 = arith.muli %to, %c1024 : i32
%7 = tt.splat %6 : i32 -> tensor<1024xi32>
%8 = arith.addi %7, %r : tensor<1024xi32>
%9 = tt.splat %y : !tt.ptr<bf16> -> tensor<1024x!tt.ptr<bf16>>
%10 = tt.addptr %9, %8 : tensor<1024x!tt.ptr<bf16>>, tensor<1024xi32>
tt.store %10, %v : tensor<1024x!tt.ptr<bf16>>
}
tt.return
}""".replace("\n", "|")


def test_a_loop_that_data_ends_fills_the_buffer_that_it_writes() -> None:
    """4,096 rows of 2 KiB go to six places each, or to a half in the mean: the output says how many."""
    rows, row = 4096, 2048
    for share in (6, 0.5):
        nbytes = int(rows * share * row)
        work = launch_work(read_program(PERMUTE), (rows, 1, 1), {"y": Buffer(nbytes)})
        assert work.reads["x"].memory_nbytes == rows * row
        assert work.writes["y"].asked_nbytes == pytest.approx(nbytes)
        assert work.writes["y"].memory_nbytes == pytest.approx(nbytes)
        assert not work.guesses
    unknown = launch_work(read_program(PERMUTE), (rows, 1, 1), {"y": Buffer(0)})
    assert unknown.writes["y"].memory_nbytes == rows * row
    assert unknown.guesses, "how often it turns is assumed"


# Each request counts the tokens that it has sampled: their number is in memory, and each token says which count grows.
SAMPLED = """tt.func public @kernel(%counts: !tt.ptr<i32>, %tokens: !tt.ptr<i64>, %n: !tt.ptr<i32>) {
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%request = tt.get_program_id x : i32
%0 = tt.addptr %n, %request : !tt.ptr<i32>, i32
%sampled = tt.load %0 : !tt.ptr<i32>
scf.for %i = %c0 to %sampled step %c1 : i32 {
%1 = tt.addptr %tokens, %request : !tt.ptr<i64>, i32
%2 = tt.addptr %1, %i : !tt.ptr<i64>, i32
%token = tt.load %2 : !tt.ptr<i64>
%3 = tt.addptr %counts, %token : !tt.ptr<i32>, i64
%before = tt.load %3 : !tt.ptr<i32>
%after = arith.addi %before, %c1 : i32
tt.store %3, %after : !tt.ptr<i32>
}
tt.return
}""".replace("\n", "|")


def test_a_loop_that_data_ends_and_that_moves_single_items_turns_once() -> None:
    """The table of counts is large, whatever the number of tokens: it does not say how often the loop turns."""
    work = launch_work(read_program(SAMPLED), (16, 1, 1), {"counts": Buffer(256 * 128_256 * 4)})
    assert work.writes["counts"].asked_nbytes == 16 * 4
    assert work.reads["tokens"].asked_nbytes == 16 * 8
    assert work.guesses, "how often it turns is assumed"
    known = launch_work(read_program(SAMPLED), (16, 1, 1), {"counts": Buffer(1 << 20), "n": (3,) * 16})
    assert known.writes["counts"].asked_nbytes == 3 * 16 * 4
    assert not known.guesses
    found = profiles.CostModel(GPU).cost(signature(SAMPLED, 16, "131334144b,-,-"))
    assert 0 < found.solo_ns < 10_000, "a launch, and the loads of one turn"
    assert found.unknown == "Triton program of kernel: a loop's length is data"


def test_a_permutation_of_tokens_among_experts_takes_what_its_rows_take() -> None:
    """Measured on an H200: 16,384 rows of 4,096 items to six experts each in 263 us, here with rows of 1,024 items."""
    rows, row, times = 65536, 2048, 6
    found = profiles.CostModel(GPU).cost(signature(PERMUTE, rows, f"-,-,{rows * row * times}b"))
    assert found.solo_ns == pytest.approx(263_000, rel=0.2)


# Rows are moved to where a map says, each by eight instances.
MOVED = """tt.func public @kernel(%x: !tt.ptr<bf16>, %map: !tt.ptr<i32>, %y: !tt.ptr<bf16>) {
%c256 = arith.constant 256 : i32
%c2048 = arith.constant 2048 : i32
%row = tt.get_program_id x : i32
%part = tt.get_program_id y : i32
%0 = tt.addptr %map, %row : !tt.ptr<i32>, i32
%to = tt.load %0 : !tt.ptr<i32>
%r = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
%1 = arith.muli %part, %c256 : i32
%2 = tt.splat %1 : i32 -> tensor<256xi32>
%3 = arith.addi %2, %r : tensor<256xi32>
%4 = arith.muli %row, %c2048 : i32
%5 = tt.splat %4 : i32 -> tensor<256xi32>
%6 = arith.addi %5, %3 : tensor<256xi32>
%7 = tt.splat %x : !tt.ptr<bf16> -> tensor<256x!tt.ptr<bf16>>
%8 = tt.addptr %7, %6 : tensor<256x!tt.ptr<bf16>>, tensor<256xi32>
%v = tt.load %8 : tensor<256x!tt.ptr<bf16>>
%9 = arith.muli %to, %c2048 : i32
%10 = tt.splat %9 : i32 -> tensor<256xi32>
%11 = arith.addi %10, %3 : tensor<256xi32>
%12 = tt.splat %y : !tt.ptr<bf16> -> tensor<256x!tt.ptr<bf16>>
%13 = tt.addptr %12, %11 : tensor<256x!tt.ptr<bf16>>, tensor<256xi32>
tt.store %13, %v : tensor<256x!tt.ptr<bf16>>
tt.return
}""".replace("\n", "|")


@pytest.mark.parametrize(("rows", "us"), [(2048, 11.1), (8192, 40.7)])
def test_small_instances_take_the_time_in_which_they_begin(rows: int, us: float) -> None:
    """Transformer Engine's `_sort_chunks_by_map_kernel`, measured on an H200. By its bytes it takes 4 and 16 us."""
    moved = f"triton;kernel;{rows},8,1;128,1,1;0;-,-,{rows * 4096}b;{MOVED};aten::mm;[]"
    assert profiles.CostModel(GPU).cost(moved).solo_ns == pytest.approx(us * 1000, rel=0.07)
