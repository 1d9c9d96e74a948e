"""Ground-truth training jobs: plain PyTorch, run by torchrun on real GPUs.

One file, no dependency but torch. Each named job builds a model, trains a few steps and prints one JSON
line: per-step wall seconds (rank 0, device synchronised), peak memory, and what was run.
    torchrun --nproc-per-node 4 train_jobs.py --jobs llama8b_fsdp4_b1_s4096,... [--out FILE] [--trace DIR]
"""

import argparse, contextlib, gc, json, os, sys, time
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class RMSNorm(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.weight = nn.Parameter(torch.ones(d))

    def forward(s, x):
        return F.rms_norm(x, (x.shape[-1],), s.weight, 1e-5)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(s, d, h, kv):
        super().__init__()
        s.hd = d // h
        s.wq = nn.Linear(d, h * s.hd, bias=False)
        s.wk = nn.Linear(d, kv * s.hd, bias=False)
        s.wv = nn.Linear(d, kv * s.hd, bias=False)
        s.wo = nn.Linear(h * s.hd, d, bias=False)

    def forward(s, x, cos, sin):
        B, T, _ = x.shape
        q = s.wq(x).view(B, T, -1, s.hd)
        k = s.wk(x).view(B, T, -1, s.hd)
        v = s.wv(x).view(B, T, -1, s.hd)
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        r = q.shape[2] // k.shape[2]
        k, v = k.repeat_interleave(r, 2), v.repeat_interleave(r, 2)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return s.wo(o.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(s, d, f):
        super().__init__()
        s.w1 = nn.Linear(d, f, bias=False)
        s.w2 = nn.Linear(f, d, bias=False)
        s.w3 = nn.Linear(d, f, bias=False)

    def forward(s, x):
        return s.w2(F.silu(s.w1(x)) * s.w3(x))


class Block(nn.Module):
    def __init__(s, d, h, kv, f):
        super().__init__()
        s.n1 = RMSNorm(d)
        s.attn = Attention(d, h, kv)
        s.n2 = RMSNorm(d)
        s.mlp = MLP(d, f)

    def forward(s, x, cos, sin):
        x = x + s.attn(s.n1(x), cos, sin)
        return x + s.mlp(s.n2(x))


class Llama(nn.Module):
    def __init__(s, d, h, kv, f, L, V, T, ac=False, first=True, last=True):
        super().__init__()
        s.ac = ac
        s.emb = nn.Embedding(V, d) if first else None
        s.layers = nn.ModuleList(Block(d, h, kv, f) for _ in range(L))
        s.norm = RMSNorm(d) if last else None
        s.head = nn.Linear(d, V, bias=False) if last else None
        fr = 1.0 / 500000 ** (torch.arange(0, d // h // 2).float() / (d // h // 2))
        ang = torch.arange(T).float()[:, None] * fr
        s.register_buffer("cos", ang.cos()[None, :, None], persistent=False)
        s.register_buffer("sin", ang.sin()[None, :, None], persistent=False)

    def forward(s, x):
        T = x.shape[1]
        if s.emb is not None:
            x = s.emb(x)
        cos, sin = s.cos[:, :T].to(x.dtype), s.sin[:, :T].to(x.dtype)
        for b in s.layers:
            x = torch.utils.checkpoint.checkpoint(b, x, cos, sin, use_reentrant=False) if s.ac else b(x, cos, sin)
        if s.norm is not None:
            x = s.head(s.norm(x))
        return x


class GPT2Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.l1 = nn.LayerNorm(d)
        s.qkv = nn.Linear(d, 3 * d)
        s.o = nn.Linear(d, d)
        s.l2 = nn.LayerNorm(d)
        s.up = nn.Linear(d, 4 * d)
        s.dn = nn.Linear(4 * d, d)
        s.drop = nn.Dropout(0.1)

    def forward(s, x):
        B, T, D = x.shape
        q, k, v = s.qkv(s.l1(x)).split(D, 2)
        q, k, v = (t.view(B, T, s.h, D // s.h).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if s.training else 0.0)
        x = x + s.drop(s.o(a.transpose(1, 2).reshape(B, T, D)))
        return x + s.drop(s.dn(F.gelu(s.up(s.l2(x)))))


class GPT2(nn.Module):
    def __init__(s, d=768, h=12, L=12, V=50304, T=1024):
        super().__init__()
        s.tok = nn.Embedding(V, d)
        s.pos = nn.Embedding(T, d)
        s.layers = nn.ModuleList(GPT2Block(d, h) for _ in range(L))
        s.ln = nn.LayerNorm(d)
        s.head = nn.Linear(d, V, bias=False)
        s.head.weight = s.tok.weight

    def forward(s, x):
        y = s.tok(x) + s.pos(torch.arange(x.shape[1], device=x.device))
        for b in s.layers:
            y = b(y)
        return s.head(s.ln(y))


class Bottleneck(nn.Module):
    def __init__(s, i, m, stride):
        super().__init__()
        o = m * 4
        s.c1 = nn.Conv2d(i, m, 1, bias=False)
        s.b1 = nn.BatchNorm2d(m)
        s.c2 = nn.Conv2d(m, m, 3, stride, 1, bias=False)
        s.b2 = nn.BatchNorm2d(m)
        s.c3 = nn.Conv2d(m, o, 1, bias=False)
        s.b3 = nn.BatchNorm2d(o)
        s.d = (
            nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else None
        )

    def forward(s, x):
        y = F.relu(s.b1(s.c1(x)))
        y = F.relu(s.b2(s.c2(y)))
        y = s.b3(s.c3(y))
        return F.relu(y + (x if s.d is None else s.d(x)))


def resnet50():
    L = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for m, n, st in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for j in range(n):
            L.append(Bottleneck(i, m, st if j == 0 else 1))
            i = m * 4
    return nn.Sequential(*L, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


SIZES = {
    "8b": dict(d=4096, h=32, kv=8, f=14336, L=32, V=128256),
    "8b_l8": dict(d=4096, h=32, kv=8, f=14336, L=8, V=128256),
    "7b": dict(d=4096, h=32, kv=32, f=11008, L=32, V=32000),
    "1b": dict(d=2048, h=32, kv=8, f=8192, L=16, V=128256),
    "3b": dict(d=3072, h=24, kv=8, f=8192, L=28, V=128256),
    "13b_l20": dict(d=5120, h=40, kv=40, f=13824, L=20, V=32000),
    "13b_l10": dict(d=5120, h=40, kv=40, f=13824, L=10, V=32000),
    "13b_l6": dict(d=5120, h=40, kv=40, f=13824, L=6, V=32000),
}

# name: (kind, options). world is the number of GPUs the job needs.
JOBS = {}


def job(name, world, kind="llama", **o):
    JOBS[name] = dict(world=world, kind=kind, **o)


job("llama1b_1gpu_b4_s2048", 1, size="1b", B=4, T=2048)
job("llama8b_l8_1gpu_b1_s4096", 1, size="8b_l8", B=1, T=4096)
job("gpt2_1gpu_b8", 1, kind="gpt2", B=8)
job("resnet50_1gpu_b256", 1, kind="resnet50", B=256)
job("llama1b_ddp2_b4_s2048", 2, size="1b", B=4, T=2048, par="ddp")
job("llama8b_l8_fsdp2_b1_s4096", 2, size="8b_l8", B=1, T=4096, par="fsdp")
job("llama8b_l8_tp2_b1_s4096", 2, size="8b_l8", B=1, T=4096, par="tp", tp=2)
job("llama8b_fsdp4_b1_s4096", 4, size="8b", B=1, T=4096, par="fsdp")
job("llama8b_tp4_b1_s4096", 4, size="8b", B=1, T=4096, par="tp", tp=4)
job("llama7b_pp4_m16_s2048", 4, size="7b", B=1, T=2048, par="pp", pp=4, micro=16)
job("llama1b_compile_1gpu_b4_s2048", 1, size="1b", B=4, T=2048, compile=True)

# Jobs whose names, times and memory were kept, built again from the names. Where memory was measured, `validate` compares it: another peak is another job.
for name, batch in (("h_gpt2_b2", 2), ("h_gpt2_b32", 32), ("n_gpt2_b20", 20), ("p_gpt2_b12", 12)):
    job(name, 1, kind="gpt2", B=batch)
for name, batch in (("h_gpt2_ddp4_b16", 16), ("q_gpt2_ddp4_b12", 12)):
    job(name, 4, kind="gpt2", B=batch, par="ddp")
job("h_resnet50_b96", 1, kind="resnet50", B=96)
job("n_resnet50_b160", 1, kind="resnet50", B=160)
job("q_resnet50_ddp4_b128", 4, kind="resnet50", B=128, par="ddp")
job("llama1b_fsdp2_b4_s2048", 2, size="1b", B=4, T=2048, par="fsdp")
job("gpt2_ddp2_b24", 2, kind="gpt2", B=24, par="ddp")
job("llama13b_l6_fsdp2_b2_s2048", 2, size="13b_l6", B=2, T=2048, par="fsdp")
job("llama3b_ac_fsdp2_b2_s2048", 2, size="3b", B=2, T=2048, ac=True, par="fsdp")
job("h_llama3b_ac_b2_s2048", 1, size="3b", B=2, T=2048, ac=True)
job("h_llama1b_b1_s1024", 1, size="1b", B=1, T=1024)
job("h_llama3b_fsdp4_ac_b1_s2048", 4, size="3b", B=1, T=2048, ac=True, par="fsdp")
job("h_llama1b_fsdp4_b2_s1024", 4, size="1b", B=2, T=1024, par="fsdp")
job("h_llama3b_hsdp22_b1_s4096", 4, size="3b", B=1, T=4096, par="hsdp", tp=2)
job("h_llama3b_tp2dp2_b1_s2048", 4, size="3b", B=1, T=2048, par="tp", tp=2)
job("h_llama1b_ddp4_b4_s1024_acc2", 4, size="1b", B=4, T=1024, par="ddp", accum=2)
job("h_llama7b_pp4_m8_s1024", 4, size="7b", B=1, T=1024, par="pp", pp=4, micro=8)
job("n_llama3b_b1_s4096", 1, size="3b", B=1, T=4096)
job("n_llama1b_b8_s1024", 1, size="1b", B=8, T=1024)
job("p_llama1b_b2_s4096", 1, size="1b", B=2, T=4096)
job("p_llama1b_ac_b8_s2048", 1, size="1b", B=8, T=2048, ac=True)
job("p_llama13b_l10_b2_s2048", 1, size="13b_l10", B=2, T=2048)
job("q_llama8b_fsdp4_b2_s2048", 4, size="8b", B=2, T=2048, par="fsdp")
job("q_llama1b_fsdp4_b4_s2048", 4, size="1b", B=4, T=2048, par="fsdp")
job("q_llama3b_hsdp22_b2_s2048", 4, size="3b", B=2, T=2048, par="hsdp", tp=2)
job("q_llama3b_tp4_b2_s2048", 4, size="3b", B=2, T=2048, par="tp", tp=4)
job("q_llama3b_ddp4_b1_s2048", 4, size="3b", B=1, T=2048, par="ddp")
job("q_llama7b_pp4_m6_s2048", 4, size="7b", B=1, T=2048, par="pp", pp=4, micro=6)
# On two GPUs: sizes that nothing was fitted to.
job("r_llama3b_fsdp2_b1_s4096", 2, size="3b", B=1, T=4096, par="fsdp")
job("r_llama3b_tp2_b1_s4096", 2, size="3b", B=1, T=4096, par="tp", tp=2)
job("r_llama7b_pp2_m4_s1024", 2, size="7b", B=1, T=1024, par="pp", pp=2, micro=4)
job("r_llama3b_cp2_b1_s8192", 2, size="3b", B=1, T=8192, par="cp")
job("r_llama1b_ddp2_b2_s2048", 2, size="1b", B=2, T=2048, par="ddp")
job("r_gpt2_ddp2_b12", 2, kind="gpt2", B=12, par="ddp")
# On four H100s, simulated before they were measured.
job("s_llama8b_l8_fsdp4_b1_s4096", 4, size="8b_l8", B=1, T=4096, par="fsdp")
job("s_llama1b_fsdp4_b2_s4096", 4, size="1b", B=2, T=4096, par="fsdp")
job("s_llama3b_hsdp22_b1_s2048", 4, size="3b", B=1, T=2048, par="hsdp", tp=2)
job("s_llama8b_l8_tp4_b2_s4096", 4, size="8b_l8", B=2, T=4096, par="tp", tp=4)
job("s_llama8b_l8_tp2fsdp2_b2_s4096", 4, size="8b_l8", B=2, T=4096, par="tp", tp=2)
job("s_llama7b_pp4_m8_s2048", 4, size="7b", B=1, T=2048, par="pp", pp=4, micro=8)
job("s_llama3b_cp4_b1_s16384", 4, size="3b", B=1, T=16384, par="cp")
job("s_llama1b_ddp4_b2_s2048", 4, size="1b", B=2, T=2048, par="ddp")
job("s_gpt2_ddp4_b20", 4, kind="gpt2", B=20, par="ddp")


def log(*a):
    if RANK == 0:
        print(*a, flush=True)


def build(j, dev):
    if j["kind"] == "gpt2":
        return GPT2().to(dev)
    if j["kind"] == "resnet50":
        return resnet50().to(dev, memory_format=torch.channels_last)
    z = SIZES[j["size"]]
    return Llama(z["d"], z["h"], z["kv"], z["f"], z["L"], z["V"], j["T"], ac=j.get("ac", False))


def tp_plan(m, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for b in m.layers:
        parallelize_module(
            b,
            mesh,
            {
                "attn.wq": ColwiseParallel(),
                "attn.wk": ColwiseParallel(),
                "attn.wv": ColwiseParallel(),
                "attn.wo": RowwiseParallel(),
                "mlp.w1": ColwiseParallel(),
                "mlp.w3": ColwiseParallel(),
                "mlp.w2": RowwiseParallel(),
            },
        )


def run(name, j, steps, warm, trace):
    dev = torch.device("cuda", LOCAL)
    kind, par = j["kind"], j.get("par")
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    accum = j.get("accum", 1)
    pp = None
    if kind == "llama":
        z = SIZES[j["size"]]
        if par == "pp":
            P = j["pp"]
            mesh = init_device_mesh("cuda", (WORLD // P, P), mesh_dim_names=("dp", "pp"))
            stage = mesh["pp"].get_local_rank()
            per = z["L"] // P
            with torch.device("meta"):
                m = Llama(z["d"], z["h"], z["kv"], z["f"], per, z["V"], j["T"], first=stage == 0, last=stage == P - 1)
        else:
            with torch.device("meta"):
                m = build(j, dev)
        if par == "tp":
            mesh = init_device_mesh("cuda", (WORLD // j["tp"], j["tp"]), mesh_dim_names=("dp", "tp"))
            tp_plan(m, mesh["tp"])
        if par == "hsdp":
            mesh = init_device_mesh("cuda", (j["tp"], WORLD // j["tp"]), mesh_dim_names=("rep", "shard"))
        if par in ("fsdp", "hsdp", "tp", "pp", "cp"):
            from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy

            mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            fm = None if par in ("fsdp", "cp") else mesh if par == "hsdp" else mesh["dp"]
            if par in ("fsdp", "cp") or fm.size() > 1:
                kw = dict(mp_policy=mp) | ({} if fm is None else dict(mesh=fm))
                if j.get("compile"):
                    for i, b in enumerate(m.layers):
                        m.layers[i] = torch.compile(b)
                for b in m.layers:
                    fully_shard(b, **kw)
                fully_shard(m, **kw)
            else:
                m = m.to(torch.bfloat16)
        m = m.to_empty(device=dev)
        with torch.no_grad():
            for p in m.parameters():
                p.normal_(0, 0.02)
            for mod in m.modules():
                if isinstance(mod, Llama):
                    fr = 1.0 / 500000 ** (
                        torch.arange(0, z["d"] // z["h"] // 2, device=dev).float() / (z["d"] // z["h"] // 2)
                    )
                    ang = torch.arange(j["T"], device=dev).float()[:, None] * fr
                    mod.cos.copy_(ang.cos()[None, :, None])
                    mod.sin.copy_(ang.sin()[None, :, None])
    else:
        m = build(j, dev)
    if j.get("compile") and par is None:
        m = torch.compile(m)
    if par == "ddp":
        m = nn.parallel.DistributedDataParallel(m, device_ids=[LOCAL])
    groups = {}  # one fused optimizer for each kind of tensor: plain, or DTensor on one mesh
    for p in m.parameters():
        groups.setdefault(str(getattr(p, "device_mesh", None)), []).append(p)
    opts = [
        torch.optim.AdamW(g, lr=1e-4, fused=True) if kind != "resnet50" else torch.optim.SGD(g, lr=0.1, momentum=0.9)
        for g in groups.values()
    ]
    amp = par in (None, "ddp")
    if kind == "resnet50":
        x = torch.randn(j["B"], 3, 224, 224, device=dev).to(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (j["B"],), device=dev)
    else:
        V = 50304 if kind == "gpt2" else z["V"]
        T = 1024 if kind == "gpt2" else j["T"]
        nb = j["B"] * (j["micro"] if par == "pp" else 1)
        x = torch.randint(0, V, (nb, T), device=dev)
        y = torch.randint(0, V, (nb, T), device=dev)
    lossf = lambda o, t: F.cross_entropy(o.float().flatten(0, -2) if o.dim() == 3 else o.float(), t.flatten())
    if par == "pp":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        st = PipelineStage(m, stage, P, dev, group=mesh["pp"].get_group())
        pp = Schedule1F1B(st, j["micro"], loss_fn=lossf)

    def parts():
        """Returns a context in which each rank has, for context parallelism, its part of the sequence, and of what the
        model keeps by position.
        """
        if par != "cp":
            return contextlib.nullcontext()
        from torch.distributed.tensor.experimental import context_parallel

        buffers = [x, y, m.cos, m.sin]
        return context_parallel(init_device_mesh("cuda", (WORLD,)), buffers=buffers, buffer_seq_dims=[1] * 4)

    def step():
        if pp is not None:
            if stage == 0:
                pp.step(x)
            elif stage == P - 1:
                pp.step(target=y, losses=[])
            else:
                pp.step()
        else:
            for a in range(accum):
                if par == "ddp":
                    m.require_backward_grad_sync = a == accum - 1
                if par in ("fsdp", "hsdp") and accum > 1:
                    m.set_requires_gradient_sync(a == accum - 1)
                with parts():
                    with torch.autocast("cuda", torch.bfloat16, enabled=amp):
                        loss = lossf(m(x), y)
                    loss.backward()
        if kind != "resnet50" and par in (None, "ddp", "fsdp", "hsdp", "cp"):
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad()

    ts = []
    ev = []
    cpu = []
    for i in range(warm + steps):
        torch.cuda.synchronize()
        c = time.process_time()
        t = time.perf_counter()
        step()
        th = time.perf_counter()
        c2 = time.process_time()
        torch.cuda.synchronize()
        e = time.perf_counter()
        if i >= warm:
            ts.append(e - t)
            ev.append(th - t)
            cpu.append(c2 - c)
    t = time.perf_counter()
    for i in range(steps):
        step()
    torch.cuda.synchronize()
    free = (time.perf_counter() - t) / steps
    if trace and RANK == 0 or (trace and par == "pp" and LOCAL == WORLD - 1):
        from torch.profiler import profile, ProfilerActivity

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as pr:
            step()
            torch.cuda.synchronize()
        pr.export_chrome_trace(os.path.join(trace, f"{name}.r{RANK}.json"))
    elif trace:
        step()
        torch.cuda.synchronize()
    r = dict(
        job=name,
        world=WORLD,
        step_s=ts,
        host_s=ev,
        cpu_s=cpu,
        free_running_step_s=free,
        max_alloc=torch.cuda.max_memory_allocated(),
        max_reserved=torch.cuda.max_memory_reserved(),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0),
    )
    log("RESULT " + json.dumps(r))
    if RANK == 0 and ARGS.out:
        with open(ARGS.out, "a") as f:
            f.write(json.dumps(r) + "\n")
    if pp is not None and stage == P - 1:
        print(
            f"RESULT_LASTSTAGE {name} median {sorted(ts)[len(ts) // 2]:.5f} alloc {torch.cuda.max_memory_allocated()}",
            flush=True,
        )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--jobs", default="all")
    ap.add_argument("--steps", type=int, default=10)
    ap.add_argument("--warm", type=int, default=5)
    ap.add_argument("--out")
    ap.add_argument("--trace")
    ap.add_argument("--skip", default="")
    ARGS = ap.parse_args()
    RANK, WORLD, LOCAL = (
        int(os.environ.get("RANK", 0)),
        int(os.environ.get("WORLD_SIZE", 1)),
        int(os.environ.get("LOCAL_RANK", 0)),
    )
    torch.cuda.set_device(LOCAL)
    import torch.utils.checkpoint

    if "RANK" in os.environ:
        dist.init_process_group("nccl")
    names = [n for n, j in JOBS.items() if j["world"] == WORLD] if ARGS.jobs == "all" else ARGS.jobs.split(",")
    for n in names:
        if n in ARGS.skip.split(","):
            continue
        t = time.time()
        try:
            run(n, JOBS[n], ARGS.steps, ARGS.warm, ARGS.trace)
        except torch.cuda.OutOfMemoryError as e:
            log("OOM", n, str(e)[:100])
        except Exception as e:
            import traceback

            log("FAILED", n, repr(e)[:300])
            traceback.print_exc()
            if WORLD > 1:
                os._exit(1)
        log(f"-- {n} took {time.time() - t:.1f}s")
        gc.collect()
        torch.cuda.empty_cache()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
