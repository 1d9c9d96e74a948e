"""A Triton program that finds in a table where it loads, and where it stores: what it stores is not known."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def through_table(sources, targets, rows, n, BLOCK: tl.constexpr) -> None:
    number = tl.program_id(0)
    row = tl.load(rows + number)
    source = tl.load(sources + row).to(tl.pointer_type(tl.float32))
    target = tl.load(targets + row).to(tl.pointer_type(tl.int32))
    at = tl.arange(0, BLOCK)
    values = tl.load(source + at, mask=at < n)
    tl.store(target + at, values.to(tl.int32), mask=at < n)


floats = [torch.randn(8, device="cuda") for _ in range(2)]
integers = [torch.full((8,), 7, dtype=torch.int32, device="cuda") for _ in range(3)]
sources = torch.tensor([one.data_ptr() for one in floats], device="cuda")
targets = torch.tensor([one.data_ptr() for one in integers[:2]], device="cuda")
rows = torch.tensor([1, 0], device="cuda")
through_table[(2,)](sources, targets, rows, 8, BLOCK=8)
assert rows.tolist() == [1, 0]
assert targets.tolist() == [one.data_ptr() for one in integers[:2]]
assert sources.tolist() == [one.data_ptr() for one in floats]
print("stored", [one.tolist() for one in integers])
