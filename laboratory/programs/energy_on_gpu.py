"""Joules of training steps, from NVML's energy counter.   python energy_on_gpu.py OUT.jsonl JOB=STEPS ...   (jobs of laboratory/programs/train_jobs.py; torchrun for several GPUs)

Each job runs unchanged: its last loop of free-running steps lies between the last two readings of the clock, where the
energy counter of this rank's GPU is read, too. A thread samples power and clocks every 20 ms."""

import argparse, ctypes, gc, json, os, sys, threading, time

sys.path.insert(0, os.environ.get("TRUTH", "laboratory/programs"))
import torch, torch.distributed as dist
import train_jobs as jobs

RANK, WORLD, LOCAL = (
    int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
handle = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(LOCAL, ctypes.byref(handle))


def energy_j():
    mj = ctypes.c_ulonglong()
    nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(mj))
    return mj.value / 1e3


def sample():
    w, sm = ctypes.c_uint(), ctypes.c_uint()
    nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(w))
    nvml.nvmlDeviceGetClockInfo(handle, 1, ctypes.byref(sm))
    return round(time.perf_counter(), 3), w.value / 1e3, sm.value


class Clock:
    """Stands in for `time` in train_jobs."""

    def __init__(self):
        self.read = []

    def perf_counter(self):
        t = time.perf_counter()
        self.read.append((t, energy_j()))
        return t

    def process_time(self):
        return time.process_time()

    def time(self):
        return time.time()


def main():
    out = sys.argv[1]
    torch.cuda.set_device(LOCAL)
    import torch.utils.checkpoint as _checkpoint  # noqa: F401

    if WORLD > 1:
        dist.init_process_group("nccl")
    jobs.RANK, jobs.WORLD, jobs.LOCAL, jobs.ARGS = RANK, WORLD, LOCAL, argparse.Namespace(out=None)
    lines = []
    time.sleep(0.5)
    a, t = energy_j(), time.perf_counter()
    time.sleep(1.5)
    lines.append(
        dict(what="context, nothing runs", rank=RANK, watts=round((energy_j() - a) / (time.perf_counter() - t), 1))
    )
    if WORLD == 1:
        x, y = torch.randn(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
        p = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        n = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)
        g = torch.randn(1 << 27, device="cuda", dtype=torch.bfloat16)
        w = torch.ones(4096, device="cuda", dtype=torch.bfloat16)
        for what, f in (
            ("copy of 1 GiB", lambda: y.copy_(x)),
            ("product 8192, bf16", lambda: p @ p),
            ("rms_norm 16384 x 4096, bf16", lambda: torch.rms_norm(n, (4096,), w)),
            ("gelu of 2^27, bf16", lambda: torch.nn.functional.gelu(g)),
            ("sum of 1 GiB", lambda: x.sum()),
            ("product 8192, tf32", lambda: x[: 1 << 26].view(8192, 8192) @ x[1 << 26 : 1 << 27].view(8192, 8192)),
        ):
            torch.backends.cuda.matmul.allow_tf32 = "tf32" in what
            for _ in range(3):
                f()
            torch.cuda.synchronize()
            t, count = time.perf_counter(), 0
            while time.perf_counter() - t < 0.7:
                for _ in range(10):
                    f()
                torch.cuda.synchronize()
            a, t, count = energy_j(), time.perf_counter(), 0
            while time.perf_counter() - t < 1.3:
                for _ in range(10):
                    f()
                torch.cuda.synchronize()
                count += 10
            s = time.perf_counter() - t
            lines.append(
                dict(what=what, watts=round((energy_j() - a) / s, 1), us=round(s / count * 1e6, 1), mhz=sample()[2])
            )
        torch.backends.cuda.matmul.allow_tf32 = False
        del x, y, p, n, g
    for text in sys.argv[2:]:
        name, steps = text.split("=")
        clock = jobs.time = Clock()
        samples, ended = [], threading.Event()

        def watch():
            while not ended.wait(0.02):
                samples.append(sample())

        watcher = threading.Thread(target=watch)
        watcher.start()
        jobs.run(name, jobs.JOBS[name], int(steps), 3, None)
        ended.set()
        watcher.join()
        (begin, a), (end, b) = clock.read[-2:]
        mean_w = [w for t, w, _ in samples if begin + 0.3 < t < end]
        mhz = [c for t, _, c in samples if begin + 0.1 < t < end]
        lines.append(
            dict(
                job=name,
                rank=RANK,
                world=WORLD,
                steps=int(steps),
                step_s=round((end - begin) / int(steps), 6),
                step_j=round((b - a) / int(steps), 2),
                watts=round((b - a) / (end - begin), 1),
                sampled_w=round(sum(mean_w) / max(len(mean_w), 1), 1),
                mhz=round(sum(mhz) / max(len(mhz), 1)),
                mhz_least=min(mhz, default=0),
                samples=[(round(t - begin, 3), w, c) for t, w, c in samples if t > begin - 0.2][::3],
            )
        )
        gc.collect()
        torch.cuda.empty_cache()
    for rank in range(WORLD):
        if WORLD > 1:
            dist.barrier()
        if rank == RANK:
            with open(out, "a") as file:
                file.writelines(
                    json.dumps(line | dict(gpu=torch.cuda.get_device_name(LOCAL), torch=torch.__version__)) + "\n"
                    for line in lines
                )
    if WORLD > 1:
        dist.destroy_process_group()


main()
