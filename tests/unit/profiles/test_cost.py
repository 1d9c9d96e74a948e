"""Costs against figures worked out by hand from the H200's file and the formulas that the modules state."""

from __future__ import annotations

from math import ceil

import pytest

import profiles
from profiles import tiles
from profiles.machine import GPCS, Machine, overlapped

GPU = profiles.load_gpu("h200")
FLOOR = GPU.achieved.kernel_floor_ns
STREAM = GPU.memory.bandwidth_gb_per_s * GPU.achieved.memory_fraction
ADD = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"


@pytest.fixture
def model() -> profiles.CostModel:
    return profiles.CostModel(GPU)


def gemm(m: int, n: int, k: int, dtype: str = "bf16", batch: int = 1, compute: str = "f32") -> str:
    return f"gemm;cublasGemmEx;n;n;{m};{n};{k};{batch};{dtype};{dtype};{dtype};{compute};;aten::mm;"


def test_large_add_is_streaming(model: profiles.CostModel) -> None:
    """2^26 floats, two read and one written: 805 MB, far beyond the cache."""
    cost = model.cost(f"kernel;{ADD};65536,1,1;128,1,1;0;;")
    assert cost.source is profiles.Source.ROOFLINE
    assert cost.flops == 0
    assert cost.solo_ns == pytest.approx(FLOOR + 3 * 4 * 2**26 / STREAM, rel=0.02)


def test_small_kernel_costs_the_floor(model: profiles.CostModel) -> None:
    cost = model.cost(f"kernel;{ADD};1,1,1;128,1,1;0;;")
    assert FLOOR <= cost.solo_ns < FLOOR + 100


def test_grid_counts_not_the_op_when_a_tensor_is_split(model: profiles.CostModel) -> None:
    """PyTorch splits what 32-bit indices cannot address: two launches, each with half of the op's elements."""
    whole = model.cost(f"kernel;{ADD};65536,1,1;128,1,1;0;aten::add;[[134217728], [134217728], []]")
    assert whole == model.cost(f"kernel;{ADD};65536,1,1;128,1,1;0;aten::add;[[67108864], [67108864], []]")


def test_cast_at_run_time_is_bound_by_instructions(model: profiles.CostModel) -> None:
    cast = (
        "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
        "TensorIteratorBase&)::{lambda(float)#1}, "
        "std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, "
        "TrivialOffsetCalculator<1, unsigned int>, "
        "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"
    )
    cost = model.cost(f"kernel;{cast};131072,1,1;128,1,1;0;;")
    lanes_per_ns = 132 * 128 * 1.98
    # Two operands of 25, 40 once and 4 for the copy itself.
    issue_ns = 131072 * 128 * 4 * 94 / lanes_per_ns
    memory_ns = 131072 * 128 * 4 * 6 / STREAM
    assert issue_ns > memory_ns
    assert cost.solo_ns == pytest.approx(FLOOR + 1000 + overlapped(issue_ns, memory_ns), rel=0.01)


def test_gemm_waves(model: profiles.CostModel) -> None:
    """4096 cubed: 512 tiles of 256 x 128 are four waves on 132 SMs."""
    rate = 989.4e3 * GPU.achieved.tensor_fraction / 132  # flops per ns and SM
    wave = 2 * 256 * 128 * 4096 / rate * (1 + tiles.FEED * (1 / 256 + 1 / 128)) + tiles.FILL_NS
    cost = model.cost(gemm(4096, 4096, 4096))
    assert cost.flops == 2 * 4096**3
    assert cost.solo_ns == pytest.approx(FLOOR + tiles.START_NS + ceil(512 / 132) * wave, rel=0.02)
    # A real H200 takes 174 to 185 us.
    assert cost.solo_ns == pytest.approx(180_000, rel=0.06)


def test_gemm_beside_nccl_needs_more_waves(model: profiles.CostModel) -> None:
    """100 SMs are left for clusters: six waves instead of four, as real H200s show (1.46)."""
    cost = model.cost(gemm(4096, 4096, 4096))
    assert ceil(512 / (132 - GPU.nccl.sms - GPCS)) == 6
    assert cost.contended_ns / cost.solo_ns == pytest.approx(1.5, abs=0.03)


def test_one_wave_becomes_two(model: profiles.CostModel) -> None:
    cost = model.cost(gemm(2048, 2048, 8192))
    assert cost.contended_ns / cost.solo_ns == pytest.approx(2.0, abs=0.1)


def test_skinny_gemm_is_bound_by_its_weights(model: profiles.CostModel) -> None:
    cost = model.cost(gemm(16384, 1, 16384))
    assert cost.solo_ns == pytest.approx(2 * 16384**2 / STREAM, rel=0.25)


def test_dtypes_order(model: profiles.CostModel) -> None:
    times = [model.cost(gemm(4096, 4096, 4096, dtype)).solo_ns for dtype in ("f8e4m3", "bf16")]
    times.append(model.cost(gemm(4096, 4096, 4096, "f32", compute="f32_fast_tf32")).solo_ns)
    times.append(model.cost(gemm(4096, 4096, 4096, "f32")).solo_ns)
    assert times == sorted(times)
    assert times[1] / times[0] == pytest.approx(2, rel=0.1)
    assert times[3] / times[2] > 5


def test_attention_flops_and_time(model: profiles.CostModel) -> None:
    shape = "4x32x2048x64"
    forward = model.cost(f"sdpa;fwd;{shape};{shape};{shape};bf16;1;0;;")
    backward = model.cost(f"sdpa;bwd;{shape};{shape};{shape};bf16;1;0;;")
    # Two products over half of the square; four backward.
    assert forward.flops == 2 * 2 * 64 * 4 * 32 * 2048 * 1024
    assert backward.flops == 2 * forward.flops
    # A real H200 takes 192 and 589 us.
    assert forward.solo_ns == pytest.approx(192_000, rel=0.06)
    assert backward.solo_ns == pytest.approx(589_000, rel=0.06)


def test_attention_kernels_of_pytorch(model: profiles.CostModel) -> None:
    kernel = (
        "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::"
        "bfloat16_t>, false, true, false>(P)"
    )
    sizes = "[[4, 2048, 32, 64], [4, 2048, 32, 64], [4, 2048, 32, 64]]"
    flash = model.cost(f"kernel;{kernel};16,4,32;128,1,1;0;aten::_flash_attention_forward;{sizes}")
    fused = model.cost("sdpa;fwd;4x32x2048x64;4x32x2048x64;4x32x2048x64;bf16;1;0;;")
    assert flash.flops == fused.flops
    assert flash.solo_ns > fused.solo_ns


def test_conv_flops(model: profiles.CostModel) -> None:
    """256 images of 56 x 56, 64 to 64 channels, 3 x 3."""
    flops = 2.0 * 256 * 56 * 56 * 64 * 64 * 9
    for direction in ("fwd", "dgrad", "wgrad"):
        text = f"conv;{direction};256x64x56x56;64x64x3x3;256x64x56x56;1x1;1x1;1x1;1;bf16;nhwc;;"
        cost = model.cost(text)
        assert cost.flops == flops
        # Real ones take 125, 138 and 130 us.
        assert cost.solo_ns == pytest.approx(131_000, rel=0.3)


def test_grouped_conv_divides_flops(model: profiles.CostModel) -> None:
    cost = model.cost("conv;fwd;8x64x28x28;64x1x3x3;8x64x28x28;1x1;1x1;1x1;64;f16;nhwc;;")
    assert cost.flops == 2.0 * 64 * (8 * 28 * 28) * 9


def test_adam_chunks(model: profiles.CostModel) -> None:
    """320 chunks of 65,536: three rounds for the busiest of 132 SMs, where 2.42 would be even."""
    adam = (
        "at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
        "at::native::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1, false>, float const*>(int)"
    )
    cost = model.cost(f"kernel;{adam};320,1,1;512,1,1;0;;")
    count = 320 * 65536
    work = overlapped(count * 4 * 7 / STREAM, count * 120 / (132 * 128 * 1.98))
    assert cost.solo_ns == pytest.approx(FLOOR + work * 3 / (320 / 132), rel=0.01)
    small = model.cost(f"kernel;{adam};320,1,1;512,1,1;0;aten::_fused_adamw_;[{', '.join(['[64]'] * 320)}]")
    assert small.solo_ns < cost.solo_ns / 5


def test_copies(model: profiles.CostModel) -> None:
    pinned = model.cost("copy;h2d;55000000;pinned")
    assert pinned.solo_ns == pinned.contended_ns == GPU.pcie.latency_ns + 1_000_000
    assert model.cost("copy;d2h;55000000;pageable").solo_ns > 4 * pinned.solo_ns
    device = model.cost("copy;d2d;1000000000;pinned")
    assert device.solo_ns == pytest.approx(FLOOR + 1000 + 2e9 / STREAM / 0.93, rel=0.01)


def test_few_blocks_cannot_draw_the_whole_bandwidth() -> None:
    machine = Machine.alone(GPU)
    assert machine.memory_ns(1e9, blocks=1) == pytest.approx(1e9 / GPU.achieved.sm_gb_per_s)
    assert machine.memory_ns(1e9, blocks=10_000) == machine.memory_ns(1e9)


@pytest.mark.parametrize(
    ("times", "expected"), [((5.0, 0.0), 5.0), ((0.0, 0.0), 0.0), ((8.0, 8.0), 8.0 * 2 ** (1 / 3))]
)
def test_overlapped(times: tuple[float, float], expected: float) -> None:
    assert overlapped(*times) == pytest.approx(expected)
