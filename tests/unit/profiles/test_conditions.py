"""Causes that kernels measured under the conditions of a step have shown (laboratory/rows/conditions-h100.jsonl.gz)."""

from __future__ import annotations

import pytest

import profiles
from emu.control.extensions.attention import together
from profiles.models.dispatch import estimate
from profiles.models.products.attention import banded, equal
from profiles.signature import parse

GPU = profiles.load_gpu("h100")


def us(signature: str) -> float:
    return estimate(GPU, parse(signature)).solo_ns / 1e3


def chunk_cat_us(types: str, grid: str) -> float:
    name = f"void at::native::detail::chunk_cat_cuda_kernel<{types}>(int)"
    return us(f"kernel;{name};{grid};128,1,1;0;aten::_chunk_cat;[[4096, 4096], [4096], [], [], [2, 109056000]]")


def test_fsdp_s_packing_writes_what_its_grid_covers() -> None:
    """Measured: 16-bit parameters 317 to 351 us; 32-bit ones, whose kernel has the same name, 625 to 708; conversions
    697 to 739.
    """
    assert chunk_cat_us("char, char", "106500,2,1") == pytest.approx(317, rel=0.05)
    assert chunk_cat_us("char, char", "213000,2,1") == pytest.approx(625, rel=0.05)
    assert chunk_cat_us("float, c10::BFloat16", "213000,2,1") == pytest.approx(718, rel=0.05)


def test_rows_added_to_one_row_wait_for_each_other() -> None:
    """Measured: 5,711 us for 8,192 rows each."""
    name = "void (anonymous namespace)::indexing_backward_kernel<float, 4>(long const*)"
    two = us(f"kernel;{name};4096,6,1;32,4,1;0;aten::_index_put_impl_;[[2, 768], [], [16384, 768], [], []]")
    assert two == pytest.approx(5711, rel=0.05)


@pytest.mark.parametrize(("is_rms", "measured_us"), [("false", 82.5), ("true", 63.0)])
def test_weight_gradients_of_norms_wait_for_their_rows(is_rms: str, measured_us: float) -> None:
    """There are 16,384 rows of 768: 16- and 32-bit items take as long, 78.1 and 85.8, 62.8 and 62.8 us."""
    kernel = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate"
    for item in ("c10::BFloat16", "float"):
        name = f"{kernel}<{item}, float, 32u, 32u, 256u, false, true, {is_rms}>(long)"
        found = us(f"kernel;{name};24,1,1;32,32,1;4224;aten::native_layer_norm_backward;[[16384, 768], [16384, 768]]")
        assert found == pytest.approx(measured_us, rel=0.2)


POOLED = "void at::native::(anonymous namespace)::max_pool_"


@pytest.mark.parametrize(
    ("kernel", "measured_us"),
    [
        ("forward_nchw<float, int>(int);150528,1,1;256,1,1;0;aten::p;[[48, 64, 224, 224], [], []]", 474.1),
        ("forward_nchw<float, int>(int);150528,1,1;256,1,1;0;aten::p;[[64, 192, 56, 56], [], []]", 596.1),
        ("forward_nhwc<c10::Half, int>(int);64,2,56;32,32,1;6144;aten::p;[[64, 32, 112, 112], [], []]", 484.2),
        (
            "backward_nhwc<c10::BFloat16, float>(int);64,2,56;32,32,1;4096;aten::p;"
            "[[64, 64, 112, 112], [64, 64, 112, 112], [], [64, 64, 112, 112]]",
            1167.9,
        ),
        (
            "backward_nchw<c10::Half, float, int>(int);13,64,256;256,1,1;0;aten::p;"
            "[[64, 256, 56, 56], [64, 256, 56, 56], [], [64, 256, 56, 56]]",
            766.8,
        ),
    ],
)
def test_max_pooling_goes_by_its_outputs(kernel: str, measured_us: float) -> None:
    """With a stride of 2, and without one: four times as many outputs of as many inputs, and windows that overlap."""
    assert us(f"kernel;{POOLED}{kernel}") == pytest.approx(measured_us, rel=0.25)


@pytest.mark.parametrize(
    ("kernel", "measured_us"),
    [
        ("RowwiseMomentsCUDAKernel<float>;8,1,1;512,1,1;768;aten::n;[[1, 512, 64, 64], [], []]", 114.8),
        ("RowwiseMomentsCUDAKernel<float>;64,1,1;512,1,1;768;aten::n;[[8, 64, 128, 128], [], []]", 113.2),
        ("RowwiseMomentsCUDAKernel<float>;1536,1,1;512,1,1;768;aten::n;[[48, 512, 8, 8], [512], [512], []]", 12.1),
        (
            "ComputeInternalGradientsCUDAKernel<float>;24576,1,1;32,1,1;256;aten::n;"
            "[[48, 512, 4, 4], [48, 512, 4, 4], [48, 32], [48, 32], [512], []]",
            16.3,
        ),
        (
            "GammaBetaBackwardCUDAKernel1<float>;1,1,1;256,1,1;0;aten::n;"
            "[[48, 256, 32, 32], [48, 256, 32, 32], [48, 32], [48, 32], [256], []]",
            16.0,
        ),
    ],
)
def test_blocks_of_group_norm_wait(kernel: str, measured_us: float) -> None:
    """Few groups for their items, many for their sums; a thread for each channel goes through the images."""
    name = "void at::native::(anonymous namespace)::"
    assert us(f"kernel;{name}{kernel}") == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(
    ("direction", "q", "measured_us"),
    [("fwd", "4x8x4096x80", 393.7), ("bwd", "4x8x4096x80", 1169.0), ("bwd", "2x8x16384x128", 4999.3)],
)
def test_attention_of_cudnn_takes_odd_depths_as_128(direction: str, q: str, measured_us: float) -> None:
    """A depth of 80 was priced half as long again, long sequences by an eighth."""
    causal = int(q.endswith("128"))
    found = us(f"sdpa;{direction};{q};{q};{q};bf16;{causal};0;aten::_cudnn_attention_forward;[]")
    assert found == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize(
    ("direction", "q", "v", "causal", "mask", "measured_us"),
    [
        ("fwd", "3x20x2304x128", "3x20x2304x128", 0, "[1, 1, 2304, 2304]", 485.7),
        ("bwd", "3x20x2304x128", "3x20x2304x128", 0, "[1, 1, 2304, 2304]", 1655.0),
        ("fwd", "1x8x4096x256", "1x8x4096x256", 1, "[]", 164.2),
        ("bwd", "1x8x4096x256", "1x8x4096x256", 0, "[1, 1, 4096, 4096]", 1681.2),
        ("fwd", "2x32x4096x192", "2x32x4096x128", 0, "[]", 1022.7),
        ("bwd", "2x32x4096x192", "2x32x4096x128", 0, "[]", 6237.1),
        ("bwd", "2x32x4096x192", "2x32x4096x128", 1, "[]", 2039.6),
    ],
)
def test_attention_of_cudnn_with_masks_and_deep_heads(
    direction: str, q: str, v: str, causal: int, mask: str, measured_us: float
) -> None:
    """laboratory/rows/masked-h100.jsonl.gz: backward with a mask it was priced at 0.7, heads of 256 at 0.5 to 1.4."""
    sizes = f"[[], [], [], {mask}]" if direction == "fwd" else f"[[], [], [], [], [], [], [], [], {mask}]"
    found = us(f"sdpa;{direction};{q};{q};{v};bf16;{causal};0;aten::_cudnn_attention;{sizes}")
    assert found == pytest.approx(measured_us, rel=0.1)


def test_a_causal_mask_of_cudnn_begins_with_the_first_key() -> None:
    """1,024 queries see none of the keys beyond the 1,024th. It was priced at three times."""
    q, k = "2x16x1024x128", "2x16x4096x128"
    assert us(f"sdpa;fwd;{q};{k};{k};bf16;1;0;aten::_cudnn_attention_forward;[]") == pytest.approx(30.5, rel=0.15)


def test_places_of_rolled_and_indexed_items_take_time() -> None:
    """A roll divides in 64 bits; an index waits for its item. They were priced at a third."""
    rolled = (
        "kernel;void at::native::(anonymous namespace)::roll_cuda_kernel<c10::BFloat16>(int);{};512,1,1;0;aten::roll;{}"
    )
    assert us(rolled.format("24576,1,1", "[[32, 64, 64, 96], [], []]")) == pytest.approx(60.8, rel=0.1)
    indexed = "kernel;void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<int> >(int)"
    assert us(f"{indexed};8,1,1;128,1,1;0;aten::index;[[64, 64], [], [64]]") == pytest.approx(3.7, rel=0.15)


def test_attention_s_gradient_goes_through_the_queries_of_each_key() -> None:
    """SegFormer's, on an H200: two tiles of keys for 128 of queries. It was priced at a fifth."""
    q, k = "8x1x16384x64", "8x1x256x64"
    what = parse(f"sdpa;bwd;{q};{k};{k};bf16;0;0;aten::_cudnn_attention_backward;[]")
    assert estimate(profiles.load_gpu("h200"), what).solo_ns == pytest.approx(401_800, rel=0.1)


@pytest.mark.parametrize(
    ("direction", "q", "measured_us"),
    [("fwd", "2x24x2048x128", 74), ("fwd", "1x24x8192x128", 151), ("bwd", "1x24x4096x128", 257)],
)
def test_attention_of_cudnn_with_a_window(direction: str, q: str, measured_us: float) -> None:
    """laboratory/rows/transformer-engine-h200.jsonl.gz: a window of 512 keys was priced as a causal mask."""
    k = q.replace("x24x", "x8x")
    what = parse(f"windowed;{direction};{q};{k};{k};bf16;1;0;nvte_fused_attn;[];513;0")
    assert estimate(profiles.load_gpu("h200"), what).solo_ns == pytest.approx(1e3 * measured_us, rel=0.1)


def test_attention_of_cudnn_with_a_window_on_both_sides_leaves_out_no_tile_backward() -> None:
    """laboratory/rows/transformer-engine-more-h200.jsonl.gz: 256 keys on each side of 8,192; forward it does."""
    q = "1x16x8192x128"
    for direction, measured_us in (("fwd", 108), ("bwd", 2712)):
        what = parse(f"windowed;{direction};{q};{q};{q};bf16;1;0;nvte_fused_attn;[];257;256")
        assert estimate(profiles.load_gpu("h200"), what).solo_ns == pytest.approx(1e3 * measured_us, rel=0.1)


@pytest.mark.parametrize(
    ("direction", "heads", "lengths", "measured_us"),
    [
        ("fwd", "16x4", [16384, *[2048] * 8], 2006),
        ("bwd", "16x4", [16384, *[2048] * 8], 5900),
        ("fwd", "32x8", [2048] * 8, 539),
        ("bwd", "32x8", [2048] * 8, 1865),
    ],
)
def test_packed_sequences_of_cudnn_cost_the_pairs_that_they_have(
    direction: str, heads: str, lengths: list[int], measured_us: float
) -> None:
    """They were priced as if all were as long as the longest, nine of 16,384 at 4.5 times."""
    h, shared = heads.split("x")
    longest = max(lengths)
    q, k = f"{len(lengths)}x{h}x{longest}x128", f"{len(lengths)}x{shared}x{longest}x128"
    fields = ";".join(map(str, together(tuple((one, one) for one in lengths), None, 0)))
    what = parse(f"packed;{direction};{q};{k};{k};bf16;1;0;nvte_fused_attn;[];0;{fields}")
    assert estimate(profiles.load_gpu("h200"), what).solo_ns == pytest.approx(1e3 * measured_us, rel=0.1)


def test_a_window_counts_the_pairs_within_its_bounds() -> None:
    """Of 512 queries each sees itself and the 128 before it, the first ones fewer; tiles are 128 x 128."""
    one = banded(1, 512, 512, 129, 0)
    assert one.pairs == sum(min(row, 128) + 1 for row in range(512))
    assert (one.tiles, one.longest) == (1 + 2 + 2 + 2, 2)
    both = banded(2, 512, 512, 65, 64)
    assert both.pairs == 2 * sum(min(row, 64) + min(511 - row, 64) + 1 for row in range(512))
    assert (both.tiles, both.longest) == (2 * (2 + 3 + 3 + 2), 3)
    whole, causal = banded(1, 512, 512, 512, 0), equal(1, 512, 512, True, from_start=True)
    assert whole.tiles == causal.tiles
    assert whole.pairs == pytest.approx(causal.pairs, rel=0.01)
