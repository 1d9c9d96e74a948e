"""Measures when each kernel of te.GroupedLinear begins and ends, while the host is far ahead: grouped_on_gpu.py OUT."""

import contextlib, json, sys, tempfile, torch, transformer_engine.pytorch as te
from transformer_engine.common import recipe as R
from torch.profiler import profile, ProfilerActivity

bf, dev, out = torch.bfloat16, "cuda", []


def skew(t, e):
    import random

    g = random.Random(t * 7 + e)
    p = [g.lognormvariate(0, 0.7) for _ in range(e)]
    s = [int(t * x / sum(p)) // 16 * 16 for x in p]
    s[-1] += t - sum(s)
    return s


for sizes, n, k in [
    ([t // e] * e if even else skew(t, e), n, k)
    for t, e in ((4096, 8), (8192, 8), (16384, 8), (65536, 8), (32768, 32), (16384, 64))
    for even in (1, 0)
    for n, k in ((4096, 2048), (2048, 1408), (7168, 2048), (1024, 1024))
]:
    for rec in ("bf16", "current", "block"):
        try:
            l = te.GroupedLinear(len(sizes), k, n, bias=False, params_dtype=bf, device=dev)
            x, g = (
                torch.randn(sum(sizes), k, device=dev, dtype=bf, requires_grad=True),
                torch.randn(sum(sizes), n, device=dev, dtype=bf),
            )
            r = dict(current=R.Float8CurrentScaling, block=R.Float8BlockScaling)[rec]() if rec != "bf16" else None

            def f():
                torch.cuda._sleep(60_000_000)
                with te.autocast(enabled=True, recipe=r) if r else contextlib.nullcontext():
                    y = l(x, sizes)
                torch.cuda._sleep(60_000_000)
                y.backward(g)
                for p in l.parameters():
                    p.grad = None
                x.grad = None

            f()
            f()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                f()
                torch.cuda.synchronize()
            path = tempfile.mktemp(suffix=".json")
            p.export_chrome_trace(path)
            ev = sorted(
                (
                    e
                    for e in json.load(open(path))["traceEvents"]
                    if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
                ),
                key=lambda e: e["ts"],
            )
            out.append(
                dict(
                    sizes=sizes,
                    n=n,
                    k=k,
                    rec=rec,
                    events=[
                        [
                            e["name"][:90],
                            round(1000 * (e["ts"] - ev[0]["ts"])),
                            round(1000 * e["dur"]),
                            e["args"].get("stream"),
                        ]
                        for e in ev
                    ],
                )
            )
        except Exception as e:
            print("FAILED", len(sizes), n, k, rec, repr(e)[:200], flush=True)
json.dump(out, open(sys.argv[1], "w"))
print("UNEVEN DONE", len(out))
