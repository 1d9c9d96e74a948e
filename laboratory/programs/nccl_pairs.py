"""Two communicators at once, each on a stream of its own.   torchrun --nproc-per-node N pairs.py OUT.jsonl SIZES SECONDS [OPS]
One line a pair and size: µs of each call alone, and of both; the second begins with the first, both have calls enough to overlap to the end of the shorter one."""

import itertools, json, os, sys, time
import torch, torch.distributed as dist

R, W, L = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
torch.cuda.set_device(L)
dev = torch.device("cuda", L)
dist.init_process_group("nccl", device_id=dev)
other = dist.new_group(list(range(W)), device_id=dev)
out = open(sys.argv[1], "a") if R == 0 else None
sizes = [int(s) << 20 if not s.endswith("k") else int(s[:-1]) << 10 for s in sys.argv[2].split(",")]
end = time.time() + float(sys.argv[3])
OPS = (
    sys.argv[4].split(",")
    if len(sys.argv) > 4
    else ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv"]
)
A, B = torch.cuda.Stream(), torch.cuda.Stream()
sync = torch.zeros(1, device=dev)
dist.all_reduce(sync), dist.all_reduce(sync, group=other)
LARGEST = max(sizes) // 4
bufs = {g: (torch.randn(LARGEST, device=dev), torch.randn(LARGEST, device=dev)) for g in "AB"}


def op(name, nbytes, which):
    group = None if which == "A" else other
    n = nbytes // 4
    a, b = (t[:n] for t in bufs[which])
    own = a[: n // W]
    return {
        "all_reduce": lambda: dist.all_reduce(a, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(b, own, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(b[: n // W], a, group=group),
        "broadcast": lambda: dist.broadcast(a, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(b, a, group=group),
        "sendrecv": lambda: [
            w.wait()
            for w in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, a, (R + 1) % W, group), dist.P2POp(dist.irecv, b, (R - 1) % W, group)]
            )
        ],
    }[name]


def hold():
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(12_000_000)
    dist.all_reduce(sync)


def timed(jobs):
    """Returns the ends of all calls in µs since both began. jobs: {which: (function, calls)}."""
    found = {}
    hold()
    held = torch.cuda.Event(enable_timing=True)
    held.record()
    for which, (fn, calls) in jobs.items():
        stream = A if which == "A" else B
        stream.wait_event(held)
        with torch.cuda.stream(stream):
            evs = []
            for _ in range(calls):
                fn()
                e = torch.cuda.Event(enable_timing=True)
                e.record()
                evs.append(e)
            found[which] = evs
    torch.cuda.synchronize()
    return {k: [round(held.elapsed_time(e) * 1e3, 1) for e in v] for k, v in found.items()}


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
alone = {}
for nbytes in sizes:
    for name in OPS:
        calls = 16 if nbytes < 1 << 25 else 8
        fa = op(name, nbytes, "A")
        timed({"A": (fa, 2)})
        fb = op(name, nbytes, "B")
        timed({"B": (fb, 2)})
        ends = timed({"A": (fa, calls)})["A"]
        alone[name, nbytes] = each = (ends[-1] - ends[1]) / (len(ends) - 2)
        tell(dict(op=name, bytes=nbytes, world=W, us_each=round(each, 2), ends=ends))
stop = torch.zeros(1, device=dev)
for nbytes, other_nbytes in [(s, s) for s in sizes] + [(max(sizes), min(sizes))]:
    for one, two in itertools.product(OPS, OPS):
        if nbytes == other_nbytes and OPS.index(one) > OPS.index(two):
            continue
        stop.fill_(float(time.time() > end))
        dist.broadcast(stop, 0)
        if stop.item():
            break
        base = 16 if nbytes < 1 << 25 else 6
        ua, ub = alone[one, nbytes], alone[two, other_nbytes]
        # as much of both as fills the same time, so that nearly all of it overlaps
        ca = base if ua >= ub else min(48, max(3, round(base * ub / ua)))
        cb = base if ub >= ua else min(48, max(3, round(base * ua / ub)))
        ends = timed({"A": (op(one, nbytes, "A"), ca), "B": (op(two, other_nbytes, "B"), cb)})
        both_until = min(ends["A"][-1], ends["B"][-1])
        each = {}
        for k, v in ends.items():
            inside = [t for t in v if t <= both_until + 1]
            if len(inside) < 2:
                inside = v[:2]
            each[k] = round((inside[-1] - inside[0]) / (len(inside) - 1), 2)
        tell(
            dict(
                ops=[one, two],
                bytes=[nbytes, other_nbytes],
                world=W,
                alone=[round(ua, 2), round(ub, 2)],
                both=[each["A"], each["B"]],
                times=[round(each["A"] / ua, 3), round(each["B"] / ub, 3)],
                ends=ends,
            )
        )
print("pairs done", flush=True)
dist.barrier()
dist.destroy_process_group()
