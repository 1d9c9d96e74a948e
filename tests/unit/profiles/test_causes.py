"""Causes that kernels measured by themselves have shown (laboratory/rows/causes-h100.jsonl.gz), and who is near
whom."""

from __future__ import annotations

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.models.errors import error_share
from profiles.signature import parse
from profiles.timings.corrections import SAME_LAYOUT, Family
from profiles.timings.keys import features

GPU = profiles.load_gpu("h100")
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
)


def us(signature: str) -> float:
    return estimate(GPU, parse(signature)).solo_ns / 1e3


def gemm(turned: str, m: int, n: int, k: int, batch: int = 1) -> str:
    return f"gemm;cublasGemmEx;{turned};{m};{n};{k};{batch};bf16;bf16;bf16;f32;default;;"


@pytest.mark.parametrize(
    ("product", "measured_us"),
    [
        (gemm("t;n", 49, 49, 32, 3072), 23.9),  # was 46
        (gemm("n;n", 49, 49, 32, 12288), 88.2),
        (gemm("t;n", 32, 49, 49, 3072), 25.9),
        (gemm("n;n", 25, 25, 32, 1536), 6.6),
        (gemm("n;n", 64, 50, 50, 2048), 25.2),
    ],
)
def test_small_unaligned_products_in_batches(product: str, measured_us: float) -> None:
    assert us(product) == pytest.approx(measured_us, rel=0.25)


def cat_us(item: int, grid: str, sizes: str) -> float:
    name = (
        f"void at::native::CatArrayBatchedCopy_alignedK_contig<OpaqueType<{item}u>, unsigned int, 2, 128, 1, 16>(int)"
    )
    return us(f"kernel;{name};{grid};128,1,1;0;aten::cat;{sizes}")


@pytest.mark.parametrize(
    ("item", "grid", "sizes", "measured_us"),
    [
        (4, "4224,3,1", "[[4096, 96, 3], [4096, 96, 30], [4096, 96, 30], []]", 306.4),  # was 92
        (2, "4224,3,1", "[[4096, 96, 3], [4096, 96, 30], [4096, 96, 30], []]", 190.2),
        (4, "4224,2,1", "[[262144, 13], [262144, 64], []]", 137.6),
        (4, "3907,2,1", "[[1000000, 2], [1000000, 2], []]", 28.9),
        (2, "4224,2,1", "[[8, 64, 384, 384], [8, 64, 384, 384], []]", 330.4),  # channels last: whole sectors
    ],
)
def test_sectors_that_two_inputs_share_are_written_in_part(
    item: int, grid: str, sizes: str, measured_us: float
) -> None:
    assert cat_us(item, grid, sizes) == pytest.approx(measured_us, rel=0.15)


def test_blocks_of_a_short_input_have_nothing_to_do() -> None:
    """A class token before 25,088 places: 123.7 us in a job, priced 81 before."""
    name = "void at::native::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
    found = us(f"kernel;{name};264,2,1;512,1,1;0;aten::cat;[[8, 1, 1, 96], [8, 1, 25088, 96], []]")
    assert found == pytest.approx(123.7, rel=0.15)


def test_strided_operands_wait_for_their_places() -> None:
    """2.24 us on an H200, priced 1.4 before."""
    assert us(f"kernel;{COPY};512,1,1;128,1,1;0;aten::copy_;[[512, 512], [512, 512], []]") == pytest.approx(
        2.24, rel=0.2
    )


@pytest.mark.parametrize(
    ("item", "grid", "sizes", "measured_us"),
    [
        ("float", "500000,1,1", "[[100000, 128], [], [2000000, 128], [], []]", 605.2),  # was 1049
        ("float", "200000,2,1", "[[40000, 256], [], [800000, 256], [], []]", 493.9),
        ("c10::BFloat16", "250000,1,1", "[[10000, 64], [], [1000000, 64], [], []]", 352.7),
        ("float", "1920,1,1", "[[1920, 128], [], [7680, 128], [], []]", 7.65),
        ("c10::BFloat16", "640,6,1", "[[16, 1568, 768], [], [2560, 768], [], []]", 6.3),  # chosen by a mask; was 137
    ],
)
def test_rows_are_added_by_warps(item: str, grid: str, sizes: str, measured_us: float) -> None:
    name = f"void (anonymous namespace)::indexing_backward_kernel<{item}, 4>(long const*)"
    found = us(f"kernel;{name};{grid};32,4,1;0;aten::_index_put_impl_;{sizes}")
    assert found == pytest.approx(measured_us, rel=0.2)


def test_short_rows_of_one_place_wait_for_each_other() -> None:
    """Relative positions of windows: was 9.8 us."""
    name = "void (anonymous namespace)::indexing_backward_kernel_small_stride<float>(long const*)"
    sizes = "[[732, 12], [], [38809, 12], [], []]"
    found = us(f"kernel;{name};9703,1,1;32,4,1;0;aten::_index_put_impl_;{sizes}")
    assert found == pytest.approx(20.3, rel=0.2)


@pytest.mark.parametrize(
    ("kernel", "grid", "sizes", "measured_us"),
    [
        ("computeBlockDigitCounts<float, unsigned int, unsigned int, 2>", "16384,1,1", "[[16, 1024, 1024], []]", 48.9),
        ("computeBlockwiseWithinKCounts<unsigned int, float>", "16384,1,1", "[[16, 1024, 1024], []]", 31.4),
        ("computeDigitCumSum", "16384,1,1", "[[8, 2048, 2048], []]", 18.5),
        ("gatherTopK<float, unsigned int, 2>", "16384,1,1", "[[4, 4096, 4096], []]", 257.9),  # was 53
    ],
)
def test_the_largest_of_long_rows(kernel: str, grid: str, sizes: str, measured_us: float) -> None:
    found = us(f"kernel;void at::native::mbtopk::{kernel}(int);{grid};256,1,1;0;aten::topk;{sizes}")
    assert found == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(("gpu", "measured_us"), [("h100", 31.0), ("h200", 23.1)])
def test_norms_of_lists_write_nothing(gpu: str, measured_us: float) -> None:
    name = (
        "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>, at::native::LpNormFunctor<float,"
        " (at::native::NormType)1, float, 1, 1, 0>, float*, int>(int)"
    )
    found = estimate(profiles.load_gpu(gpu), parse(f"kernel;{name};320,1,1;512,1,1;2048;aten::_foreach_norm;[[], []]"))
    assert found.solo_ns / 1e3 == pytest.approx(measured_us, rel=0.08)


def test_running_sums_of_many_rows() -> None:
    name = "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(int)"
    short = us(f"kernel;{name};65536,1,1;512,1,1;0;aten::cumsum;[[65536, 64], [], []]")
    assert short == pytest.approx(377.9, rel=0.15)  # was 1254


def test_the_l2_cache_gives_turned_operands_their_sectors() -> None:
    """On an H200 131.5 us, of a job that was in no fit; on an H100 153.4."""
    name = COPY.replace("<128, 4", "<128, 2").replace("c10::BFloat16", "float")
    turned = f"strided;{name};75264,1,1;128,1,1;0;aten::copy_;[[128, 196, 768], [128, 196, 768], []];768x196x128;"
    signature = parse(turned + "4x3072x602112,784x4x602112")
    found = {gpu: estimate(profiles.load_gpu(gpu), signature).solo_ns / 1e3 for gpu in ("h100", "h200")}
    assert found == {"h100": pytest.approx(153.4, rel=0.12), "h200": pytest.approx(131.5, rel=0.12)}


def test_products_of_other_alignment_are_no_neighbours() -> None:
    aligned, even, odd = (parse(gemm("t;n", m, 98304, 384)) for m in (192, 194, 193))
    apart = [abs(features(one, 0.0)[-1] - features(other, 0.0)[-1]) for one, other in ((aligned, even), (even, odd))]
    assert min(apart) >= 4.0


def test_times_of_other_layouts_correct_nothing() -> None:
    """Tables have some without strides."""
    family = Family(lambda what: 100_000.0)
    sizes = "[[16, 256, 128, 128], [16, 256, 128, 128], []]"
    copy = parse(f"kernel;{COPY};131072,1,1;128,1,1;0;aten::copy_;{sizes}")
    family.learn(copy, 2.0 * SAME_LAYOUT * 100_000.0)
    assert (len(family), family.factor(features(copy, 100_000.0))) == (0, None)
    family.learn(copy, 1.1 * 100_000.0)
    factor = family.factor(features(copy, 100_000.0))
    assert factor == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize(
    ("call", "model"),
    [
        ("cusolverDnSsyevj", "eigenvalues"),
        ("cusolverDnXsyevd", "eigenvalues"),
        ("cusolverDnXgeev", "eigenvalues, general"),
        ("cusolverDnSgesvdj", "singular values"),
        ("cusolverDnSgetrf", "factorisation"),
    ],
)
def test_calls_of_linear_algebra_carry_measured_errors(call: str, model: str) -> None:
    found = estimate(GPU, parse(f"library;{call};4194304;aten::op;[[512, 512], [], []]"))
    assert found.model == model
    assert error_share(model) < 0.2
