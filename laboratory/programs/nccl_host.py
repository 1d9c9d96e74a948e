"""Measures what a collective takes of the host, by size and number: NCCL's calls alone, and those of torch.distributed. On real GPUs and emulated alike.

torchrun --nproc-per-node 2 nccl_host.py OUT.jsonl

Lines have the median and the least of the rounds, in microseconds a call. In each round the GPUs are idle at first and `calls` calls follow; a queue holds them all.
"""

import ctypes
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

R, W, L = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
ROUNDS, CALLS = 9, 24
FLOAT, SUM = 7, 0
torch.cuda.set_device(L)
dist.init_process_group("nccl", device_id=torch.device("cuda", L))
MOST = 16 << 20
part, other, whole = (torch.zeros(MOST // 4 * n, device="cuda") for n in (1, 1, W))
SIZES = (4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
OUT = open(sys.argv[1], "a") if R == 0 else None


def note(**fields):
    if OUT:
        OUT.write(json.dumps(fields) + "\n")
        OUT.flush()


def timed(run, calls, after=None):
    """Microseconds a call, of each round; `after` ends what is in flight and is not timed."""
    found = []
    for _ in range(ROUNDS + 2):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            run()
        found.append((time.perf_counter_ns() - begin) / calls / 1000)
        if after:
            after()
    torch.cuda.synchronize()
    return {"us_median": round(statistics.median(found[2:]), 2), "us_min": round(min(found[2:]), 2)}


def nccl():
    """Returns the library that torch uses, which is loaded."""
    if hasattr(ctypes.CDLL(None), "ncclCommInitRank"):
        return ctypes.CDLL(None)
    names = [line.split()[-1] for line in open("/proc/self/maps") if "libnccl.so" in line]
    return ctypes.CDLL(names[0])


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def raw():
    c, ident, comm = nccl(), UniqueId(), ctypes.c_void_p()
    c.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    if R == 0:
        assert c.ncclGetUniqueId(ctypes.byref(ident)) == 0
    told = [bytes(ident)]
    dist.broadcast_object_list(told, src=0)
    ctypes.memmove(ctypes.byref(ident), told[0], 128)
    assert c.ncclCommInitRank(ctypes.byref(comm), W, ident, R) == 0
    stream = ctypes.c_void_p(torch.cuda.Stream().cuda_stream)
    p, q, big = (ctypes.c_void_p(t.data_ptr()) for t in (part, other, whole))
    to, n = ctypes.c_int((R + 1) % W), ctypes.c_size_t

    def ok(status):
        assert status == 0, status

    def message(count):
        ok(c.ncclGroupStart())
        ok(c.ncclSend(p, n(count), FLOAT, to, comm, stream))
        ok(c.ncclRecv(q, n(count), FLOAT, to, comm, stream))
        ok(c.ncclGroupEnd())

    kinds = {
        "all_reduce": lambda count: ok(c.ncclAllReduce(p, p, n(count), FLOAT, SUM, comm, stream)),
        "all_gather": lambda count: ok(c.ncclAllGather(p, big, n(count), FLOAT, comm, stream)),
        "reduce_scatter": lambda count: ok(c.ncclReduceScatter(big, p, n(count), FLOAT, SUM, comm, stream)),
        "sendrecv": message,
    }
    note(part="nothing", **timed(lambda: ok(c.ncclGetVersion(ctypes.byref(ctypes.c_int()))), 200))
    for op, call in kinds.items():
        for nbytes in SIZES:
            note(part="nccl", op=op, bytes=nbytes, calls=CALLS, **timed(lambda: call(nbytes // 4), CALLS))
    for each in (2, 4, 8, 16, 32):
        for nbytes in (1 << 10, 256 << 10):

            def group():
                ok(c.ncclGroupStart())
                for _ in range(each):
                    kinds["all_gather"](nbytes // 4)
                ok(c.ncclGroupEnd())

            note(part="nccl_group", op="all_gather", bytes=nbytes, of=each, calls=8, **timed(group, 8))
    many = [torch.cuda.Stream().cuda_stream for _ in range(2)]

    def turns():
        for one in many:
            ok(c.ncclAllReduce(p, p, n(256), FLOAT, SUM, comm, ctypes.c_void_p(one)))

    note(part="nccl_two_streams", op="all_reduce", bytes=1024, calls=24, **timed(turns, 12))
    ok(c.ncclCommDestroy(comm))


def torchs():
    works = []

    def end():
        for work in works:
            work.wait()
        works.clear()

    for nbytes in SIZES:
        count = nbytes // 4
        a, b, all_of = part[:count], other[:count], whole[: count * W]
        kinds = {
            "all_reduce": lambda wait: dist.all_reduce(a, async_op=wait),
            "all_gather": lambda wait: dist.all_gather_into_tensor(all_of, a, async_op=wait),
            "reduce_scatter": lambda wait: dist.reduce_scatter_tensor(b, all_of, async_op=wait),
        }
        for op, call in kinds.items():
            note(part="torch", op=op, bytes=nbytes, sync=True, calls=CALLS, **timed(lambda: call(False), CALLS))
            note(part="torch", op=op, bytes=nbytes, sync=False, calls=CALLS,
                 **timed(lambda: works.append(call(True)), CALLS, end))  # fmt: skip
        note(part="torch", op="all_reduce_waited", bytes=nbytes, sync=False, calls=CALLS,
             **timed(lambda: kinds["all_reduce"](True).wait(), CALLS))  # fmt: skip
        pair = [dist.P2POp(dist.isend, a, (R + 1) % W), dist.P2POp(dist.irecv, b, (R + 1) % W)]

        def message():
            for work in dist.batch_isend_irecv(pair):
                work.wait()

        note(part="torch", op="sendrecv_waited", bytes=nbytes, sync=False, calls=CALLS, **timed(message, CALLS))
    for of in (2, 8, 32):
        pieces = [part[i * 256 : (i + 1) * 256] for i in range(of)]
        wholes = [whole[i * 256 * W : (i + 1) * 256 * W] for i in range(of)]

        def coalesced():
            with dist._coalescing_manager(device=part.device, async_ops=True) as manager:
                for piece, all_of in zip(pieces, wholes, strict=True):
                    dist.all_gather_into_tensor(all_of, piece)
            manager.wait()

        note(part="torch_coalesced", op="all_gather", bytes=1024, of=of, calls=8, **timed(coalesced, 8))
    small = torch.zeros(16, device="cuda")
    note(part="kernel", op="add_", calls=CALLS, **timed(lambda: small.add_(1.0), CALLS))
    event, stream = torch.cuda.Event(), torch.cuda.Stream()
    note(part="event", op="record", calls=CALLS, **timed(lambda: event.record(stream), CALLS))
    note(part="event", op="wait", calls=CALLS, **timed(lambda: stream.wait_event(event), CALLS))


note(part="origin", gpu=torch.cuda.get_device_name(0), torch=torch.__version__, world=W,
     nccl=".".join(map(str, torch.cuda.nccl.version())), python=sys.version.split()[0],
     env={k: v for k, v in os.environ.items() if k.startswith("NCCL_")})  # fmt: skip
torchs()
raw()
dist.destroy_process_group()
