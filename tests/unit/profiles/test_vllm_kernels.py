"""Kernels of vLLM's extensions and its product of experts: against measurements, and what their time follows from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil, log
from statistics import mean

import pytest

from laboratory.fits import public_moe, vllm_kernels
from laboratory.fits.public_gemms import errors
from profiles import load_gpu
from profiles.models.dispatch import estimate
from profiles.models.errors import error_share
from profiles.models.machine import Machine
from profiles.models.products.experts import Experts, experts_ns, problem_of
from profiles.models.triton import triton
from profiles.signature import Kernel, Shape, Sized, Triton

H100, H200 = load_gpu("h100"), load_gpu("h200")
CACHE = (8192, 16, 8, 128)


def kernel(name: str, op: str, *sizes: Shape, grid: int = 16, block: int = 512) -> Kernel:
    return Kernel(f"void vllm::{name}()", (grid, 1, 1), (block, 1, 1), 0, op, sizes)


def moved_ns(nbytes: float, gb_per_s: float = 4800.0) -> float:
    return nbytes / gb_per_s


# ---- extensions ------------------------------------------------------------------------------------------------------
def test_estimates_carry_their_models_errors() -> None:
    apart = defaultdict[str, list[float]](list)
    for what, ns, _ in vllm_kernels.measured():
        found = estimate(H200, what)
        apart[found.model].append(abs(log(found.solo_ns / ns)))
    shares = {model: mean(found) for model, found in apart.items()}
    assert {model: error_share(model) for model in shares} == pytest.approx(shares, abs=0.01)


def test_errors_on_the_half_that_was_kept() -> None:
    ratios = defaultdict[str, list[float]](list)
    for what, ns, is_fitted in vllm_kernels.measured():
        if not is_fitted:
            found = estimate(H200, what)
            assert not found.unknown
            ratios[found.model].append(found.solo_ns / ns)
    assert len(ratios) == 7
    for found in ratios.values():
        middle, typical, high = errors(found)
        assert abs(middle) <= 0.03
        assert typical <= 0.08
        assert high <= 0.26


@pytest.mark.parametrize(
    ("name", "op", "sizes", "nbytes"),
    [
        ("act_and_mul_kernel<c10::BFloat16>", "_C::silu_and_mul", ((8192, 14336), (8192, 28672)), 8192 * 14336 * 6),
        ("rms_norm_kernel<c10::BFloat16>", "_C::rms_norm", ((8192, 8192), (8192, 8192), (8192,), ()), 8192**2 * 4),
        (
            "fused_add_rms_norm_kernel<c10::BFloat16, 8, true>",
            "_C::fused_add_rms_norm",
            ((8192, 8192), (8192, 8192), (8192,), ()),
            8192**2 * 8,
        ),
        (
            "rotary_embedding_kernel<c10::BFloat16>",
            "_C::rotary_embedding",
            ((8192,), (8192, 4096), (8192, 1024), (), (8192, 128), (), (), ()),
            8192 * 5120 * 4,
        ),
        (
            "moe::moe_sum_vec_kernel<c10::BFloat16>",
            "_moe_C::moe_sum",
            ((8192, 8, 2048), (8192, 2048)),
            8192 * 2048 * 18,
        ),
    ],
)
def test_large_operands_take_at_least_as_long_as_their_bytes(
    name: str, op: str, sizes: tuple[Shape, ...], nbytes: int
) -> None:
    found = estimate(H200, kernel(name, op, *sizes, grid=8192, block=256))
    assert found.nbytes == nbytes
    assert moved_ns(nbytes) < found.solo_ns < 3 * moved_ns(nbytes)


def test_a_write_to_the_cache_costs_its_tokens_and_not_the_cache() -> None:
    """The hook tells the blocks behind a launch's pointers: one of them is the whole cache, 1 GiB."""
    name, op = "reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>", "_C_cache_ops::reshape_and_cache_flash"
    plain = kernel(name, op, (16, 8, 128), (16, 8, 128), CACHE, CACHE, (16,), (), (), ())
    said = Sized(*(getattr(plain, one) for one in Kernel.__slots__), "-", "16384,~155648,1073741824,512")
    assert estimate(H200, said) == estimate(H200, plain)
    assert estimate(H200, plain).solo_ns < 3_000
    more = replace(plain, grid=(4096, 1, 1), sizes=((4096, 8, 128), (4096, 8, 128), CACHE, CACHE, (4096,), (), (), ()))
    assert estimate(H200, more).solo_ns > moved_ns(4096 * 8 * 128 * 2 * 4)


def test_what_returns_by_a_condition_is_known_by_its_function() -> None:
    spelled = "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::"
    spelled += "fused_add_rms_norm_kernel<c10::BFloat16, 8, true>(c10::BFloat16*, long)"
    what = kernel("x", "_C::fused_add_rms_norm", (16, 4096), (16, 4096), (4096,), ())
    assert estimate(H200, replace(what, name=spelled)).model == "vLLM, norm"


def test_without_the_operations_shapes_it_is_not_recognised() -> None:
    found = estimate(H200, kernel("act_and_mul_kernel<c10::BFloat16>", ""))
    assert "act_and_mul_kernel" in found.unknown


def test_sorting_pairs_takes_as_long_as_there_are_pairs() -> None:
    def ns(tokens: int) -> float:
        places = (tokens * 8 + 128 * 63,)
        sizes = ((tokens, 8), (), (), places, (ceil(places[0] / 64),), (1,))
        name = "moe::moe_align_block_size_kernel<int>"
        return estimate(H200, kernel(name, "_moe_C::moe_align_block_size", *sizes, grid=2, block=1024)).solo_ns

    assert ns(16) == pytest.approx(2_750, rel=0.1)  # measured: 2,784
    assert ns(16384) == pytest.approx(29_664, rel=0.1)


# ---- experts ---------------------------------------------------------------------------------------------------------
PROGRAM = (
    "module {|tt.func public @fused_moe_kernel(%a_ptr: !tt.ptr<bf16>, %b_ptr: !tt.ptr<bf16>, %N: i32, %K: i32,"
    " %EM: i32, %num_valid_tokens: i32) {|%c = arith.constant dense<0.000000e+00> : tensor<16x64xf32>|"
    "%d = tt.dot %x, %y, %c, inputPrecision = tf32 : tensor<16x128xbf16> * tensor<128x64xbf16> -> tensor<16x64xf32>|"
    "tt.return|}|}"
)


def launched(outputs: int, inputs: int, filled: int, pairs: int, weights: str = "-") -> Triton:
    grid = (ceil(filled / 16) * ceil(outputs / 64), 1, 1)
    arguments = f"-,{weights},{outputs},{inputs},{filled},{pairs}"
    return Triton("fused_moe_kernel", grid, (128, 1, 1), 61440, arguments, PROGRAM, "vllm::moe_forward", ())


def numbers(what: Triton) -> dict[str, int]:
    found = map(int, what.arguments.split(",")[2:])
    return dict(zip(("N", "K", "EM", "num_valid_tokens"), found, strict=True))


def test_errors_of_experts_on_the_half_that_was_kept() -> None:
    gpus = {name: load_gpu(name) for name in ("h100", "h200")}
    ratios = [
        public_moe.modelled_ns(gpus[row.gpu], row) / row.ns
        for row, is_fitted in public_moe.measured()
        if not is_fitted and row.distribution == "balanced"
    ]
    assert len(ratios) > 1200
    middle, typical, high = errors(ratios)
    assert abs(middle) <= 0.02
    assert typical <= 0.08
    assert high <= 0.28


def test_the_experts_follow_from_the_places_for_pairs() -> None:
    """512 pairs, 128 experts, tiles of 16 rows: up to 15 places of each expert stay empty."""
    what = launched(1536, 2048, 512 + 128 * 15, 512)
    assert problem_of(what, numbers(what)) == Experts(512, 128, 1536, 2048, (16, 64, 128), "bf16")
    few = launched(1536, 2048, 32 * 16, 32)  # fewer pairs than experts: a tile for each
    problem = problem_of(few, numbers(few))
    assert problem is not None
    assert (problem.used, problem.tiles) == (32, 32 * 24)


def nbytes_of(experts: int) -> str:
    """The weights of so many experts of 1,536 x 2,048 items, rounded up by as much as a launch tells."""
    return f"{int(experts * 1536 * 2048 * 2 * 1.06)}b"


def test_with_expert_parallelism_a_rank_has_its_own_experts_and_their_pairs() -> None:
    """512 pairs, 128 experts, of which this one of eight ranks has 16: 64 pairs."""
    whole = launched(1536, 2048, 512 + 128 * 15, 512)
    assert triton(
        H100, replace(whole, arguments=launched(1536, 2048, 512 + 128 * 15, 512, nbytes_of(128)).arguments)
    ) == (triton(H100, whole))
    eighth = triton(H100, launched(1536, 2048, 512 + 128 * 15, 512, nbytes_of(16)))
    assert eighth.nbytes == 16 * 1536 * 2048 * 2 + 64 * (2048 + 1536) * 2
    assert eighth.solo_ns < triton(H100, whole).solo_ns / 5


def test_few_pairs_do_not_say_how_many_experts_there_are() -> None:
    """32 pairs, a tile for each; a rank with four experts multiplies by no more than these."""
    few = triton(H100, launched(1536, 2048, 32 * 16, 32, nbytes_of(4)))
    assert few.nbytes == 4 * 1536 * 2048 * 2 + 32 * (2048 + 1536) * 2


def test_decoding_reads_the_weights_of_the_chosen_experts() -> None:
    all_of_them = triton(H100, launched(1536, 2048, 128 * 16, 128))
    assert all_of_them.model == "experts"
    assert not all_of_them.unknown
    assert all_of_them.nbytes == 128 * 1536 * 2048 * 2 + 128 * (2048 + 1536) * 2
    assert all_of_them.solo_ns == pytest.approx(moved_ns(all_of_them.nbytes, 3352 * 0.91), rel=0.1)
    quarter = triton(H100, launched(1536, 2048, 32 * 16, 32))
    assert quarter.solo_ns == pytest.approx(all_of_them.solo_ns / 4, rel=0.15)


def test_prompts_are_bound_by_products() -> None:
    problem = Experts(32768, 128, 1536, 2048, (128, 128, 64), "bf16")
    ns = experts_ns(Machine.alone(H100), problem)
    assert 0.4 < problem.flops / ns * 1e-3 / 989.4 < 0.8


def test_rows_that_do_not_begin_at_sixteen_items_take_longer() -> None:
    problem = Experts(4096, 128, 2048, 96, (128, 128, 64), "bf16")
    machine = Machine.alone(H100)
    assert experts_ns(machine, replace(problem, inputs=88)) > 2 * experts_ns(machine, problem)


def test_a_program_of_another_form_is_left_to_the_interpreter() -> None:
    what = launched(1536, 2048, 128 * 16, 128)
    assert problem_of(replace(what, grid=(7, 1, 1)), numbers(what)) is None
    assert problem_of(what, {}) is None
