"""Measured tables: exact times first, then the family's correction, then the model."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import profiles
from profiles import Measured, Table, TimesOn
from profiles.signature import parse
from profiles.timings.keys import key_of

GPU = profiles.load_gpu("h200")
ORIGIN = {"gpu": "NVIDIA H200"}
HEAD = 'phantora-kernel-times 2\norigin {"gpu": "NVIDIA H200"}\n'


def gemm(n: int, dtype: str = "bf16") -> str:
    return f"gemm;cublasGemmEx;n;n;{n};{n};{n};1;{dtype};{dtype};{dtype};f32;default;;"


def table(*times: Measured) -> Table:
    made = Table()
    made.add(ORIGIN, times)
    return made


def test_exact_then_family_then_model() -> None:
    plain = profiles.CostModel(GPU)
    slow = [round(plain.cost(gemm(n)).solo_ns * factor) for n, factor in ((2048, 1.2), (4096, 1.6))]
    times = (Measured(gemm(2048), slow[0], None, 3, 0), Measured(gemm(4096), slow[1], 2 * slow[1], 3, 0))
    model = profiles.CostModel(GPU, TimesOn(table(*times), GPU))

    measured = model.cost(gemm(4096))
    assert (measured.solo_ns, measured.contended_ns) == (slow[1], 2 * slow[1])
    assert (measured.flops, measured.source) == (2.0 * 4096**3, profiles.Source.MEASURED)
    assert measured.error_share < plain.cost(gemm(4096)).error_share
    # No contended time was measured: the model's ratio.
    expected = slow[0] * plain.cost(gemm(2048)).contended_ns / plain.cost(gemm(2048)).solo_ns
    assert model.cost(gemm(2048)).contended_ns == pytest.approx(expected, abs=1)

    between = model.cost(gemm(3072))
    assert between.source is profiles.Source.INTERPOLATED
    assert 1.2 < between.solo_ns / plain.cost(gemm(3072)).solo_ns < 1.6
    for far_or_foreign in (gemm(65536), gemm(3072, "f16")):
        assert model.cost(far_or_foreign) == plain.cost(far_or_foreign)


def test_another_gpu_s_times_are_carried_over() -> None:
    there, here = GPU, profiles.load_gpu("b200")
    slower = round(profiles.CostModel(there).cost(gemm(4096)).solo_ns * 1.5)
    model = profiles.CostModel(here, TimesOn(table(Measured(gemm(4096), slower, None, 1, 0)), there))
    plain = profiles.CostModel(here).cost(gemm(4096))
    found = model.cost(gemm(4096))
    assert found.solo_ns == pytest.approx(1.5 * plain.solo_ns, rel=1e-3)
    assert found.source is profiles.Source.INTERPOLATED
    assert found.error_share >= 0.15


def test_the_same_work_under_several_names() -> None:
    mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
    readable = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
        "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
    )
    kernels = [
        f"kernel;{name};8,1,1;128,1,1;{shared};aten::add;[[4], [4]]"
        for name in (mangled, readable)
        for shared in (0, 48)
    ]
    assert len({key_of(parse(one)) for one in kernels}) == 1
    products = [
        "gemm;cublasLtMatmul;t;n;64;64;64;1;bf16;bf16;bf16;f32;bias;aten::addmm;[[64], [64, 64], [64, 64]]",
        "gemm;cublasGemmEx;t;n;64;64;64;1;bf16;bf16;bf16;f32;default;aten::mm;[[64, 64], [64, 64]]",
    ]
    assert len({key_of(parse(one)) for one in products}) == 1
    assert key_of(parse(products[0])) != key_of(parse(products[0].replace(";t;n;", ";n;n;")))


@pytest.mark.parametrize("name", ["h200.times", "h200.times.gz"])
def test_saved_and_loaded(tmp_path: Path, name: str) -> None:
    first, second = (
        table(Measured(gemm(64), 5, 7, 2, 0)),
        table(Measured(gemm(64), 6, None, 1, 0), Measured("memset;8", 2, None, 1, 0)),
    )
    both = profiles.merged([first, second])
    profiles.save_table(tmp_path / name, both)
    found = profiles.load_table(tmp_path / name)
    assert found == both
    assert [(one.solo_ns, one.origin) for one in found.times.values()] == [(6, 0), (2, 0)]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r":1: expected the line 'phantora-kernel-times 2'"),
        ("phantora-costs 1\n", r":1: expected the line"),
        ("phantora-kernel-times 2\norigin []\n", r":2: origin: expected a JSON object"),
        (f"{HEAD}0\t1\t5\t-\tmemset;8", r":3: the file ends within a line"),
        (f"{HEAD}0\t1\tmemset;8\n", r":3: expected origin, executions, ns alone"),
        (f"{HEAD}1\t1\t5\t-\tmemset;8\n", r":3: origin 1: only 1 are given before"),
        (f"{HEAD}0\t1\t0\t-\tmemset;8\n", r":3: expected executions and ns alone to be positive"),
        (f"{HEAD}0\t1\t1.5\t-\tmemset;8\n", r":3: expected an integer, found '1.5'"),
        (f"{HEAD}0\t1\t5\t4\tmemset;8\n", r":3: 4 ns beside NCCL is less than 5 ns alone"),
        (f"{HEAD}\n0\t1\t5\t-\tmemst;8\n", r":4: signature .*unknown kind"),
        (f"{HEAD}0\t1\t5\t-\tmemset;8\n0\t1\t6\t-\tmemset;8\n", r":4: signature given twice"),
    ],
)
def test_malformed(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "h200.times"
    path.write_text(text)
    with pytest.raises(profiles.ProfileError, match=message) as caught:
        profiles.load_table(path)
    assert str(caught.value).startswith(str(path))


def test_a_cut_compressed_table(tmp_path: Path) -> None:
    path = tmp_path / "h200.times.gz"
    path.write_bytes(gzip.compress(HEAD.encode())[:-9])
    with pytest.raises(profiles.ProfileError, match="cannot be read"):
        profiles.load_table(path)


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_shipped_tables_are_in_the_form_that_is_looked_up(gpu: str) -> None:
    """They are loaded as they stand. Foreach kernels' entries would not say how full their chunks are."""
    ((path, _),) = profiles.shipped_times(profiles.load_gpu(gpu))
    as_they_stand = profiles.load_table(path, trusted=True)
    assert as_they_stand == profiles.load_table(path)
    assert not any("multi_tensor_apply_kernel" in key for key in as_they_stand.times)
