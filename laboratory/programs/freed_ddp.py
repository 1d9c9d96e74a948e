"""When the memory of a deleted DistributedDataParallel model is free again, on two GPUs: prints what is allocated after
each thing that a program does then. Beside it, what a tensor on another process's GPU takes there.

    python -m torch.distributed.run --nproc-per-node 2 laboratory/programs/freed_ddp.py
"""

import gc, os, sys, time, warnings, torch, torch.nn as nn, torch.distributed as dist

warnings.simplefilter("ignore")
dist.init_process_group("nccl")
L = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(L)
R, W = dist.get_rank(), dist.get_world_size()
T0 = time.time()


def say(*a):
    print(
        f"r{R} {time.time() - T0:7.3f}",
        *a,
        round(torch.cuda.memory_allocated() / 2**20),
        "peak",
        round(torch.cuda.max_memory_allocated() / 2**20),
        flush=True,
    )


other = dist.new_group(list(range(W)))
dist.barrier(other)
dist.barrier()


def job(steps, wide=2048, depth=8, rows=64, **kw):
    m = nn.parallel.DistributedDataParallel(
        nn.Sequential(*[nn.Linear(wide, wide) for _ in range(depth)]).cuda(), device_ids=[L], **kw
    )
    o = torch.optim.AdamW(m.parameters(), fused=True)
    for i in range(steps):
        m(torch.randn(rows, wide, device="cuda")).pow(2).mean().backward()
        o.step()
        o.zero_grad()
        torch.cuda.synchronize()
    t = time.time()
    say("in")


def clean(tag, sleep=2.0):
    say(tag, "deleted")
    gc.collect()
    torch.cuda.empty_cache()
    say(tag, "collected")
    time.sleep(sleep)
    say(tag, "slept", sleep)


def after(tag):
    clean(tag)
    torch.zeros(1, device="cuda").cpu()
    say(tag, "read")
    dist.all_reduce(torch.ones(1, device="cuda"), group=other)
    torch.cuda.synchronize()
    say(tag, "other group")
    dist.barrier()
    say(tag, "barrier")
    time.sleep(0.5)
    dist.barrier()
    say(tag, "second barrier")


say("start")
for steps in (1, 3, 60, 300):
    job(steps)
    after(f"steps {steps}")
job(4, rows=65536, wide=4096, depth=8)
after("long steps")
for wait in (0, 0.05, 0.15):
    job(30)
    clean(f"wait {wait}", wait)
    dist.barrier()
    say("barrier")
    dist.barrier()
    say("second barrier")
job(30, gradient_as_bucket_view=True)
after("views")
job(30, static_graph=True)
after("static")
job(30, find_unused_parameters=True)
after("unused")
# another job, which has meshes of its own
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

for shape in ((2, 1), (1, 2), None):
    job(30)
    clean("before fsdp", 0.3)
    torch.cuda.reset_peak_memory_stats()
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("a", "b"))[("a", "b")[shape.index(2)]] if shape else None
    say("mesh", shape)
    n = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(4)]).cuda()
    for b in n:
        fully_shard(b, **({} if mesh is None else dict(mesh=mesh)))
    fully_shard(n, **({} if mesh is None else dict(mesh=mesh)))
    say("sharded")
    o = torch.optim.AdamW(n.parameters())
    for i in range(3):
        n(torch.randn(64, 2048, device="cuda")).pow(2).mean().backward()
        o.step()
        o.zero_grad()
        say("step", i)
    del n, o, mesh
    clean("fsdp done", 0.3)
    dist.barrier()
    say("barrier")
# another GPU
free = lambda: (
    [torch.cuda.mem_get_info(i)[0] for i in range(W)] if len(sys.argv) > 1 else [torch.cuda.mem_get_info(L)[0]]
)
dist.barrier()
torch.cuda.synchronize()
a = torch.cuda.mem_get_info(L)[0]
say("free", a)
dist.barrier()
torch.cuda.synchronize()
if R == 1:
    time.sleep(0.5)
    x = torch.zeros(1, device="cuda:0")
    torch.cuda.synchronize(0)
    print("r1 sees free on 0:", torch.cuda.mem_get_info(0), flush=True)
dist.barrier()
torch.cuda.synchronize()
b = torch.cuda.mem_get_info(L)[0]
print(f"r{R} after a tensor of the other: free {b}, less by {a - b}", flush=True)
dist.barrier()
torch.cuda.synchronize()
if R == 1:
    y = torch.randn(4096, 4096, device="cuda:0")
    z = y @ y
    torch.cuda.synchronize(0)
    print("r1 reserved on 0", torch.cuda.memory_reserved(0), "sees", torch.cuda.mem_get_info(0), flush=True)
dist.barrier()
torch.cuda.synchronize()
c = torch.cuda.mem_get_info(L)[0]
print(f"r{R} after a product of the other: free {c}, less by {b - c}", flush=True)
dist.barrier()
torch.cuda.synchronize()
if R == 0 and __import__("shutil").which("nvidia-smi"):
    import subprocess

    print(
        subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv"],
            capture_output=True,
            text=True,
        ).stdout,
        os.getpid(),
        flush=True,
    )
dist.barrier()
torch.cuda.synchronize()
if R == 1:
    del x, y, z
    torch.cuda.empty_cache()
dist.barrier()
torch.cuda.synchronize()
print(f"r{R} after it was freed: free {torch.cuda.mem_get_info(L)[0]}", flush=True)
dist.barrier()
dist.destroy_process_group()
