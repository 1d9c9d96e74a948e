"""Costs against what real H200s took, and against what must hold whatever the constants are."""

from __future__ import annotations

import pytest

import profiles

GPU = profiles.load_gpu("h200")
PEAK_GB_PER_S = GPU.memory.bandwidth_gb_per_s
ADD = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
CAST = (
    "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, "
    "TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, "
    "at::native::memory::StoreWithCast<1> >(int)"
)
ADAM = (
    "at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
    "at::native::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1, false>, float const*>(int)"
)


@pytest.fixture
def model() -> profiles.CostModel:
    return profiles.CostModel(GPU)


def gemm(m: int, n: int, k: int, dtype: str = "bf16", batch: int = 1, compute: str = "f32") -> str:
    return f"gemm;cublasGemmEx;n;n;{m};{n};{k};{batch};{dtype};{dtype};{dtype};{compute};default;aten::mm;"


def test_large_add_is_streaming(model: profiles.CostModel) -> None:
    """2^26 floats, two read and one written: 805 MB, far beyond the cache."""
    cost = model.cost(f"kernel;{ADD};65536,1,1;128,1,1;0;;")
    assert cost.source is profiles.Source.ROOFLINE
    assert cost.flops == 0
    assert 0.85 < 3 * 4 * 2**26 / cost.solo_ns / PEAK_GB_PER_S < 0.95


def test_small_kernel_costs_a_launch(model: profiles.CostModel) -> None:
    """Kernels of one block take 0.8 to 1.3 us in traces."""
    assert model.cost(f"kernel;{ADD};1,1,1;128,1,1;0;;").solo_ns == pytest.approx(1_050, abs=250)


def test_grid_counts_not_the_op_when_a_tensor_is_split(model: profiles.CostModel) -> None:
    """PyTorch splits what 32-bit indices cannot address: two launches, each with half of the op's elements."""
    whole = model.cost(f"kernel;{ADD};65536,1,1;128,1,1;0;aten::add;[[134217728], [134217728], []]")
    assert whole == model.cost(f"kernel;{ADD};65536,1,1;128,1,1;0;aten::add;[[67108864], [67108864], []]")


def test_cast_at_run_time_is_bound_by_instructions(model: profiles.CostModel) -> None:
    cost = model.cost(f"kernel;{CAST};131072,1,1;128,1,1;0;;")
    assert 131072 * 128 * 4 * 6 / cost.solo_ns < 0.9 * PEAK_GB_PER_S * GPU.achieved.memory_fraction


def test_large_gemm(model: profiles.CostModel) -> None:
    cost = model.cost(gemm(4096, 4096, 4096))
    assert cost.flops == 2 * 4096**3
    # A real H200 takes 174 to 185 us.
    assert cost.solo_ns == pytest.approx(180_000, rel=0.06)


def test_gemm_beside_nccl_needs_more_waves(model: profiles.CostModel) -> None:
    """Real H200s: 1.46 where four waves become six, 1.8 to 2 where one becomes two."""
    cost = model.cost(gemm(4096, 4096, 4096))
    assert cost.contended_ns / cost.solo_ns == pytest.approx(1.46, abs=0.06)
    cost = model.cost(gemm(2048, 2048, 8192))
    assert cost.contended_ns / cost.solo_ns == pytest.approx(1.9, abs=0.2)


def test_skinny_gemm_is_bound_by_its_weights(model: profiles.CostModel) -> None:
    cost = model.cost(gemm(16384, 1, 16384))
    assert 0.7 < 2 * 16384**2 / cost.solo_ns / PEAK_GB_PER_S < 0.95


def test_dtypes_order(model: profiles.CostModel) -> None:
    times = [model.cost(gemm(4096, 4096, 4096, dtype)).solo_ns for dtype in ("f8e4m3", "bf16")]
    times.append(model.cost(gemm(4096, 4096, 4096, "f32", compute="tf32")).solo_ns)
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


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("fwd;96x896x14x14;896x56x3x3;96x896x14x14;1x1;1x1;1x1;16", 294),
        ("wgrad;96x896x14x14;896x56x3x3;96x896x14x14;1x1;1x1;1x1;16", 363),
        ("fwd;96x448x28x28;448x56x3x3;96x448x28x28;1x1;1x1;1x1;8", 369),
        ("dgrad;96x224x56x56;224x56x3x3;96x224x56x56;1x1;1x1;1x1;4", 700),
        ("fwd;48x1024x14x14;1024x32x3x3;48x1024x14x14;1x1;1x1;1x1;32", 33.3),
        ("wgrad;96x128x56x56;128x4x3x3;96x128x56x56;1x1;1x1;1x1;32", 193),
        ("wgrad;32x128x56x56;128x4x3x3;32x128x56x56;1x1;1x1;1x1;32", 407),
        ("wgrad;64x128x56x56;128x4x3x3;64x128x56x56;1x1;1x1;1x1;32", 807),
        ("wgrad;128x2016x7x7;2016x56x3x3;128x2016x7x7;1x1;1x1;1x1;36", 506),
        ("dgrad;128x224x56x56;224x56x3x3;128x224x56x56;1x1;1x1;1x1;4;tf32;nchw", 18_101),
        ("fwd;128x48x56x56;48x16x3x3;128x48x56x56;1x1;1x1;1x1;3;tf32;nchw", 3_371),
        ("fwd;128x128x56x56;128x4x3x3;128x128x56x56;1x1;1x1;1x1;32;tf32;nchw", 574),
        ("dgrad;128x256x112x112;256x8x3x3;128x256x56x56;1x1;2x2;1x1;32;tf32;nchw", 5_816),
        ("fwd;96x1008x14x14;1008x48x3x3;96x1008x7x7;1x1;2x2;1x1;21;tf32;nchw", 180),
        ("dgrad;128x448x56x56;448x56x3x3;128x448x28x28;1x1;2x2;1x1;8;tf32;nchw", 2_046),
        ("wgrad;192x224x28x28;224x16x3x3;192x224x28x28;1x1;1x1;1x1;14;tf32;nhwc", 741),
        ("fwd;1x8192x4x4;8192x512x3x3;1x8192x4x4;1x1;1x1;1x1;16;tf32;nchw", 389),
        ("fwd;8x768x1x199;768x48x1x128;8x768x1x200;0x64;1x1;1x1;16;bf16;nchw", 12_294),
        ("dgrad;16x1024x1x249;1024x64x1x128;16x1024x1x250;0x64;1x1;1x1;16;bf16;nchw", 646),
        ("wgrad;16x1024x1x249;1024x64x1x128;16x1024x1x250;0x64;1x1;1x1;16;bf16;nchw", 314),
    ],
)
def test_convolutions_in_groups(text: str, us: float) -> None:
    """From the first kernel's begin to the last one's end, on an H100 (laboratory/rows/dense-h100.jsonl.gz and
    convolutions-h100.jsonl.gz). Groups of 56 channels (RegNetY-8GF) run side by side; of tf32, few of them are turned
    round. Weights' gradients of 4 channels (ResNeXt-50) are split for many images alone. 128 taps: wav2vec2.
    """
    model = profiles.CostModel(profiles.load_gpu("h100"))
    kind = "" if "nchw" in text or "tf32" in text else ";bf16;nhwc"
    assert model.cost(f"conv;{text}{kind};;").solo_ns == pytest.approx(1000 * us, rel=0.35)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("192x576x14x14;576x24x3x3;192x576x14x14;1x1;1x1;1x1;24", 532),
        ("192x216x28x28;216x24x3x3;192x216x28x28;1x1;1x1;1x1;9", 809),
        ("192x576x28x28;576x24x3x3;192x576x14x14;1x1;2x2;1x1;24", 1_093),
    ],
)
def test_padding_groups_is_as_slow_on_a_gpu_with_faster_memory(text: str, us: float) -> None:
    """RegNetY-3.2GF on an H200 (laboratory/notes/fresh-jobs.md): the kernels that pad have the instructions of an
    H100."""
    model = profiles.CostModel(profiles.load_gpu("h200"))
    assert model.cost(f"conv;fwd;{text};bf16;nhwc;;").solo_ns == pytest.approx(1000 * us, rel=0.12)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("fwd;128x58x56x56;58x1x3x3;128x58x28x28;1x1;2x2;1x1;58", 32.2),
        ("wgrad;96x244x28x28;244x1x3x3;96x244x14x14;1x1;2x2;1x1;244", 33.1),
        ("wgrad;128x58x28x28;58x1x3x3;128x58x28x28;1x1;1x1;1x1;58", 23.1),
    ],
)
def test_depthwise_windows_share_less_with_a_stride(text: str, us: float) -> None:
    model = profiles.CostModel(profiles.load_gpu("h100"))
    assert model.cost(f"conv;{text};bf16;nhwc;;").solo_ns == pytest.approx(1000 * us, rel=0.25)


def test_blocks_of_an_optimizer_share_the_memory(model: profiles.CostModel) -> None:
    """A third block on one SM costs no third round: foreach_mul_ took 39.9 us with 260 blocks and 45.2 us with 320."""
    even = model.cost(f"kernel;{ADAM};264,1,1;512,1,1;0;;").solo_ns
    uneven = model.cost(f"kernel;{ADAM};265,1,1;512,1,1;0;;").solo_ns
    assert uneven / even == pytest.approx(1.0, abs=0.02)


def test_copies(model: profiles.CostModel) -> None:
    """NCCL over NVLink does not slow copies over PCIe. Pageable memory is staged by one core."""
    pinned, pageable = (model.cost(f"copy;d2h;55000000;{memory}") for memory in ("pinned", "pageable"))
    assert pinned.solo_ns == pinned.contended_ns
    assert pageable.solo_ns > 4 * pinned.solo_ns
    device = model.cost("copy;d2d;1000000000;pinned")
    assert 0.8 < 2e9 / device.solo_ns / PEAK_GB_PER_S < 0.95
    assert device.contended_ns > device.solo_ns


def test_few_blocks_cannot_draw_the_whole_bandwidth(model: profiles.CostModel) -> None:
    """An SM of an H200 draws about 50 GB/s by itself: 24 blocks reach a quarter of the memory's rate."""
    unknown = "kernel;something_nobody_knows;{},1,1;1024,1,1;0;;"
    few, many = (model.cost(unknown.format(blocks)).solo_ns for blocks in (24, 24 * 400))
    assert many < 400 * few / 2


@pytest.mark.parametrize(
    ("m", "n", "k", "slower"),
    [
        (4096, 4096, 4096, 1.49),
        (4096, 14336, 4096, 1.47),
        (8192, 2048, 2048, 1.53),
        (2048, 8192, 8192, 1.45),
        (8192, 768, 3072, 2.00),
        (2048, 1536, 4096, 1.98),
        (1024, 1024, 4096, 2.01),
    ],
)
def test_products_wait_for_processors_that_nccl_holds(m: int, n: int, k: int, slower: float) -> None:
    """How much longer products took on an H100 beside an all-gather of 416 MiB:
    laboratory/rows/contention-h100-x2.jsonl."""
    cost = profiles.CostModel(profiles.load_gpu("h100")).cost(gemm(m, n, k))
    assert cost.contended_ns / cost.solo_ns == pytest.approx(slower, rel=0.09)
