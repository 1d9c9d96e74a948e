"""Ground truth with DeepSpeed: a GPT under ZeRO 1, 2, 3.   torchrun --nproc-per-node 4 deepspeed_jobs.py --jobs ds1b_z3 [--out FILE]"""

import argparse, gc, json, os, time, torch, torch.nn as nn, torch.nn.functional as F, deepspeed

JOBS = dict(
    ds1b_z3=dict(d=2048, L=24, z=3, B=4, T=1024),
    r_ds1b_z3_b2_s1024=dict(d=2048, L=24, z=3, B=2, T=1024),  # on two GPUs: nothing was fitted to it
    s_ds1b_z3_b4_s2048=dict(d=2048, L=24, z=3, B=4, T=2048),  # on four H100s: simulated before it was measured
    t_ds1b_z1_b8_s2048=dict(d=2048, L=16, z=1, B=8, T=2048),
    t_ds1b_z2_b8_s2048=dict(d=2048, L=16, z=2, B=8, T=2048),
)
R, W, LR = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])


class Block(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.h = d // 128
        s.n1 = nn.LayerNorm(d)
        s.qkv = nn.Linear(d, 3 * d)
        s.o = nn.Linear(d, d)
        s.n2 = nn.LayerNorm(d)
        s.u = nn.Linear(d, 4 * d)
        s.dn = nn.Linear(4 * d, d)

    def forward(s, x):
        B, T, D = x.shape
        q, k, v = s.qkv(s.n1(x)).view(B, T, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
        x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D))
        return x + s.dn(F.gelu(s.u(s.n2(x))))


class GPT(nn.Module):
    def __init__(s, d, L):
        super().__init__()
        s.e = nn.Embedding(32000, d)
        s.b = nn.ModuleList(Block(d) for _ in range(L))
        s.h = nn.Linear(d, 32000, bias=False)

    def forward(s, x, y):
        z = s.e(x)
        for b in s.b:
            z = b(z)
        return F.cross_entropy(s.h(z).view(-1, 32000).float(), y.view(-1))


def run(name, j, steps, warm):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    cfg = {
        "train_micro_batch_size_per_gpu": j["B"],
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": j["z"]},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }
    if j["z"] == 3:
        with deepspeed.zero.Init(config_dict_or_path=cfg):
            m = GPT(j["d"], j["L"])
    else:
        with torch.device("cuda"):
            m = GPT(j["d"], j["L"])
    e, *_ = deepspeed.initialize(model=m, model_parameters=list(m.parameters()), config=cfg)
    x = torch.randint(0, 32000, (j["B"], j["T"]), device="cuda")
    y = torch.randint(0, 32000, (j["B"], j["T"]), device="cuda")

    def step():
        l = e(x, y)
        e.backward(l)
        e.step()

    ts, hs = [], []
    for i in range(warm + steps):
        torch.cuda.synchronize()
        t = time.perf_counter()
        step()
        h = time.perf_counter()
        torch.cuda.synchronize()
        q = time.perf_counter()
        if i >= warm:
            ts.append(q - t)
            hs.append(h - t)
    t = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    free = (time.perf_counter() - t) / steps
    r = dict(
        job=name,
        world=W,
        step_s=ts,
        host_s=hs,
        free_running_step_s=free,
        max_alloc=torch.cuda.max_memory_allocated(),
        max_reserved=torch.cuda.max_memory_reserved(),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0),
    )
    if R == 0:
        print("RESULT " + json.dumps(r), flush=True)
        if A.out:
            open(A.out, "a").write(json.dumps(r) + "\n")
    e.destroy()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--jobs", default="all")
    ap.add_argument("--steps", type=int, default=6)
    ap.add_argument("--warm", type=int, default=3)
    ap.add_argument("--out")
    A, _ = ap.parse_known_args()
    torch.cuda.set_device(LR)
    deepspeed.init_distributed()
    for n in JOBS if A.jobs == "all" else A.jobs.split(","):
        run(n, JOBS[n], A.steps, A.warm)
        gc.collect()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
