"""Measured tables: exact entries first, then the family's correction, then the model."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiles

GPU = profiles.load_gpu("h200")


def gemm(n: int, dtype: str = "bf16") -> str:
    return f"gemm;cublasGemmEx;n;n;{n};{n};{n};1;{dtype};{dtype};{dtype};f32;default;;"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "h200.costs"
    path.write_text(text)
    return path


def test_exact_then_family_then_model(tmp_path: Path) -> None:
    plain = profiles.CostModel(GPU)
    slow = [round(plain.cost(gemm(n)).solo_ns * factor) for n, factor in ((2048, 1.2), (4096, 1.6))]
    text = f"phantora-costs 1\n# a comment\n\n{gemm(2048)}\t{slow[0]}\n{gemm(4096)}\t{slow[1]}\t{2 * slow[1]}\n"
    model = profiles.CostModel(GPU, profiles.load_table(write(tmp_path, text)))

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
    beyond = model.cost(gemm(5120))
    assert beyond.solo_ns == pytest.approx(1.6 * plain.cost(gemm(5120)).solo_ns, rel=1e-3)

    for far_or_foreign in (gemm(16384), gemm(3072, "f16")):
        assert model.cost(far_or_foreign) == plain.cost(far_or_foreign)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r":1: expected the line 'phantora-costs 1'"),
        ("phantora-costs 2\n", r":1: expected the line"),
        ("phantora-costs 1\nmemset;8\t5", r":2: the file ends within a line"),
        ("phantora-costs 1\nmemset;8\n", r":2: expected signature, tab, solo ns"),
        ("phantora-costs 1\nmemset;8\t0\n", r":2: expected .* positive integers"),
        ("phantora-costs 1\nmemset;8\t1.5\n", r":2: expected .* positive integers"),
        ("phantora-costs 1\nmemset;8\t5\t4\n", r":2: contended ns: 4 is less than solo ns, 5"),
        ("phantora-costs 1\n\nmemst;8\t5\n", r":3: signature .*unknown kind"),
        ("phantora-costs 1\nmemset;8\t5\nmemset;8\t6\n", r":3: signature given twice"),
    ],
)
def test_malformed(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(profiles.ProfileError, match=message) as caught:
        profiles.load_table(path)
    assert str(caught.value).startswith(str(path))
