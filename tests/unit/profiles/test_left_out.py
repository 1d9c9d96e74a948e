"""Errors of kernels that were left out when the models' figures were fitted."""

from __future__ import annotations

import pytest

import profiles
from laboratory.fits.figures import Models
from laboratory.fits.left_out import Work, left_out
from laboratory.fits.model_error import Measured
from profiles.models.dispatch import estimate
from profiles.models.transfers import FILL
from profiles.signature import Memset, parse

GPU = profiles.load_gpu("h200")
FILLS = [Memset(1 << n) for n in range(20, 32)]
PRODUCT = parse("gemm;cublasGemmEx;t;n;512;512;512;1;bf16;bf16;bf16;f32;default;;")


def work_of(factor_of: dict[int, float]) -> Work:
    """Fills that take so much longer than the model says, by the power of two of their size."""
    us = {one.nbytes: estimate(GPU, one).solo_ns / 1e3 for one in FILLS}
    return Work(
        GPU,
        [
            Measured(f"memset;{nbytes}", ns * factor_of.get(nbytes.bit_length() - 1, 1.0), "alone")
            for nbytes, ns in us.items()
        ],
    )


def test_a_figure_changes_its_own_models_alone() -> None:
    models, fill = Models(), FILLS[-1]
    of_copies = [place for place, figure in enumerate(models.figures) if figure.file == "transfers.py"]
    as_it_is = estimate(GPU, fill).solo_ns
    assert models.build({})(GPU, fill).solo_ns == as_it_is
    longer = [place for place in of_copies if models.build({place: 2.0})(GPU, fill).solo_ns > 1.5 * as_it_is]
    assert [models.figures[place].value for place in longer] == [FILL]
    assert models.build({longer[0]: 2.0})(GPU, PRODUCT).solo_ns == estimate(GPU, PRODUCT).solo_ns
    assert profiles.models.dispatch.estimate is estimate, "the models that everybody uses stay as they are"


def test_what_the_other_kernels_tell_is_no_error() -> None:
    """All fills take 1.2 times as long: fitted to the others, the model predicts each."""
    found = left_out(work_of(dict.fromkeys(range(20, 32), 1.2)), "memory fill")
    assert found.fitted == pytest.approx(0.18, abs=0.01)
    assert found.error < 0.05


def test_what_the_other_kernels_do_not_tell_is() -> None:
    """Only the largest fills take longer: without them nothing says so."""
    found = left_out(work_of({30: 1.5, 31: 1.5}), "memory fill")
    assert found.error > found.refitted
    assert found.error > 0.1
