"""Attention and a convolution over sequences of three lengths, twice each: prints the host's microseconds of each."""

import time

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def timed(f):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    f()
    return (time.perf_counter() - begin) * 1e6


def attended(n):
    q = torch.randn(2, 4, n, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = timed(lambda: F.scaled_dot_product_attention(q, q, q))
        y = F.scaled_dot_product_attention(q, q, q)
    return out, timed(lambda: y.backward(y))


def convolved(n):
    x, w = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((1, 8, n, n), (8, 8, 3, 3)))
    return timed(lambda: F.conv2d(x, w))


attended(512), convolved(512)
for n in (128, 128, 192, 192, 128):
    forward, backward = attended(n)
    print(n, round(forward), round(backward), round(convolved(n)), flush=True)
