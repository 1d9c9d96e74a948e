"""python cpu_jobs.py OUT THREADS [JOB ...]: steps of jobs on one GPU whose CPU works on tensors. Adds a line for each job to OUT."""

import copy
import gc
import json
import os
import sys
import time

threads = int(sys.argv[2])
if threads:
    os.environ["OMP_NUM_THREADS"] = str(threads)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from train_jobs import SIZES, Llama

dev, bf, JOBS = torch.device("cuda", 0), torch.bfloat16, {}
SMALL = bool(os.environ.get("SMALL"))


def job(f):
    JOBS[f.__name__] = f
    return f


def llama(layers, t):
    z = SIZES["1b"]
    m = Llama(z["d"], z["h"], z["kv"], z["f"], 1 if SMALL else layers, 32000, t).to(dev)
    return m, torch.randint(0, 32000, (2, t), device=dev)


def loss_of(m, x):
    return F.cross_entropy(m(x).float().flatten(0, 1), x.flatten())


def fsdp(opt, layers=8, t=1024):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    m, x = llama(layers, t)
    k = dict(mp_policy=MixedPrecisionPolicy(bf, torch.float32), offload_policy=CPUOffloadPolicy())
    for b in m.layers:
        fully_shard(b, **k)
    fully_shard(m, **k)
    o = opt(m.parameters())

    def step():
        loss_of(m, x).backward()
        o.step()
        o.zero_grad()

    return step


@job
def fsdp_offload_sgd():
    return fsdp(lambda p: torch.optim.SGD(p, 1e-3))


@job
def fsdp_offload_adamw():
    return fsdp(lambda p: torch.optim.AdamW(p, 1e-4), 4)


@job
def fsdp_offload_fused_adamw():
    return fsdp(lambda p: torch.optim.AdamW(p, 1e-4, fused=True), 4)


@job
def fsdp_offload_foreach_adamw():
    return fsdp(lambda p: torch.optim.AdamW(p, 1e-4, foreach=True), 4)


@job
def master_on_cpu():
    """A model in bf16 on the GPU; its weights in f32 and fused Adam on the CPU."""
    m, x = llama(4, 1024)
    m.to(bf)
    masters = [nn.Parameter(p.detach().float().cpu()) for p in m.parameters()]
    o = torch.optim.Adam(masters, 1e-4, fused=True)

    def step():
        loss_of(m, x).backward()
        for p, q in zip(m.parameters(), masters):
            q.grad = p.grad.cpu().float()
            p.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        o.step()
        with torch.no_grad():
            for p, q in zip(m.parameters(), masters):
                p.copy_(q.to(bf))

    return step


@job
def average_on_cpu():
    m, x = llama(4, 1024)
    o = torch.optim.AdamW(m.parameters(), 1e-4, fused=True)
    ema = [p.detach().cpu() for p in m.parameters()]

    def step():
        loss_of(m, x).backward()
        o.step()
        o.zero_grad()
        with torch.no_grad():
            for e, p in zip(ema, m.parameters()):
                e.lerp_(p.detach().cpu(), 1e-3)

    return step


@job
def images_on_cpu():
    """Images of bytes become floats on the CPU: flipped, normalised, cropped."""
    m = nn.Sequential(
        *[l for i in range(4) for l in (nn.Conv2d(3 if i == 0 else 64, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU())],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 1000),
    ).to(dev)
    o = torch.optim.SGD(m.parameters(), 0.1)
    raw = torch.randint(0, 255, (8 if SMALL else 64, 3, 256, 256), dtype=torch.uint8)
    y = torch.randint(0, 1000, (len(raw),), device=dev)
    mean, std = torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.5

    def step():
        a = raw[:, :, 16:240, 16:240].float().div_(255)
        a = ((a - mean) / std).flip(-1)
        a = F.interpolate(a, size=(192, 192), mode="bilinear", antialias=False)
        F.cross_entropy(m(a.to(dev)), y).backward()
        o.step()
        o.zero_grad()

    return step


@job
def table_on_cpu():
    """Embeddings stay on the CPU, with sparse gradients; dense layers are on the GPU."""
    rows = 20_000 if SMALL else 1_000_000
    table = nn.EmbeddingBag(rows, 64, mode="sum", sparse=True)
    m = nn.Sequential(nn.Linear(26 * 64, 512), nn.ReLU(), nn.Linear(512, 1)).to(dev)
    o, q = torch.optim.SGD(m.parameters(), 0.1), torch.optim.SGD(table.parameters(), 0.1)
    i = torch.randint(0, rows, (4096 * 26, 4))
    y = torch.rand(4096, 1, device=dev)

    def step():
        F.mse_loss(m(table(i).view(4096, -1).to(dev)), y).backward()
        o.step()
        q.step()
        o.zero_grad()
        q.zero_grad()

    return step


@job
def scores_on_cpu():
    """Logits go to the CPU for accuracy and ranks."""
    m = nn.Linear(1024, 32000).to(dev)
    x, y = torch.randn(2048, 1024, device=dev), torch.randint(0, 32000, (2048,))

    def step():
        with torch.no_grad():
            z = m(x).cpu()
            p = z.log_softmax(-1)
            (
                p.gather(1, y[:, None]).mean(),
                (z.topk(5).indices == y[:, None]).any(1).float().mean(),
                (z > z.gather(1, y[:, None])).sum(1).float().mean(),
            )

    return step


@job
def layers_on_cpu():
    """The first layers of a model run on the CPU."""
    a = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 1024))
    b = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to(dev)
    o = torch.optim.AdamW([*a.parameters(), *b.parameters()], 1e-4)
    x = torch.randn(1024, 1024)

    def step():
        b(a(x).to(dev)).pow(2).mean().backward()
        o.step()
        o.zero_grad()

    return step


def copies():
    found = {}
    for name, pinned in (("pinned", True), ("pageable", False)):
        for n in (1 << 16, 1 << 20, 1 << 24, 1 << 28):
            h = torch.ones(n // 4).pin_memory() if pinned else torch.ones(n // 4)
            d = h.to(dev)
            for way, run in (("h2d", lambda: d.copy_(h)), ("d2h", lambda: h.copy_(d)), ("d2h_fresh", lambda: d.cpu())):
                ts = []
                for _ in range(5):
                    torch.cuda.synchronize()
                    t = time.perf_counter_ns()
                    run()
                    torch.cuda.synchronize()
                    ts.append(time.perf_counter_ns() - t)
                found[f"{name} {way} {n}"] = sorted(ts)[2]
    return found


def main():
    out, chosen = sys.argv[1], sys.argv[3:] or list(JOBS)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    lines = [dict(copies=copies(), threads=torch.get_num_threads())] if len(sys.argv) == 3 and not SMALL else []
    for name in chosen:
        torch.manual_seed(0)
        try:
            step, ts = JOBS[name](), []
            for i in range(3 if SMALL else 9):
                torch.cuda.synchronize()
                t = time.perf_counter()
                step()
                torch.cuda.synchronize()
                ts.append(time.perf_counter() - t)
            t = time.perf_counter()
            for _ in range(3):
                step()
            torch.cuda.synchronize()
            lines.append(
                dict(
                    job=name,
                    threads=torch.get_num_threads(),
                    step_s=ts[2:],
                    free_running_step_s=(time.perf_counter() - t) / 3,
                    max_alloc=torch.cuda.max_memory_allocated(),
                )
            )
        except Exception as error:
            lines.append(dict(job=name, failed=repr(error)[:300]))
        print(json.dumps(lines[-1]), flush=True)
        step = None
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with open(out, "a") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
