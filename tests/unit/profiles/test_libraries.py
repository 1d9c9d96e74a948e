"""Library calls by name against what an H200 took (laboratory/notes/libraries-h200.md), and products of 4 bits."""

from __future__ import annotations

from dataclasses import replace

import pytest

import profiles

H200 = profiles.CostModel(profiles.load_gpu("h200"))


def us(signature: str, gpu: str = "h200") -> float:
    model = H200 if gpu == "h200" else profiles.CostModel(profiles.load_gpu(gpu))
    return model.cost(signature).solo_ns / 1000


@pytest.mark.parametrize(
    ("call", "rows", "measured_us"),
    [
        ("cusolverDnSpotrf", 1024, 330),
        ("cusolverDnSpotrf", 4096, 1536),
        ("cusolverDnSgetrf", 512, 816),
        ("cusolverDnSgetrf", 4096, 11705),
        ("cusolverDnXsyevd", 1024, 9913),
        ("cusolverDnXsyevd", 4096, 89488),
        ("cusolverDnSgesvdj", 2048, 213569),
        ("cusolverDnSgesvdj", 4096, 1003249),
        ("cusolverDnXgeev", 1024, 205543),
        ("cusolverDnXgeev", 128, 14849),
        ("cusolverDnSsyevj", 64, 840),
        ("cusolverDnSsyevj", 256, 5529),
        ("cusolverDnSsyevj", 512, 14399),
    ],
)
def test_factorisations(call: str, rows: int, measured_us: float) -> None:
    assert us(f"library;{call};1;aten::op;[[{rows}, {rows}]]") == pytest.approx(measured_us, rel=0.3)


@pytest.mark.parametrize(
    ("call", "rows", "columns", "measured_us"),
    [
        ("Xgeqrf", 4096, 8, 47),
        ("Xgeqrf", 4096, 64, 365),
        ("Xgeqrf", 1024, 1024, 3675),
        ("Sorgqr", 1024, 8, 20),
        ("Sorgqr", 4096, 64, 59),
        ("Sorgqr", 1024, 1024, 506),
        ("Sorgqr", 2048, 2048, 1328),
    ],
)
def test_parts_of_qr(call: str, rows: int, columns: int, measured_us: float) -> None:
    """Their kernels' time, two copies of PyTorch's with it (laboratory/rows/solver-h200.jsonl)."""
    found = us(f"library;cusolverDn{call};1;aten::op;[[{rows}, {columns}]]")
    assert found == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(("rows", "measured_us"), [(512, 144), (1024, 273), (2048, 786), (4096, 2943)])
def test_triangular_systems(rows: int, measured_us: float) -> None:
    """Half of what an inverse took on an H100 beside its factorisation (laboratory/rows/linalg-h100.jsonl)."""
    found = us(f"library;cublasStrsm;1;aten::linalg_solve_triangular;[[{rows}, {rows}], [{rows}, {rows}], [], [], []]")
    assert found == pytest.approx(measured_us, rel=0.5 if rows == 2048 else 0.25)


def test_a_batch_of_factorisations_runs_side_by_side() -> None:
    one = us("library;cusolverDnXsyevBatched;1;aten::op;[[1, 256, 256]]")
    assert us("library;cusolverDnXsyevBatched;1;aten::op;[[8, 256, 256]]") < 2.5 * one


@pytest.mark.parametrize(
    ("nbytes", "measured_us"),
    [(2 * 1073741824, 583), (4 * 536870912, 591), (2 * 67108864, 39.6)],
    ids=["65536 x 1024 complex", "1048576 x 64 real", "16 x 512 x 512"],
)
def test_transforms_by_the_bytes_of_their_passes(nbytes: int, measured_us: float) -> None:
    assert us(f"library;cufftXtExec;{nbytes};aten::_fft_c2c;[]") == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize(
    ("entries", "rows", "columns", "measured_us"), [(400_000, 20_000, 256, 73), (4_000_000, 200_000, 128, 535)]
)
def test_sparse_products(entries: int, rows: int, columns: int, measured_us: float) -> None:
    nbytes = 12 * entries + 4 * columns * (entries + rows)
    sizes = f"[[{rows}, {columns}], [{rows}, {rows}], [{rows}, {columns}]]"
    assert us(f"library;cusparseSpMM;{nbytes};aten::addmm;{sizes}") == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(
    ("size", "measured_us"), [("8192;8192;8192", 721), ("14336;4096;4096", 316), ("4096;4096;4096", 95)]
)
def test_products_of_8_bits(size: str, measured_us: float) -> None:
    found = us(f"gemm;cublasLtMatmul;t;n;{size};1;f8e4m3;f8e4m3;bf16;f32;default;aten::_scaled_mm;[]")
    assert found == pytest.approx(measured_us, rel=0.1)


def test_products_of_4_bits_take_half_as_long_on_blackwell() -> None:
    product = "gemm;cublasLtMatmul;t;n;8192;8192;8192;1;{0};{0};bf16;f32;default;;".format
    assert us(product("f4e2m1"), "b200") == pytest.approx(us(product("f8e4m3"), "b200") / 2, rel=0.1)
    assert us(product("f4e2m1")) == pytest.approx(us(product("f8e4m3")), rel=0.01)  # no figure: as of 8 bits


def test_pytorchs_own_scaled_product_is_one_of_cublas() -> None:
    sizes = "[[4096, 4096], [4096, 8192], [4096, 1], [1, 8192]]"
    own = us(f"kernel;_ZN7cutlass13device_kernelINS_4gemmEEEvv;132,1,1;384,1,1;0;aten::_scaled_mm;{sizes}")
    named = f"gemm;cublasLtMatmul;t;n;8192;4096;4096;1;f8e4m3;f8e4m3;bf16;f32;default;aten::_scaled_mm;{sizes}"
    assert own == us(named)


def test_optimizers_of_bitsandbytes_by_bytes() -> None:
    name = "_Z21kOptimizer32bit2StateI13__nv_bfloat16Li0EEvPT_S2_PfS3_S3_ffffffffiffbi"
    sizes = "[[], [14336, 4096], [14336, 4096], [14336, 4096], [14336, 4096]]"
    cost = H200.cost(f"kernel;{name};14336,1,1;1024,1,1;0;bitsandbytes::optimizer_update_32bit;{sizes}")
    assert cost.unknown == ""
    assert cost.solo_ns == pytest.approx(14336 * 4096 * 22 / 4368, rel=0.05)  # 22 bytes of each element


def test_copies_between_gpus_take_nvlinks_rate() -> None:
    gpu = profiles.load_gpu("h200")
    copy = "copy;p2p;400000000;pinned"
    assert profiles.CostModel(replace(gpu, peer_gb_per_s=400.0)).cost(copy).solo_ns == 1_002_000
    assert profiles.CostModel(gpu).cost(copy).solo_ns == pytest.approx(2_000 + 400_000_000 / 55)
