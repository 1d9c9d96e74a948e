"""python cpu_on_host.py OUT: how long PyTorch's operators on CPU tensors take, by bytes, threads and processes at once.

Adds lines to OUT. Each line is one operator at one size: the median and the least nanoseconds of its calls.
"""

import json
import math
import multiprocessing as mp
import os
import sys
import time

BF, F = "bfloat16", "float32"


def operators(torch, n, full):
    """Yields (name, make); make() returns a function to time. n: elements of a large tensor."""
    base = torch.rand(n)

    def r(*shape):
        count = math.prod(shape)
        return (base[:count] if count <= n else torch.rand(count)).clone().view(shape)

    def in_place(f, *dtypes):
        def make():
            ts = [r(n).add_(0.5).to(getattr(torch, d)) for d in dtypes]
            return lambda: f(*ts)

        return make

    yield "copy_", in_place(lambda a, b: a.copy_(b), F, F)
    yield "add_", in_place(lambda a, b: a.add_(b, alpha=-1e-3), F, F)
    yield "add_bf16", in_place(lambda a, b: a.add_(b, alpha=-1e-3), BF, BF)
    yield "mul_scalar", in_place(lambda a: a.mul_(0.999), F)
    yield "cast_to_bf16", in_place(lambda a, b: a.copy_(b), BF, F)
    yield "cast_to_f32", in_place(lambda a, b: a.copy_(b), F, BF)
    yield "fresh_add", in_place(lambda a, b: a + b, F, F)
    yield "fresh_float", in_place(lambda a: a.float(), BF)
    yield "fresh_clone", in_place(lambda a: a.clone(), F)
    yield "zero_", in_place(lambda a: a.zero_(), F)
    yield "sum", in_place(lambda a: a.sum(), F)

    def fused(which):
        def make():
            ts = [[r(n)] for _ in range(4)]
            step = [torch.ones(())]
            if which == "adamw":
                k = dict(amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-4, weight_decay=0.01, eps=1e-8, maximize=False)
                return lambda: torch._fused_adamw_(*ts, [], step, **k)
            k = dict(weight_decay=0.0, momentum=0.9, lr=1e-4, dampening=0.0, nesterov=False, maximize=False)
            return lambda: torch._fused_sgd_(ts[0], ts[1], ts[2], is_first_step=False, **k)

        return make

    yield "fused_adamw", fused("adamw")
    d = max(16, int(math.isqrt(n)) // 2)  # n elements: 4 d x d

    def mm(dtype, op=None):
        def make():
            a, b = (r(d, d).to(getattr(torch, dtype)) for _ in range(2))
            o = torch.empty_like(a)
            return lambda: torch.mm(a, b, out=o)

        return make

    if n <= 1 << 24:
        yield "mm_f32", mm(F)
        yield "mm_bf16", mm(BF)
    if not full or n > 1 << 24:
        return
    yield "fused_sgd", fused("sgd")
    yield "addcmul_", in_place(lambda a, b, c: a.addcmul_(b, c, value=0.1), F, F, F)
    yield "addcdiv_", in_place(lambda a, b, c: a.addcdiv_(b, c, value=0.1), F, F, F)
    yield "lerp_", in_place(lambda a, b: a.lerp_(b, 0.1), F, F)
    yield "sqrt", in_place(lambda a, b: torch.sqrt(a, out=b), F, F)
    yield "exp", in_place(lambda a, b: torch.exp(a, out=b), F, F)
    yield "log", in_place(lambda a, b: torch.log(a, out=b), F, F)
    yield "tanh", in_place(lambda a, b: torch.tanh(a, out=b), F, F)
    yield "sigmoid", in_place(lambda a, b: torch.sigmoid(a, out=b), F, F)
    yield "pow", in_place(lambda a, b: torch.pow(a, 1.5, out=b), F, F)
    yield "exp_bf16", in_place(lambda a, b: torch.exp(a, out=b), BF, BF)
    yield "gelu", in_place(lambda a: torch.nn.functional.gelu(a), F)
    yield "clamp_", in_place(lambda a: a.clamp_(0, 1), F)
    yield "where", in_place(lambda a, b, c: torch.where(a > 0.9, b, c), F, F, F)
    yield "gt", in_place(lambda a: a > 0.9, F)
    yield "isfinite_all", in_place(lambda a: torch.isfinite(a).all(), F)
    yield "norm", in_place(lambda a: torch.linalg.vector_norm(a), F)
    yield "norm_bf16", in_place(lambda a: torch.linalg.vector_norm(a), BF)
    yield "max", in_place(lambda a: a.max(), F)
    yield "mean_rows", in_place(lambda a: a.view(-1, 1024).mean(1), F)
    yield "sum_columns", in_place(lambda a: a.view(-1, 1024).sum(0), F)
    yield "argmax_rows", in_place(lambda a: a.view(-1, 1024).argmax(1), F)
    yield "cumsum", in_place(lambda a: a.cumsum(0), F)
    yield "softmax", in_place(lambda a: a.view(-1, 1024).softmax(1), F)
    yield "log_softmax", in_place(lambda a: a.view(-1, 1024).log_softmax(1), F)
    yield "layer_norm", in_place(lambda a: torch.nn.functional.layer_norm(a.view(-1, 1024), [1024]), F)
    yield "transpose", in_place(lambda a, b: b.view(1024, -1).copy_(a.view(-1, 1024).t()), F, F)
    yield "cat", in_place(lambda a, b: torch.cat([a, b]), F, F)
    yield "stack_8", in_place(lambda a: torch.stack(a.view(8, -1).unbind(0)), F)
    yield "uint8_to_f32", lambda: (lambda a: lambda: a.float())(torch.randint(0, 255, (n,), dtype=torch.uint8))
    yield "int64_add_", lambda: (lambda a: lambda: a.add_(1))(torch.randint(0, 255, (n,)))
    yield "f64_add_", in_place(lambda a, b: a.add_(b), "float64", "float64")
    yield "foreach_add_16", in_place(lambda a, b: torch._foreach_add_(list(a.view(16, -1)), list(b.view(16, -1))), F, F)
    if n <= 1 << 24:
        yield "normal_", in_place(lambda a: a.normal_(), F)
        yield "uniform_", in_place(lambda a: a.uniform_(), F)
        yield "bernoulli_", in_place(lambda a: a.bernoulli_(0.5), F)
        yield "exponential_", in_place(lambda a: a.exponential_(), F)
        yield "randint", lambda: lambda: torch.randint(0, 50000, (n,))
        yield "randperm", lambda: lambda: torch.randperm(n)
        yield "sort", in_place(lambda a: a.sort(), F)
        yield "argsort_int64", lambda: (lambda a: lambda: a.argsort(stable=True))(torch.randint(0, 64, (n,)))
        yield "sort_rows", in_place(lambda a: a.view(-1, 1024).sort(1), F)
        yield "topk_rows_8", in_place(lambda a: a.view(-1, 1024).topk(8, 1), F)
        yield "topk_8", in_place(lambda a: a.topk(8), F)
        yield "unique", lambda: (lambda a: lambda: a.unique())(torch.randint(0, 50000, (n,)))
        yield "bincount", lambda: (lambda a: lambda: a.bincount(minlength=64))(torch.randint(0, 64, (n,)))
        yield "nonzero", in_place(lambda a: (a > 0.9).nonzero(), F)
        yield "masked_select", in_place(lambda a: a[a > 0.9], F)
        index = lambda: torch.randint(0, max(1, n // 1024), (max(1, n // 1024),))
        yield "index_select_rows", lambda: (lambda a, i: lambda: a.view(-1, 1024)[i])(r(n), index())
        yield (
            "embedding",
            lambda: (lambda a, i: lambda: torch.nn.functional.embedding(i, a.view(-1, 1024)))(r(n), index()),
        )
        yield "gather", lambda: (lambda a, i: lambda: a.gather(0, i))(r(n), torch.randint(0, n, (n,)))
        yield (
            "index_add_rows",
            lambda: (lambda a, i: lambda: torch.zeros(n).view(-1, 1024).index_add_(0, i, a.view(-1, 1024)))(
                r(n), index()
            ),
        )
        yield (
            "scatter_add",
            lambda: (lambda a, i: lambda: torch.zeros(n).scatter_add_(0, i, a))(r(n), torch.randint(0, n, (n,))),
        )
        yield "mm_f64", mm("float64")
        yield (
            "linear_f32",
            lambda: (lambda a, w, b: lambda: torch.nn.functional.linear(a, w, b))(r(d, d), r(d, d), r(d)),
        )
        yield "bmm", lambda: (lambda a: lambda: a @ a)(r(max(1, n // 4096), 64, 64))
        yield "mv", lambda: (lambda a, b: lambda: a @ b)(r(d, d), r(d))
        c = max(1, n // (3 * 64 * 64))
        yield (
            "conv2d",
            lambda: (lambda a, w: lambda: torch.nn.functional.conv2d(a, w, padding=1))(
                r(min(c, 64), 3, 64, 64), r(16, 3, 3, 3)
            ),
        )
        yield (
            "interpolate",
            lambda: (lambda a: lambda: torch.nn.functional.interpolate(a, size=(96, 96), mode="bilinear"))(
                r(min(c, 256), 3, 64, 64)
            ),
        )
        yield (
            "sdpa",
            lambda: (lambda q: lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))(
                r(1, max(1, n // 65536), 256, 64)
            ),
        )
        yield "svd_64", lambda: (lambda a: lambda: torch.linalg.svd(a))(r(64, 64))
        yield "cholesky", lambda: (lambda a: lambda: torch.linalg.cholesky(a))(torch.eye(d) * 2)
        yield "fft", in_place(lambda a: torch.fft.rfft(a.view(-1, 1024)), F)
        yield "pin_memory", in_place(lambda a: a.pin_memory(), F) if torch.cuda.is_available() else lambda: lambda: None
        yield "numpy_copy", in_place(lambda a: a.numpy().copy(), F)
        yield "tolist", in_place(lambda a: a[: 1 << 20].tolist(), F)


def measure(rank, procs, threads, sizes, full, budget, barrier, out):
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)
    rows = []
    for n in sizes:
        for name, make in operators(torch, n, full):
            try:
                torch.manual_seed(0)
                run = make()
                run()
            except Exception as error:
                run, problem = None, repr(error)[:100]
            barrier.wait()
            if run is None:
                if rank == 0:
                    rows.append(dict(op=name, n=n, failed=problem))
                continue
            ts, end = [], time.perf_counter() + budget
            while len(ts) < 2 or (time.perf_counter() < end and len(ts) < 200):
                t = time.perf_counter_ns()
                run()
                ts.append(time.perf_counter_ns() - t)
            barrier.wait()
            ts.sort()
            if rank == 0:
                rows.append(
                    dict(op=name, n=n, procs=procs, threads=threads, ns=ts[len(ts) // 2], least=ts[0], calls=len(ts))
                )
            del run
    if rank == 0:
        with open(out, "a") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")


def text(path):
    try:
        return open(path).read().strip()
    except OSError as error:
        return repr(error)


def main(out, most_log2=26, budget=0.05):
    import torch

    cpu = {
        line.split(":")[0].strip(): line.split(":")[1].strip()
        for line in text("/proc/cpuinfo").splitlines()
        if ":" in line
    }
    about = {k: cpu.get(k) for k in ("model name", "cpu MHz", "cache size", "flags")}
    about |= dict(
        cpus=os.cpu_count(),
        affinity=len(os.sched_getaffinity(0)),
        torch=torch.__version__,
        parallel=torch.__config__.parallel_info(),
        capability=torch.backends.cpu.get_cpu_capability(),
        thp=text("/sys/kernel/mm/transparent_hugepage/enabled"),
        libc=os.confstr("CS_GNU_LIBC_VERSION"),
        nodes=os.popen("ls -d /sys/devices/system/node/node*; lscpu | head -40").read(),
        mem=text("/proc/meminfo")[:200],
        default_threads=torch.get_num_threads(),
    )
    open(out, "a").write(json.dumps(dict(about=about)) + "\n")
    c = mp.get_context("spawn")
    some = [12, 16, 18, 20, 22, 24, 26]
    plans = [(1, 1, [12, 16, 20, 24, 26], True), (1, 8, [16, 20, 24, 26], True), (8, 1, [16, 20, 24], True)]
    plans += [
        (p, t, [16, 20, 24, 26], False)
        for p, t in ((1, 2), (1, 4), (1, 16), (2, 1), (4, 1), (16, 1), (2, 8), (4, 4), (2, 4))
    ]
    for procs, threads, sizes, full in plans:
        if procs * threads > os.cpu_count():
            continue
        t = time.time()
        barrier = c.Barrier(procs)
        ps = [
            c.Process(
                target=measure,
                args=(r, procs, threads, [1 << s for s in sizes if s <= most_log2], full, budget, barrier, out),
            )
            for r in range(procs)
        ]
        [p.start() for p in ps]
        [p.join(240) for p in ps]
        [p.kill() for p in ps if p.is_alive()]
        print(procs, threads, f"{time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *(int(a) for a in sys.argv[2:3]), *(float(a) for a in sys.argv[3:4]))
