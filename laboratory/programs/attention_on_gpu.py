"""Times of PyTorch's FlashAttention kernels on a GPU, one by one: dense and causal, windows, packed sequences.

    python attention_on_gpu.py OUT.jsonl [SECONDS]

A line a case: its sizes (`lengths`: of packed sequences), and microseconds of three calls by kernel, each after a write
of 256 MiB that empties the L2 cache. laboratory/rows/attention-h100.jsonl.gz is such a file."""

import json
import random
import sys
import time

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

ATEN = torch.ops.aten


def lengths(kind, total, mean):
    if kind == "equal":
        return [mean] * (total // mean)
    if kind == "onelong":
        return [total // 2] + [mean] * (total // 2 // mean)
    draw, found, left = random.Random(0), [], total
    while left:
        drawn = draw.expovariate(1 / mean) if kind == "exp" else draw.randint(mean // 2, mean * 3 // 2)
        found.append(min(left, max(1, int(drawn))))
        left -= found[-1]
    return found


def cases():
    for d, h in ((128, 16), (64, 16), (128, 32), (64, 12)):
        for causal in (False, True):
            for window in (None, 256, 1024, 4096) if causal else (None,):
                for b, s in ((4, 2048), (1, 8192), (8, 512), (2, 4096)):
                    if not window or window < s:
                        yield {
                            "kind": "dense",
                            "b": b,
                            "s": s,
                            "h": h,
                            "kv": h,
                            "d": d,
                            "causal": causal,
                            "window": window,
                        }
    for d, h, kv in ((128, 32, 8), (64, 16, 16)):
        for kind, mean in (
            ("equal", 512), ("exp", 300), ("uniform", 1000), ("onelong", 256), ("exp", 64), ("uniform", 3000),
        ):  # fmt: skip
            for total in (8192, 16384, 4096):
                for causal in (True, False):
                    for window in (None, 512) if causal and kind != "equal" else (None,):
                        sizes = {"mean": mean, "total": total, "h": h, "kv": kv, "d": d}
                        yield {"kind": kind, **sizes, "causal": causal, "window": window}
    for b, s, d, window in ((2, 4096, 128, 512), (4, 2048, 64, 128)):
        sizes = {"b": b, "s": s, "h": 16, "kv": 16, "d": d}
        yield {"kind": "dense", **sizes, "causal": False, "window": window, "right": window}


def measured(case, flush):
    def operand(*shape):
        return torch.randn(*shape, case["d"], device="cuda", dtype=torch.bfloat16)

    window = {"window_size_left": case["window"], "window_size_right": case.get("right", 0)} if case["window"] else {}
    causal = case["causal"] and not window
    if case["kind"] == "dense":
        of_all, ends, longest = (case["b"], case["s"]), None, case["s"]
    else:
        case["lengths"] = lengths(case["kind"], case["total"], case["mean"])
        ends = torch.tensor([0, *case["lengths"]], device="cuda").cumsum(0).int()
        of_all, longest = (sum(case["lengths"]),), max(case["lengths"])
    q, k, v = operand(*of_all, case["h"]), operand(*of_all, case["kv"]), operand(*of_all, case["kv"])
    packed = (ends, ends, longest, longest, 0.0, causal)

    def forward():
        return ATEN._flash_attention_forward(q, k, v, *packed, False, **window)

    out, sums, state, unused, _ = forward()
    grad = torch.randn_like(out)

    def backward():
        ATEN._flash_attention_backward(grad, q, k, v, out, sums, *packed, state, unused, **window)

    backward()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for call in (forward, forward, forward, backward, backward, backward):
            flush.zero_()
            call()
        torch.cuda.synchronize()
    kernels = {}
    for event in seen.events():
        if event.device_type == DeviceType.CUDA and "flash" in event.name:
            kernels.setdefault(event.name, []).append(round(event.device_time_total, 2))
    return case | {"kernels": kernels}


def main():
    end = time.time() + float(sys.argv[2] if len(sys.argv) > 2 else 300)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    with open(sys.argv[1], "a") as out:
        for case in cases():
            if time.time() < end:
                out.write(json.dumps(measured(case, flush)) + "\n")


if __name__ == "__main__":
    main()
