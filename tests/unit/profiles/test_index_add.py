"""Rows and items that are added at indices, one atomic addition each."""

from __future__ import annotations

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.signature import parse

GPU = profiles.load_gpu("h200")
NAME = (
    "void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 1, 1, -2, true, "
    "at::native::ReduceAdd>(at::native::ReduceAdd const&, c10::BFloat16)"
)


@pytest.mark.parametrize(("into", "added", "measured_us"), [(6291456, 11796480, 109.5), (7077888, 18874368, 168.2)])
def test_items_of_a_vector_count_as_those_of_a_matrix(into: int, added: int, measured_us: float) -> None:
    """Longformer's gradients of overlapping windows, measured in a job on an H200 that no model was made with."""
    sizes = f"[[{into}], [], [{added}], [{added}], []]"
    found = estimate(GPU, parse(f"kernel;{NAME};1056,1,1;128,1,1;0;aten::index_add_;{sizes}"))
    assert found.solo_ns / 1e3 == pytest.approx(measured_us, rel=0.15)
