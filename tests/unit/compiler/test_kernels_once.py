"""Kernels of cached graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest

from emu.compiler.kernels_once import on_own_device


class Properties(NamedTuple):
    type: str
    index: int | None


@pytest.mark.parametrize(("compiled_for", "loaded_on"), [(5, 1), (None, None)])
def test_a_kernel_of_a_cached_graph_is_loaded_on_the_process_s_own_gpu(
    compiled_for: int | None, loaded_on: int | None
) -> None:
    kernel = SimpleNamespace(
        device_props=Properties("cuda", compiled_for),
        compile_results=[SimpleNamespace(compile_meta={"device": compiled_for, "num_warps": 4})],
    )
    on_own_device(kernel, 1)
    assert kernel.device_props == ("cuda", loaded_on)
    assert kernel.compile_results[0].compile_meta == {"device": loaded_on, "num_warps": 4}
