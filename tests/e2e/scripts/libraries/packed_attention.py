"""PyTorch's FlashAttention on sequences of known and unknown lengths, and with a window; memory-efficient attention."""

import torch

HEADS, DEPTH = 4, 64
attend, back = torch.ops.aten._flash_attention_forward, torch.ops.aten._flash_attention_backward


def operand(*shape):
    return torch.randn(*shape, HEADS, DEPTH, device="cuda", dtype=torch.bfloat16)


def both(shape, ends, longest, causal, **window):
    q, k, v = operand(*shape), operand(*shape), operand(*shape)
    packed = (ends, ends, longest, longest, 0.0, causal)
    out, sums, state, unused, _ = attend(q, k, v, *packed, False, **window)
    back(torch.empty_like(out), q, k, v, out, sums, *packed, state, unused, **window)


both((1000,), torch.tensor([0, 100, 400, 1000], dtype=torch.int32, device="cuda"), 600, True)
unknown = (torch.randn(2048, 2048, device="cuda") @ torch.randn(2048, 5, device="cuda"))[0].int()
both((1024,), unknown, 256, False)
both((2, 512), None, 512, False, window_size_left=128, window_size_right=0)
both((2, 512), None, 512, True)


def efficient(queries, keys, mask):
    q, k, v = operand(2, queries), operand(2, keys), operand(2, keys)
    out, sums, seed, offset, longest_q, longest_k = torch.ops.aten._efficient_attention_forward(
        q, k, v, None, None, None, None, None, 0.0, mask, True
    )
    torch.ops.aten._efficient_attention_backward(
        torch.empty_like(out),
        q,
        k,
        v,
        None,
        out,
        None,
        None,
        longest_q,
        longest_k,
        sums,
        0.0,
        seed,
        offset,
        mask,
        False,
    )


NONE, FROM_FIRST_KEY, TO_LAST_KEY = range(3)
efficient(512, 512, NONE)
efficient(512, 512, FROM_FIRST_KEY)
efficient(256, 512, FROM_FIRST_KEY)
efficient(256, 512, TO_LAST_KEY)
torch.cuda.synchronize()
print("PASSED")
