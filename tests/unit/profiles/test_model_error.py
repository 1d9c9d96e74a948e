"""The measured kernels, the models' errors on them, and the shares that estimates carry."""

from __future__ import annotations

import gzip
import json
from math import isnan, log
from pathlib import Path

import pytest

import profiles
from laboratory.fits.model_error import MEASURED, Compared, Errors, Measured, compare, errors_of, read
from laboratory.fits.together import FEWEST, mean_of, together
from phantora_async.report.interval import SPREAD, TOGETHER
from profiles.models.errors import ERROR_SHARES, UNMEASURED

GPU = profiles.load_gpu("h200")
COMMON = (
    "gemm bf16",
    "gemm f16",
    "gemm f8",
    "gemm f32",
    "grouped product",
    "convolution bf16",
    "convolution f16",
    "attention of cuDNN, fwd",
    "attention of cuDNN, bwd",
    "attention, flash",
    "batch norm",
    "element-wise",
    "element-wise, cast",
    "element-wise, turned",
    "gather and scatter",
    "gather of rows",
    "optimizer",
    "softmax",
    "Triton",
    "rnn lstm",
    "concatenation",
)


@pytest.fixture(scope="module")
def kernels() -> dict[str, list[Compared]]:
    """Returns the kernels of each model, measured on an H200; for models of which nothing was measured there, on an
    H100.
    """
    found = compare(profiles.load_gpu("h100"), read(MEASURED / "h100-kernels.jsonl.gz"))
    return found | compare(GPU, read(MEASURED / "h200-kernels.jsonl.gz"))


@pytest.fixture(scope="module")
def errors(kernels: dict[str, list[Compared]]) -> dict[str, Errors]:
    return {model: errors_of(found) for model, found in kernels.items()}


def test_estimates_carry_their_model_s_error(errors: dict[str, Errors]) -> None:
    """The error is no smaller than that of the kernels that the model was fitted to."""
    assert errors.keys() == ERROR_SHARES.keys()
    assert {model: found.error for model, found in errors.items() if found.error > ERROR_SHARES[model] + 0.01} == {}
    cost = profiles.CostModel(GPU).cost("gemm;cublasGemmEx;t;n;512;512;512;1;bf16;bf16;bf16;f32;default;;")
    assert (cost.model, cost.error_share) == ("gemm bf16", ERROR_SHARES["gemm bf16"])
    assert profiles.CostModel(GPU).cost("nonsense").error_share == UNMEASURED


@pytest.mark.parametrize("model", COMMON)
def test_common_work_is_within_15_percent(errors: dict[str, Errors], model: str) -> None:
    assert errors[model].of_time < 0.15
    assert abs(errors[model].bias) < 0.1


def test_intervals_add_up_errors_as_those_of_measured_kernels_add_up(kernels: dict[str, list[Compared]]) -> None:
    found = [together(model, ones) for model, ones in kernels.items() if len(ones) >= FEWEST]
    assert pytest.approx(mean_of(found, "spread"), abs=0.1) == SPREAD
    assert mean_of(found, "other_family") < TOGETHER < mean_of(found, "same_family")


def test_how_much_errors_go_together() -> None:
    """Two products twice too slow, and copies of which one is twice too slow and one twice too fast."""
    products = [f"gemm;cublasGemmEx;t;n;{m};512;512;1;bf16;bf16;bf16;f32;default;;" for m in (512, 1024)]
    alike = together("a model", [Compared(Measured(one, 1.0, "alone"), 2.0, "a model") for one in products])
    assert (alike.spread, alike.same_family) == (pytest.approx(1), pytest.approx(1))
    assert isnan(alike.other_family)
    times = {"memset;4096": 2.0, "memset;8192": 0.5, products[0]: 2.0}
    mixed = together("a model", [Compared(Measured(one, 1.0, "alone"), us, "a model") for one, us in times.items()])
    assert (mixed.same_family, mixed.other_family) == (pytest.approx(-1), pytest.approx(0))


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_measured_times_say_where_they_come_from(gpu: str) -> None:
    with gzip.open(MEASURED / f"{gpu}-kernels.jsonl.gz", "rt") as file:
        provenance = json.loads(next(file))
    assert {"gpu", "driver", "torch", "date", "how"} <= provenance.keys()


def compared(modelled_us: float, measured_us: float) -> Compared:
    return Compared(Measured("memset;1", measured_us, "alone"), modelled_us, "a model")


def test_each_kernel_is_left_out_of_its_own_correction() -> None:
    """Where two kernels are off alike, a correction by the other one leaves nothing; where their errors are opposite,
    it doubles them.
    """
    alike = errors_of([compared(2.0, 1.0), compared(2.0, 1.0)])
    assert (alike.error, alike.left_out) == (pytest.approx(log(2)), pytest.approx(0))
    opposite = errors_of([compared(2.0, 1.0), compared(0.5, 1.0)])
    assert (opposite.bias, opposite.left_out) == (pytest.approx(0), pytest.approx(2 * log(2)))


def test_a_file_of_measured_times(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write('{"gpu": "a GPU"}\n{"us": 2.5, "where": "alone", "calls": 1, "signature": "memset;4096"}\n')
    assert read(path) == [Measured("memset;4096", 2.5, "alone")]


def test_what_a_model_assumes_is_as_uncertain_as_what_none_knows() -> None:
    unknown = profiles.CostModel(GPU).cost("kernel;_Z6nobodyv;1024,1,1;256,1,1;0;;")
    assert unknown.unknown
    assert unknown.error_share == UNMEASURED
