"""Entries of Inductor's cache on GPUs of other numbers."""

from __future__ import annotations

import pytest

from emu.compiler.any_device import name_own_device, renumber

WRAPPER = """\
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
    triton_meta={'device': DeviceProperties(type='cuda', index=1, multi_processor_count=132)},
''', device_str='cuda')
def call(args):
    with torch.cuda._DeviceGuard(1):
        torch.cuda.set_device(1)
        buf0 = empty_strided_cuda((11, 1), (1, 1), torch.float32)
        stream1 = get_raw_stream(1)
        triton_poi_fused_add_0.run(buf0, 1, 11, stream=stream1)
        buf1 = torch.ops.aten.full.default([1], 1, device=device(type='cuda', index=1))
        buf2 = torch.ops.aten.full.default([1], 1, device=device(type='cuda', index=11))
        buf3 = rand_strided((1,), (1,), device='cuda:1')
"""


def test_a_wrapper_is_renumbered_where_it_names_its_gpu() -> None:
    changed = renumber(WRAPPER, 1, 12)
    assert "_DeviceGuard(12)" in changed
    assert "torch.cuda.set_device(12)" in changed
    assert "stream1 = get_raw_stream(12)" in changed
    assert "device=device(type='cuda', index=12)" in changed
    assert "device='cuda:12'" in changed


def test_renumbering_changes_nothing_else() -> None:
    changed = renumber(WRAPPER, 1, 12)
    assert "DeviceProperties(type='cuda', index=1," in changed, "kernels are known by their source"
    assert "device(type='cuda', index=11)" in changed, "another GPU"
    assert "empty_strided_cuda((11, 1), (1, 1), torch.float32)" in changed
    assert ".run(buf0, 1, 11, stream=stream1)" in changed
    assert renumber(changed, 12, 1) == WRAPPER


@pytest.mark.parametrize("code", ["full([], 0, device=device(type='cuda', index={}))", "full([], 0, device='cuda:{}')"])
def test_graphs_that_differ_by_the_own_gpu_have_the_same_key(code: str) -> None:
    assert name_own_device(code.format(0), 0) == name_own_device(code.format(3), 3)
    assert name_own_device(code.format(0), 0) != name_own_device(code.format(0), 3), "a second GPU is another graph"
