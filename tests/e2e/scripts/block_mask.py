"""FlexAttention with a causal window: the mask's counts of blocks are known, though it has 67 million elements,
and decide what its kernels do. Argument: `compiled` if the mask is to be made by compiled code."""

import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

LENGTH, WINDOW = 8192, 512
make_mask = torch.compile(create_block_mask) if sys.argv[1:] == ["compiled"] else create_block_mask
mask = make_mask(lambda b, h, q, k: (q >= k) & (q - k < WINDOW), None, None, LENGTH, LENGTH, device="cuda")
q, k, v = (torch.randn(1, 2, LENGTH, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
attention = torch.compile(flex_attention)
for _ in range(3):
    attention(q, k, v, block_mask=mask)
    torch.cuda.nvtx.mark("phantora.step")
torch.cuda.synchronize()
print("PASSED")
