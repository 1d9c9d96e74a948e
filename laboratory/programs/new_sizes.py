"""python new_sizes.py OUT: the host's time of the first calls of sizes that this process has not had, on a GPU. Adds a
line of JSON to OUT for each operator."""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend as B

dev = "cuda"
bf = torch.bfloat16
r = lambda *s, dtype=bf: torch.randn(*s, device=dev, dtype=dtype)


def mm(dtype, ta=False):
    w = r(2048, 4096, dtype=dtype)

    def make(m):
        x = r(2048, m, dtype=dtype).t() if ta else r(m, 2048, dtype=dtype)
        return lambda: x @ w

    return make


def addmm(m):
    x, w, b = r(m, 2048), r(4096, 2048), r(4096)
    return lambda: F.linear(x, w, b)


def bmm(m):
    x, w = r(16, m, 128), r(16, 128, 256)
    return lambda: torch.bmm(x, w)


def scaled(m):
    m = m * 16
    x = r(m, 2048).to(torch.float8_e4m3fn)
    w = r(4096, 2048).to(torch.float8_e4m3fn)
    s = torch.ones((), device=dev)
    return lambda: torch._scaled_mm(x, w.t(), s, s, out_dtype=bf)


def grad(m):
    x, g = r(m, 2048), r(m, 4096)
    return lambda: x.t() @ g


def conv(m):
    x, w = (
        r(8, 64, 32 + m % 512, 64).to(memory_format=torch.channels_last),
        r(64, 64, 3, 3).to(memory_format=torch.channels_last),
    )
    return lambda: F.conv2d(x, w, padding=1)


def sdpa(backend):
    def make(m):
        q, k, v = (r(2, 8, m, 64) for _ in range(3))

        def f():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        return f

    return make


def sdpa_bwd(m):
    q, k, v = (r(2, 8, m, 64).requires_grad_() for _ in range(3))

    def f():
        with sdpa_kernel(B.CUDNN_ATTENTION):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        o.sum().backward()

    return f


def layer_norm(m):
    x, w = r(m, 1024), r(1024)
    return lambda: F.layer_norm(x, (1024,), w, w)


CASES = dict(
    mm=mm(bf),
    mm_t=mm(bf, True),
    mm_f32=mm(torch.float32),
    mm_f16=mm(torch.float16),
    grad=grad,
    addmm=addmm,
    bmm=bmm,
    scaled=scaled,
    conv=conv,
    flash=sdpa(B.FLASH_ATTENTION),
    efficient=sdpa(B.EFFICIENT_ATTENTION),
    cudnn=sdpa(B.CUDNN_ATTENTION),
    cudnn_bwd=sdpa_bwd,
    layer_norm=layer_norm,
)
for name, make in CASES.items():
    rows = []
    for m in [int(200 + 37 * i) for i in range(40)] + [8 * (100 + i) for i in range(20)]:
        try:
            f = make(m)
        except Exception as e:
            print(name, e)
            break
        torch.cuda.synchronize()
        ts = []
        for _ in range(4):
            t = time.perf_counter()
            f()
            ts.append((time.perf_counter() - t) * 1e6)
            torch.cuda.synchronize()
        rows.append((m, *(round(x, 1) for x in ts)))
    if not rows:
        continue
    md = lambda i: sorted(x[i] for x in rows[3:])[len(rows[3:]) // 2]
    print(
        name,
        "first",
        md(1),
        "second",
        md(2),
        "third",
        md(3),
        "p90 first",
        sorted(x[1] for x in rows[3:])[int(0.9 * len(rows[3:]))],
        flush=True,
    )
    print(json.dumps(dict(case=name, rows=rows)), file=open(sys.argv[1], "a"))
