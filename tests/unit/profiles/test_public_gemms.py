"""Products of public tables: the models' errors are what the descriptions say."""

from __future__ import annotations

import pytest

from laboratory.fits.public_gemms import errors, measured, ratios
from profiles import load_gpu
from profiles.models.errors import error_share

MEASURED = measured()


@pytest.mark.parametrize("name", MEASURED)
def test_the_uncertainty_of_a_gpu_covers_its_products(name: str) -> None:
    gpu = load_gpu(name)
    middle, typical, _ = errors(ratios(gpu, MEASURED[name]))
    assert typical <= error_share("gemm bf16") * gpu.achieved.uncertainty
    assert abs(middle) <= typical


def test_products_of_hopper_gpus_are_as_good_as_those_the_model_was_made_with() -> None:
    for name in ("h100", "h200"):
        _, typical, high = errors(ratios(load_gpu(name), MEASURED[name]))
        assert typical <= 0.05
        assert high <= 0.15
