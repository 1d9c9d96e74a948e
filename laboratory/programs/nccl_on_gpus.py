"""NCCL's own times on GPUs of one server, and of two communicators at once.   torchrun --nproc-per-node N nccl_on_gpus.py OUT.jsonl

The host is far ahead (a sleeping kernel holds the streams), so that intervals between events are the device's alone."""

import json, os, sys, time
import torch, torch.distributed as dist

R, W, L = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
torch.cuda.set_device(L)
dev = torch.device("cuda", L)
dist.init_process_group("nccl", device_id=dev)
other = dist.new_group(list(range(W)), device_id=dev)
out = open(sys.argv[1], "a") if R == 0 else None
sync = torch.zeros(1, device=dev)
dist.all_reduce(sync), dist.all_reduce(sync, group=other)
A, B = torch.cuda.Stream(), torch.cuda.Stream()


def op(name, n, group):
    """A call of `n` f32 elements (all ranks' together of gathers and scatters)."""
    a, b = torch.randn(n, device=dev), torch.empty(n, device=dev)
    own = a[: n // W]
    return {
        "all_reduce": lambda: dist.all_reduce(a, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(b, own, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(b[: n // W], a, group=group),
        "broadcast": lambda: dist.broadcast(a, 0, group=group),
        "reduce": lambda: dist.reduce(a, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(b, a, group=group),
        "sendrecv": lambda: [
            w.wait()
            for w in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, a, (R + 1) % W, group), dist.P2POp(dist.irecv, b, (R - 1) % W, group)]
            )
        ],
    }[name]


OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "sendrecv")


def events(n):
    return [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]


def hold():
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(12_000_000)
    dist.all_reduce(sync)


def alone(name, nbytes, n):
    fn = op(name, nbytes // 4, None)
    for _ in range(2):
        fn()
    evs = events(n)
    hold()
    for a, b in evs:
        a.record()
        fn()
        b.record()
    torch.cuda.synchronize()
    x = sorted(a.elapsed_time(b) * 1e3 for a, b in evs)
    span = evs[0][0].elapsed_time(evs[-1][1]) * 1e3 / n
    return dict(
        op=name, bytes=nbytes, world=W, us_median=round(x[n // 2], 2), us_min=round(x[0], 2), us_each=round(span, 2)
    )


def both(one, two, nbytes, n):
    """Runs each on a stream and a communicator of its own, `n` times, beginning together."""
    found = {}
    fa, fb = op(one, nbytes // 4, None), op(two, nbytes // 4, other)
    for which in ("alone", "both"):
        evs = {}
        for repeat in range(2):
            hold()
            held = torch.cuda.Event()
            held.record()
            for key, stream, fn, wanted in (("a", A, fa, True), ("b", B, fb, which == "both")):
                if not wanted:
                    continue
                stream.wait_event(held)
                with torch.cuda.stream(stream):
                    evs[key] = events(n)
                    for a, b in evs[key]:
                        a.record()
                        fn()
                        b.record()
            torch.cuda.synchronize()
        found[which] = {key: [round(a.elapsed_time(b) * 1e3, 1) for a, b in each] for key, each in evs.items()}
        found[which + "_span"] = {
            key: round(each[0][0].elapsed_time(each[-1][1]) * 1e3, 1) for key, each in evs.items()
        }
    return dict(ops=[one, two], bytes=nbytes, world=W, calls=n) | found


def tell(line):
    if R == 0:
        out.write(json.dumps(line) + "\n")
        out.flush()


tell(
    dict(
        gpu=torch.cuda.get_device_name(0),
        torch=torch.__version__,
        nccl=".".join(map(str, torch.cuda.nccl.version())),
        world=W,
        env={k: v for k, v in os.environ.items() if k.startswith("NCCL_")},
        date=time.strftime("%Y-%m-%d"),
    )
)
begun = time.time()
for power in range(10, 33):
    for name in OPS:
        tell(alone(name, 1 << power, 20 if power < 26 else 6))
    torch.cuda.empty_cache()
print("alone", round(time.time() - begun, 1), flush=True)
for one, two in (
    ("all_reduce", "all_reduce"),
    ("all_gather", "reduce_scatter"),
    ("all_gather", "all_gather"),
    ("all_reduce", "all_to_all"),
    ("all_gather", "all_reduce"),
    ("reduce_scatter", "sendrecv"),
    ("sendrecv", "sendrecv"),
):
    for power in (16, 20, 22, 24, 26, 28):
        tell(both(one, two, 1 << power, 12 if power < 26 else 6))
    torch.cuda.empty_cache()
print("both", round(time.time() - begun, 1), flush=True)
dist.barrier()
dist.destroy_process_group()
