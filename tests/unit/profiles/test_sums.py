"""Reductions, softmax and losses by what their launches tell, beside times measured on an H100 (docs/data)."""

from __future__ import annotations

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.models.kernels.sums import Division, Way, _division
from profiles.signature import parse

GPU = profiles.load_gpu("h100")
SMALL = "at::native::(anonymous namespace)"


def us(signature: str) -> float:
    return estimate(GPU, parse(signature)).solo_ns / 1e3


def sum_us(sizes: str, grid: str, block: str, vector: int, item: str = "float") -> float:
    added = f"at::native::func_wrapper_t<{item}, at::native::sum_functor<{item}, float, {item}> >"
    reduced = f"at::native::ReduceOp<{item}, {added}, unsigned int, {item}, 4, 4>"
    name = f"void at::native::reduce_kernel<128, {vector}, {reduced} >({reduced} )"
    return us(f"kernel;{name};{grid};{block};0;aten::sum;[{sizes}, [], [], []]")


@pytest.mark.parametrize(
    ("shape", "grid", "block", "vector", "expected"),
    [
        ((802816, 64), (50176, 1, 1), (32, 16, 1), 1, Division(802816, 32, Way.ALONG)),
        ((64, 65536), (64, 1, 1), (32, 16, 1), 1, Division(64, 512, Way.ALONG)),  # warps share a long row
        ((4096, 128256), (1, 4008, 1), (512, 1, 1), 1, Division(1, 512 * 4008, Way.ALONG)),
        ((16, 512, 96, 96), (512, 2, 1), (32, 16, 1), 1, Division(512, 1024, Way.SCATTERED)),
        ((8192, 768), (6, 128, 1), (32, 4, 1), 4, Division(768, 512, Way.ACROSS)),
        ((16, 128, 48, 48), (1, 576, 1), (32, 4, 1), 4, Division(128, 2304, Way.ACROSS)),
        ((16, 512, 48, 48), (512, 1, 1), (32, 16, 1), 1, Division(512, 512, Way.SCATTERED)),
        ((25088, 192), (2, 392, 1), (32, 4, 1), 4, Division(192, 1568, Way.ACROSS, is_full=False)),
        ((96, 224, 56, 56), (168, 13, 1), (32, 4, 1), 4, Division(21504, 52, Way.ACROSS)),
        ((200000, 47), (2, 264, 1), (32, 16, 1), 1, Division(47, 16 * 264, Way.ACROSS, is_full=False)),
    ],
)
def test_a_launch_tells_what_its_threads_share(
    shape: tuple[int, ...], grid: tuple[int, ...], block: tuple[int, ...], vector: int, expected: Division
) -> None:
    assert _division(shape, grid, block, vector, "aten::sum") == expected


@pytest.mark.parametrize(
    ("sizes", "grid", "block", "vector", "measured_us"),
    [
        ("[262144, 64]", "16384,1,1", "32,16,1", 1, 66.6),  # short rows: a warp for each
        ("[839981, 8, 32]", "419991,1,1", "32,16,1", 1, 1477.0),
        ("[8192, 14336]", "8192,1,1", "32,16,1", 1, 176.0),  # bytes
        ("[393216, 256]", "2,1056,1", "32,4,1", 4, 233.2),  # 264 rounds of the last block
        ("[200000, 192]", "2,1056,1", "32,4,1", 4, 170.3),  # the same in a block that is not full
        ("[16, 512, 96, 96]", "512,2,1", "32,16,1", 1, 127.0),  # f16; each place is computed
    ],
)
def test_reductions(sizes: str, grid: str, block: str, vector: int, measured_us: float) -> None:
    item = "c10::Half" if sizes == "[16, 512, 96, 96]" else "float"
    assert sum_us(sizes, grid, block, vector, item) == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(
    ("rows", "columns", "exponent", "lanes", "measured_us"),
    [(131072, 10, 4, "16,8", 8.5), (300000, 49, 6, "32,4", 40.8), (98304, 1024, 10, "32,4", 180.6)],
)
def test_a_warp_pads_its_row(rows: int, columns: int, exponent: int, lanes: str, measured_us: float) -> None:
    types = f"c10::BFloat16, c10::BFloat16, float, {exponent}, true, false"
    name = f"void {SMALL}::softmax_warp_forward<{types}>(int)"
    grid = rows // (8 if exponent <= 7 else 4) // (2 if lanes == "16,8" else 1)
    found = us(f"kernel;{name};{grid},1,1;{lanes},1;0;aten::_log_softmax;[[{rows}, {columns}], [], []]")
    assert found == pytest.approx(measured_us, rel=0.25)


@pytest.mark.parametrize(("rows", "classes", "measured_us"), [(16384, 30522, 1992.0), (8192, 128256, 5552.0)])
def test_rows_that_do_not_fit_the_cache_are_read_thrice(rows: int, classes: int, measured_us: float) -> None:
    types = f"4, float, float, float, {SMALL}::LogSoftMaxForwardEpilogue"
    name = f"void {SMALL}::cunn_SoftMaxForward<{types}>(float*)"
    found = us(f"kernel;{name};{rows},1,1;1024,1,1;0;aten::_log_softmax;[[{rows}, {classes}], [], []]")
    assert found == pytest.approx(measured_us, rel=0.06)


@pytest.mark.parametrize(
    ("kernel", "launch", "sizes", "measured_us"),
    [
        (
            "nll_loss_backward_reduce_cuda_kernel_2d<float, long>",
            "1,1,1;1024,1,1",
            "[], [196608, 512], [196608]",
            237.5,
        ),
        ("nll_loss_backward_reduce_cuda_kernel_2d<float, long>", "1,1,1;32,1,1", "[], [256, 1000], [256]", 3.5),
        ("nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>", "1,1,1;256,1,1", "[4096, 128256], [4096]", 18.6),
        # A block for each picture.
        ("nll_loss2d_forward_kernel<float, float, int>", "8,1,1;1024,1,1", "[8, 21, 385, 385], [8, 385, 385]", 161.6),
    ],
)
def test_a_block_of_a_loss_goes_through_its_targets(kernel: str, launch: str, sizes: str, measured_us: float) -> None:
    found = us(f"kernel;void {SMALL}::{kernel}(float*);{launch};0;aten::nll_loss;[{sizes}, [], [], []]")
    assert found == pytest.approx(measured_us, rel=0.15)


def test_parts_of_a_segment_are_added_one_after_another() -> None:
    """An embedding of 1,000 rows and a million random indices: measured 15.6 and 5.7 us."""
    sizes = "0;aten::embedding_dense_backward;[[1000000, 16], [1000000], [], [], []]"
    summed = us(f"kernel;void {SMALL}::sum_and_scatter<float, long>(long const*);1000,1,1;32,1,1;{sizes}")
    numbered = us(f"kernel;void {SMALL}::krn_partial_segment_offset<long>(long*);32,1,1;32,1,1;{sizes}")
    assert (summed, numbered) == (pytest.approx(15.6, rel=0.2), pytest.approx(5.7, rel=0.6))


@pytest.mark.parametrize(
    ("columns", "item", "measured_us"), [(3000, "f", 97.0), (8192, "f", 307.3), (8192, "b", 297.3)]
)
def test_a_row_in_registers_waits_whatever_its_items(columns: int, item: str, measured_us: float) -> None:
    kind = "float" if item == "f" else "c10::BFloat16"
    types = f"{kind}, float, {kind}, at::native::SoftMaxForwardEpilogue, long, 4"
    name = f"void {SMALL}::cunn_SoftMaxForwardReg<{types}>(float*)"
    found = us(f"kernel;{name};8192,1,1;1024,1,1;0;aten::_softmax;[[8192, {columns}], [], []]")
    assert found == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(
    ("kernel", "launch", "sizes", "measured_us"),
    [
        # A thread goes through 512 channels; many go through few.
        ("grid_sampler_2d_kernel<c10::Half, int>", "16,1,1;256,1,1", "[1, 512, 64, 64], [1, 64, 64, 2]", 134.7),
        (
            "grid_sampler_2d_backward_kernel<float, int>",
            "4096,1,1;256,1,1",
            "[16, 3, 256, 256], [16, 3, 256, 256]",
            202,
        ),
        ("col2im_batched_kernel<float>", "16384,1,1;512,1,1", "[8, 576, 16384]", 758.1),
        ("col2im_batched_kernel<float>", "6144,1,1;512,1,1", "[16, 48, 4096]", 89.8),
        ("reflection_pad2d_out_kernel<float>", "67,64,8;256,1,1", "[8, 64, 128, 128]", 58.2),
    ],
)
def test_what_is_done_to_pictures(kernel: str, launch: str, sizes: str, measured_us: float) -> None:
    found = us(f"kernel;void {SMALL}::{kernel}(float*);{launch};0;aten::done;[{sizes}, [], []]")
    assert found == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(
    ("transposed", "m", "n", "k", "measured_us"),
    [
        ("t;n", 50257, 8192, 768, 6689.0),  # GPT-2's head: its rows begin at odd numbers of 16-bit items
        ("n;n", 768, 8192, 50257, 4634.0),
        ("t;n", 30522, 16384, 768, 3320.0),  # BERT's: at multiples of 4 bytes
        ("n;n", 1000, 3000, 500, 27.5),
    ],
)
def test_products_whose_rows_are_not_aligned(transposed: str, m: int, n: int, k: int, measured_us: float) -> None:
    found = us(f"gemm;cublasGemmEx;{transposed};{m};{n};{k};1;bf16;bf16;bf16;f32;default;;")
    assert found == pytest.approx(measured_us, rel=0.2)


def test_a_tensor_of_6_gb_is_summed_in_four_launches() -> None:
    """Each of the four of a real job took 365 microseconds on an H200: PyTorch's offsets have 32 bits."""
    whole = sum_us("[4, 4, 256, 256, 24, 64]", "12288,1,1", "32,4,1", 4)
    part = sum_us("[1, 4, 256, 256, 24, 64]", "12288,1,1", "32,4,1", 4)
    assert whole == part
    assert sum_us("[1, 4, 256, 128, 24, 64]", "12288,1,1", "32,4,1", 4) < part
