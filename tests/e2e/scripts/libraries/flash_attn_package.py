"""flash-attn: dense, with a window, packed; forward and backward."""

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func

ends = torch.tensor([0, 100, 400, 1000], dtype=torch.int32, device="cuda")


def operand(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


q, k, v = (operand(2, 512, 4, 64) for _ in range(3))
packed = [operand(1000, 4, 64) for _ in range(3)]
for out in (
    flash_attn_func(q, k, v, causal=True),
    flash_attn_func(q, k, v, causal=True, window_size=(128, 0)),
    flash_attn_varlen_func(*packed, ends, ends, 600, 600, causal=True),
    flash_attn_varlen_func(*packed, ends, ends, 600, 600),
):
    out.backward(torch.empty_like(out))
assert ends.tolist() == [0, 100, 400, 1000]
print("PASSED")
