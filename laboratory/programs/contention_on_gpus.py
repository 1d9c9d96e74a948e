"""Measures what collectives and kernels take of each other on GPUs of one server.
torchrun --nproc-per-node N contention_on_gpus.py PART OUT.jsonl SECONDS

PART: `matrix`: kernels in a row beside collectives in a row, and (`gaps`) collectives that arrive while kernels run;
`channels...`: fewer of these, with the channels that NCCL's variables say; `power`: for a second each; `spread`: the
same work on every GPU, alone: clock, watts and time of each. Kernels' times are those of torch.profiler."""

import json, os, sys, threading, time
from datetime import timedelta
from statistics import median

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

PART, OUT, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
T0 = time.time()
RANK, WORLD, LOCAL = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
dev = torch.device("cuda", LOCAL)
torch.cuda.set_device(dev)
dist.init_process_group("nccl", timeout=timedelta(seconds=60))
cpu = dist.new_group(backend="gloo")
torch.manual_seed(RANK)
MAIN, SIDE, HIGH = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
bf, f32 = torch.bfloat16, torch.float32
MIB = 1 << 20
ENV = {k: v for k, v in os.environ.items() if k.startswith("NCCL_")}


def put(**row):
    if RANK == 0:
        row = {"part": PART, "world": WORLD} | row
        with open(OUT, "a") as f:
            f.write(json.dumps(row) + "\n")


def together():
    """Returns, when all ranks are here, whether there is time left."""
    left = torch.tensor([1 if time.time() - T0 < SECONDS else 0])
    dist.broadcast(left, 0, group=cpu)
    return bool(left.item())


# ---- kernels ------------------------------------------------------------------------------------------------------
def randn(*shape, dtype=bf):
    return torch.randn(*shape, device=dev, dtype=dtype)


def gemm(m, n, k, ta=False, tb=True):
    a = randn(k, m).t() if ta else randn(m, k)
    b = randn(n, k).t() if tb else randn(k, n)
    out = torch.empty(m, n, device=dev, dtype=bf)
    return lambda: torch.mm(a, b, out=out)


def make_kernels(names):
    made = {}
    for name in names:
        w = name.split("_")
        if w[0] == "gemm":
            made[name] = gemm(*(int(x) for x in w[1].split("x")), ta="ta" in w, tb="tb" in w or "ta" not in w)
        elif w[0] == "add":
            n, dt = int(w[2]) * MIB, f32 if w[1] == "f32" else bf
            a, b, c = randn(n, dtype=dt), randn(n, dtype=dt), torch.empty(n, device=dev, dtype=dt)
            made[name] = lambda a=a, b=b, c=c: torch.add(a, b, out=c)
        elif w[0] == "gelu":
            a = randn(int(w[1]) * MIB)
            made[name] = lambda a=a: F.gelu(a)
        elif w[0] == "silumul":
            a, b = randn(int(w[1]) * MIB), randn(int(w[1]) * MIB)
            made[name] = lambda a=a, b=b: torch.ops.aten.silu_backward(a, b)
        elif w[0] == "layernorm":
            r, d = (int(x) for x in w[1].split("x"))
            a, g, b = randn(r, d), randn(d), randn(d)
            made[name] = lambda a=a, g=g, b=b, d=d: F.layer_norm(a, (d,), g, b)
        elif w[0] == "sum":
            r, d = (int(x) for x in w[1].split("x"))
            a = randn(r, d)
            made[name] = lambda a=a: a.sum(0)
        elif w[0] == "softmax":
            r, d = (int(x) for x in w[1].split("x"))
            a = randn(r, d, dtype=f32)
            made[name] = lambda a=a: torch.log_softmax(a, -1)
        elif w[0] == "sdpa":
            b, h, t, d = (int(x) for x in w[1].split("x"))
            q, k, v = (randn(b, h, t, d).requires_grad_("bwd" in w) for _ in range(3))
            if "bwd" in w:
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                g = torch.randn_like(o)
                made[name] = lambda o=o, q=q, k=k, v=v, g=g: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)
            else:
                made[name] = lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif w[0] == "copy":
            a = randn(int(w[1]) * MIB)
            c = torch.empty_like(a)
            made[name] = lambda a=a, c=c: c.copy_(a)
        elif w[0] == "cast":
            a = randn(int(w[1]) * MIB, dtype=f32)
            made[name] = lambda a=a: a.to(bf)
        elif w[0] == "adam":
            p, g, m, v = ([randn(4 * MIB, dtype=f32) for _ in range(8)] for _ in range(4))
            v = [x.abs_() for x in v]
            s = [torch.ones((), device=dev) for _ in range(8)]
            made[name] = lambda p=p, g=g, m=m, v=v, s=s: torch._fused_adamw_(
                p,
                g,
                m,
                v,
                [],
                s,
                lr=1e-4,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.01,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
        elif w[0] == "foreachmul":
            p = [randn(4 * MIB, dtype=f32) for _ in range(8)]
            made[name] = lambda p=p: torch._foreach_mul_(p, 0.999)
        elif w[0] == "foreachaddcmul":
            p, g = [randn(4 * MIB, dtype=f32) for _ in range(8)], [randn(4 * MIB, dtype=f32) for _ in range(8)]
            made[name] = lambda p=p, g=g: torch._foreach_addcmul_(p, g, g, 1e-6)
        elif w[0] == "cat":
            parts = [randn(MIB * k) for k in (16, 4, 4, 16, 28)]
            made[name] = lambda parts=parts: torch.cat(parts)
    return made


# ---- collectives --------------------------------------------------------------------------------------------------
def make_op(kind, mib, wait=True):
    """wait: on a stream of the process group; else on the current stream, as a call that is not asynchronous runs."""
    op, dt = kind.split(":")
    dt = f32 if dt == "f32" else bf
    n = mib * MIB // dt.itemsize
    n -= n % WORLD
    x = torch.zeros(n, device=dev, dtype=dt)
    if op == "all_gather":
        y = torch.zeros(n // WORLD, device=dev, dtype=dt)
        return lambda: dist.all_gather_into_tensor(x, y, async_op=wait)
    if op == "reduce_scatter":
        y = torch.zeros(n // WORLD, device=dev, dtype=dt)
        return lambda: dist.reduce_scatter_tensor(y, x, async_op=wait)
    if op == "all_reduce":
        return lambda: dist.all_reduce(x, async_op=wait)
    if op == "broadcast":
        return lambda: dist.broadcast(x, 0, async_op=True)
    if op == "all_to_all":
        y = torch.empty_like(x)
        return lambda: dist.all_to_all_single(y, x, async_op=True)
    if op == "send_recv":
        y = torch.empty_like(x)
        nxt, prv = (RANK + 1) % WORLD, (RANK - 1) % WORLD
        return lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, nxt), dist.P2POp(dist.irecv, y, prv)])
    raise ValueError(kind)


def traced(fn):
    """Returns GPU events of what fn launches: (name, start us, end us, stream)."""
    torch.cuda.synchronize()
    dist.barrier(group=cpu)
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        fn()
        torch.cuda.synchronize()
    path = f"/tmp/measure{RANK}.json"
    prof.export_chrome_trace(path)
    with open(path) as f:
        document = json.load(f)
    found = []
    for e in document["traceEvents"]:
        if e.get("cat") in ("kernel", "gpu_memcpy") and "spin_kernel" not in e["name"]:
            found.append((e["name"], e["ts"], e["ts"] + e["dur"], e["args"].get("stream")))
    found.sort(key=lambda e: e[1])
    return found


def ahead(us=3000.0):
    """Keeps both streams until the host is ahead."""
    cycles = int(us * 1700)
    with torch.cuda.stream(MAIN):
        torch.cuda._sleep(cycles)


def overlap(a, b, intervals):
    return sum(max(0.0, min(b, y) - max(a, x)) for x, y in intervals) / max(b - a, 1e-9)


def alone_op(op, times=8):
    def go():
        ahead(800.0)
        with torch.cuda.stream(SIDE):
            SIDE.wait_stream(MAIN)
            for _ in range(times):
                op()

    got = [e for e in traced(go) if "nccl" in e[0]]
    return [e[2] - e[1] for e in got[1:]]


def alone_kernel(run, times=12):
    def go():
        ahead(800.0)
        with torch.cuda.stream(MAIN):
            for _ in range(times):
                run()

    got = [e for e in traced(go) if "nccl" not in e[0]]
    if not got:  # a copy is no kernel
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(MAIN):
            a.record()
            for _ in range(times):
                run()
            b.record()
        torch.cuda.synchronize()
        return a.elapsed_time(b) / times * 1e3, got
    return (max(e[2] for e in got) - got[0][1]) / times, got


def beside(kind, mib, op, t_c, kname, run, t_k, mode="chain", side=None, tag=None):
    """Kernels in a row; after some alone, collectives beside them: in a row, or each after its share of kernels."""
    side = side or SIDE
    want = min(max(4 * t_c, 5 * t_k, 1200.0), 9000.0)
    n_c = max(2, min(40, round(want / t_c)))
    n_lead = max(2, min(40, round(400.0 / t_k)))
    n_k = max(4, min(500, round(1.9 * max(want, n_c * t_c) / t_k)))
    step = max(1, round(2.2 * t_c / t_k)) if mode == "gaps" else 0
    if mode == "gaps":
        n_c = max(2, min(6, 400 // step))
        n_k = step * n_c + max(2, step)

    def go():
        ahead(600.0 + 9.0 * n_k + 60.0 * n_c)
        with torch.cuda.stream(MAIN):
            for _ in range(n_lead):
                run()
            begun = torch.cuda.Event()
            begun.record()
            if mode == "chain":
                with torch.cuda.stream(side):
                    side.wait_event(begun)
                    for _ in range(n_c):
                        op()
                for _ in range(n_k):
                    run()
            else:
                for i in range(n_k):
                    if i % step == 0 and i // step < n_c:
                        ev = torch.cuda.Event()
                        ev.record()
                        with torch.cuda.stream(side):
                            side.wait_event(ev)
                            op()
                    run()

    got = traced(go)
    nccl = [(e[1], e[2]) for e in got if "nccl" in e[0]]
    kern = [e for e in got if "nccl" not in e[0]]
    if not nccl or not kern:
        put(kind=kind, mib=mib, kernel=kname, error="no events")
        return
    # memory-bound helper kernels of one call are told apart by name
    names = {}
    for e in kern:
        names.setdefault(e[0], []).append(e)
    res = {}
    for name, es in names.items():
        alone = [e[2] - e[1] for e in es if e[2] < nccl[0][0] or e[1] > nccl[-1][1]]
        near = [e[2] - e[1] for e in es if overlap(e[1], e[2], nccl) > 0.985]
        res[name[:70]] = {
            "alone": round(median(alone), 2) if alone else None,
            "n_alone": len(alone),
            "beside": round(median(near), 2) if near else None,
            "n": len(near),
            "low": round(min(near), 2) if near else None,
            "high": round(max(near), 2) if near else None,
            "mean": round(sum(near) / len(near), 2) if near else None,
        }
    spans = [(e[1], e[2]) for e in kern]
    spans.sort()
    merged = []
    for a, b in spans:  # kernels in one queue: gaps of a few us belong to it
        if merged and a - merged[-1][1] < 5.0:
            merged[-1][1] = max(b, merged[-1][1])
        else:
            merged.append([a, b])
    colls = [(b - a) for a, b in nccl[1:] if overlap(a, b, merged) > 0.95]
    free = [(b - a) for a, b in nccl[1:] if overlap(a, b, merged) < 0.01]
    row = dict(
        kind=kind,
        mib=mib,
        kernel=kname,
        mode=mode,
        stream=tag,
        between=[round(nccl[i][0] - nccl[i - 1][1], 1) for i in range(1, min(len(nccl), 7))],
        coll_alone=round(t_c, 1),
        coll_alone_here=round(median(free), 1) if free else None,
        coll_beside=round(median(colls), 1) if colls else None,
        coll_mean=round(sum(colls) / len(colls), 1) if colls else None,
        n=len(colls),
        colls=[round(c, 1) for c in colls[:8]],
        first=round(nccl[0][1] - nccl[0][0], 1),
        kernels=res,
    )
    if mode == "gaps":
        # from the end of the kernel before to NCCL's start; the kernel that began meanwhile
        waits = []
        for a, b in nccl:
            before = [e[2] for e in kern if e[2] <= a + 0.5]
            inside = [e for e in kern if e[1] < b and e[2] > a]
            waits.append(
                [
                    round(a - max(before), 1) if before else None,
                    round(b - a, 1),
                    [round(e[2] - e[1], 1) for e in inside][:6],
                ]
            )
        row["waits"] = waits
    put(**row)


# ---- long: power and clock ----------------------------------------------------------------------------------------
def sustained(kernels, cases, seconds=1.0):
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(LOCAL)
    except Exception as error:
        handle = None
        put(error=f"pynvml: {error}")
    for kname, kind, mib in cases:
        if not together():
            return
        run, op = kernels.get(kname), make_op(kind, mib) if kind else None
        samples, stop = [], threading.Event()

        def watch():
            while not stop.wait(0.02):
                try:
                    w = pynvml.nvmlDeviceGetFieldValues(handle, [186])[0].value.uiVal / 1e3
                    samples.append((time.time(), pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), w))
                except Exception as error:
                    samples.append((time.time(), 0, 0.0))

        if handle:
            thread = threading.Thread(target=watch, daemon=True)
            thread.start()
        torch.cuda.synchronize()
        dist.barrier(group=cpu)
        start = time.time()
        kt, ct = [], []
        first = None
        rounds = 0
        # a fixed number of rounds on all ranks: about `seconds`
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        per_k = 16 if run else 0
        with torch.cuda.stream(MAIN):
            a.record()
            for _ in range(3):
                run() if run else torch.cuda._sleep(10000)
            b.record()
        torch.cuda.synchronize()
        t_k = a.elapsed_time(b) / 3
        unit = max(t_k * per_k * 1.4, 1.0) if run else 10.0
        total = torch.tensor([max(3, int(seconds * 1e3 / unit))])
        dist.broadcast(total, 0, group=cpu)
        total = int(total.item())
        n_c = 0
        if op:
            t_c = sum(alone_op(op, 4)) / 3 / 1e3
            count = torch.tensor([max(1, round(unit / max(t_c * 1.25, 0.02)))])
            dist.broadcast(count, 0, group=cpu)
            n_c = int(count.item())
        start = time.time()
        evs = []
        for i in range(total):
            e = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            if op:
                with torch.cuda.stream(SIDE):
                    e[2].record()
                    works = [op() for _ in range(n_c)]
                    for wk in works:
                        for x in wk if isinstance(wk, list) else [wk]:
                            x.wait()
                    e[3].record()
            if run:
                with torch.cuda.stream(MAIN):
                    e[0].record()
                    for _ in range(per_k):
                        run()
                    e[1].record()
            evs.append(e)
            if i >= 2:
                for x, y in ((0, 1), (2, 3)):
                    if (run and x == 0) or (op and x == 2):
                        evs[i - 2][y].synchronize()
        torch.cuda.synchronize()
        end = time.time()
        stop.set()
        half = evs[len(evs) // 2 :]
        if run:
            kt = [e[0].elapsed_time(e[1]) / per_k * 1e3 for e in half]
            first = evs[0][0].elapsed_time(evs[0][1]) / per_k * 1e3
        if op:
            ct = [e[2].elapsed_time(e[3]) / n_c * 1e3 for e in half]
        late = [s for s in samples if s[0] > (start + end) / 2 and s[0] < end]
        own = dict(
            kernel_us=round(median(kt), 2) if kt else None,
            first_us=round(first, 2) if first else None,
            coll_us=round(median(ct), 1) if ct else None,
            mhz=round(median(s[1] for s in late)) if late else None,
            w=round(median(s[2] for s in late)) if late else None,
        )
        each = [None] * WORLD
        dist.all_gather_object(each, own, group=cpu)
        put(kernel=kname, kind=kind, mib=mib, **own, seconds=round(end - start, 2), n_c=n_c, rounds=total, each=each)


GEMMS = [
    "gemm_4096x4096x4096",
    "gemm_4096x14336x4096",
    "gemm_8192x2048x2048",
    "gemm_2048x8192x8192_ta",
    "gemm_8192x768x3072",
    "gemm_2048x1536x4096",
    "gemm_1024x1024x4096",
    "gemm_8192x8192x8192",
]
OTHERS = [
    "add_f32_64",
    "add_bf16_64",
    "add_bf16_8",
    "gelu_58",
    "gelu_8",
    "silumul_58",
    "layernorm_8192x4096",
    "layernorm_8192x768",
    "sum_8192x4096",
    "softmax_2048x50304",
    "sdpa_1x32x4096x128",
    "sdpa_1x32x4096x128_bwd",
    "sdpa_16x12x1024x64",
    "copy_128",
    "cast_64",
    "adam",
    "cat",
]
KINDS = [
    "all_gather:bf16",
    "reduce_scatter:f32",
    "all_reduce:f32",
    "all_reduce:bf16",
    "reduce_scatter:bf16",
    "broadcast:bf16",
    "send_recv:bf16",
    "all_to_all:bf16",
]


GAPS = ("all_gather:bf16", "reduce_scatter:f32", "all_reduce:f32")


def matrix(kinds, sizes, names, gaps):
    kernels = make_kernels(names)
    for k in kernels.values():
        k()
    torch.cuda.synchronize()
    for fn in kernels.values():
        alone_kernel(fn, 4)
    t_k = {}
    for name, fn in kernels.items():
        t_k[name], got = alone_kernel(fn)
        t = torch.tensor([t_k[name]])
        dist.broadcast(t, 0, group=cpu)
        t_k[name] = float(t.item())
        put(kernel=name, us=round(t_k[name], 2))
    ops = {}
    for mib in sizes:
        for kind in kinds:
            if not together():
                return
            op = ops[kind, mib] = make_op(kind, mib)
            op()
            alone_op(op, 3)
            times = alone_op(op)
            t = torch.tensor([median(times)])
            dist.broadcast(t, 0, group=cpu)
            t_c = float(t.item())
            put(kind=kind, mib=mib, us=round(t_c, 1), low=round(min(times), 1), high=round(max(times), 1), env=ENV)
            for name, fn in kernels.items():
                if not together():
                    return
                beside(kind, mib, op, t_c, name, fn, t_k[name])
                if name in gaps and kind in GAPS:
                    beside(kind, mib, op, t_c, name, fn, t_k[name], mode="gaps")
                    here = make_op(kind, mib, wait=False)
                    beside(kind, mib, here, t_c, name, fn, t_k[name], mode="gaps", tag="same")
                    beside(kind, mib, here, t_c, name, fn, t_k[name], mode="gaps", side=HIGH, tag="high")
                    if mib >= 128:
                        beside(kind, mib, here, t_c, name, fn, t_k[name], side=HIGH, tag="high")
            del ops[kind, mib]


try:
    put(
        gpu=torch.cuda.get_device_name(0),
        torch=torch.__version__,
        nccl=".".join(map(str, torch.cuda.nccl.version())),
        env=ENV,
    )
    if PART == "matrix":
        ours = ["foreachmul", "foreachaddcmul"]
        matrix(
            KINDS,
            [128, 32, 416, 8],
            GEMMS + OTHERS + ours,
            {
                "gemm_4096x4096x4096",
                "gemm_8192x8192x8192",
                "gemm_8192x2048x2048",
                "add_f32_64",
                "gelu_58",
                "layernorm_8192x4096",
                "sum_8192x4096",
                "adam",
                "foreachaddcmul",
                "sdpa_1x32x4096x128",
            },
        )
    elif PART.startswith("channels"):
        matrix(
            KINDS[:3], [128], GEMMS[:6] + ["add_f32_64", "gelu_58", "layernorm_8192x4096", "sdpa_1x32x4096x128"], set()
        )
    elif PART == "power":
        ks = make_kernels(["gemm_4096x14336x4096", "gemm_8192x2048x2048", "add_f32_64", "sdpa_1x32x4096x128"])
        g = "gemm_4096x14336x4096"
        cases = [
            (g, None, 0),
            (g, "all_gather:bf16", 128),
            (g, "reduce_scatter:f32", 128),
            (g, "all_reduce:f32", 128),
            (None, "all_gather:bf16", 128),
            (None, "reduce_scatter:f32", 128),
            (None, "all_reduce:f32", 128),
            ("gemm_8192x2048x2048", None, 0),
            ("gemm_8192x2048x2048", "all_reduce:f32", 128),
            ("add_f32_64", None, 0),
            ("add_f32_64", "all_reduce:f32", 128),
            ("sdpa_1x32x4096x128", None, 0),
            ("sdpa_1x32x4096x128", "all_gather:bf16", 128),
        ]
        sustained(ks, cases)
    elif PART == "spread":
        ks = make_kernels(
            [
                "gemm_4096x14336x4096",
                "gemm_8192x2048x2048",
                "add_f32_64",
                "sdpa_1x32x4096x128",
                "sdpa_1x32x4096x128_bwd",
                "layernorm_8192x4096",
            ]
        )
        sustained(ks, [(k, None, 0) for k in ks], 1.5)
except Exception as error:
    import traceback

    traceback.print_exc()
    put(error=repr(error)[:500])
put(done=True, seconds=round(time.time() - T0, 1))
sys.stdout.flush()
os._exit(0)
