"""python short_attention.py OUT: cuDNN's attention over few tokens, by direction, and launches of recurrent networks with
the host's time of a call, on a GPU. Adds a line of JSON to OUT for each."""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import sdpa_kernel, SDPBackend as B
from torch.profiler import profile, ProfilerActivity as A

dev = "cuda"
out = open(sys.argv[1], "a")


def kernels(f, n=3):
    f()
    torch.cuda.synchronize()
    with profile(activities=[A.CUDA]) as p:
        for _ in range(n):
            f()
        torch.cuda.synchronize()
    d = {}
    for e in p.events():
        if e.device_type.name == "CUDA":
            a = d.setdefault(e.name[:60], [0, 0.0])
            a[0] += 1 / n
            a[1] += e.device_time / n
    return d


def attention(bh, h, t, d, causal):
    q, k, v = (torch.randn(bh // h, h, t, d, device=dev, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def f():
        with sdpa_kernel(B.CUDNN_ATTENTION):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        o.backward(o)
        q.grad = k.grad = v.grad = None

    ks = kernels(f)
    fw = sum(x for n, (c, x) in ks.items() if "fprop" in n or "fwd" in n)
    bw = sum(x for n, (c, x) in ks.items()) - fw
    return dict(fwd=round(fw, 1), bwd=round(bw, 1), kernels={n[:50]: round(x, 1) for n, (c, x) in ks.items()})


for causal in (False,):
    for d in (8, 32, 64, 128):
        for t in (8, 24, 40, 49, 64, 80, 100, 128, 160, 192, 256):
            bh = 16384
            try:
                r = attention(bh, 8, t, d, causal)
            except Exception as e:
                print(d, t, e)
                continue
            print(json.dumps(dict(bh=bh, h=8, t=t, d=d, causal=causal, **r)), file=out, flush=True)
            print(d, t, r["fwd"], r["bwd"], flush=True)
for d, t in ((32, 40), (64, 49), (64, 64), (64, 100)):
    for bh in (1024, 131072):
        r = attention(bh, 8, t, d, False)
        print(json.dumps(dict(bh=bh, h=8, t=t, d=d, causal=False, **r)), file=out, flush=True)
        print(bh, d, t, r["fwd"], r["bwd"], flush=True)
for mode, hid, layers, bi, steps, batch in (
    ("GRU", 256, 4, True, 200, 32),
    ("GRU", 512, 4, True, 200, 32),
    ("GRU", 768, 4, False, 120, 96),
    ("GRU", 256, 1, False, 100, 32),
    ("GRU", 128, 2, True, 100, 64),
    ("LSTM", 256, 2, True, 100, 32),
    ("LSTM", 1024, 2, False, 100, 32),
    ("GRU", 1024, 2, False, 128, 128),
    ("RNN", 256, 2, False, 100, 32),
):
    m = getattr(nn, mode)(hid, hid, layers, batch_first=False, bidirectional=bi).to(dev)
    x = torch.randn(steps, batch, hid, device=dev)

    def fwd():
        return m(x)[0]

    def both():
        m(x)[0].sum().backward()

    fwd()
    both()
    torch.cuda.synchronize()
    ts = []
    for _ in range(4):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        y = m(x)[0]
        t1 = time.perf_counter()
        torch.cuda.synchronize()
        s = y.sum()
        torch.cuda.synchronize()
        t2 = time.perf_counter()
        s.backward()
        t3 = time.perf_counter()
        ts.append((t1 - t0, t3 - t2))
    kf, kb = kernels(fwd, 2), kernels(both, 2)
    nf = sum(c for c, _ in kf.values())
    nb = sum(c for c, _ in kb.values()) - nf
    r = dict(
        mode=mode,
        hidden=hid,
        layers=layers,
        bi=bi,
        steps=steps,
        batch=batch,
        fwd_launches=nf,
        bwd_launches=nb,
        fwd_host_us=round(min(a for a, _ in ts) * 1e6),
        bwd_host_us=round(min(b for _, b in ts) * 1e6),
        fwd={n[:40]: c for n, (c, _) in sorted(kf.items(), key=lambda z: -z[1][0])[:4]},
        both={n[:40]: c for n, (c, _) in sorted(kb.items(), key=lambda z: -z[1][0])[:6]},
    )
    print(json.dumps(r), file=out, flush=True)
    print(r, flush=True)
