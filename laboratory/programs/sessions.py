"""Calls under torch.profiler, many in one session: what each launches, and how long each kernel takes."""

import json
import os
import tempfile
from bisect import bisect_right
from collections import defaultdict
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from profiles.timings import trace

DEVICE = ("kernel", "gpu_memset", "gpu_memcpy")


def events_of(found):
    path = os.path.join(tempfile.gettempdir(), f"session.{os.getpid()}.json")
    found.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    os.unlink(path)
    return events


def warm(milliseconds=60):
    """Brings the GPU to the clock that it has while it works."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(milliseconds * 4):
        torch.mm(a, a)
    torch.cuda.synchronize()


def session(calls, times, much):
    """`calls`: (name, call) pairs. Lines for each: signatures in order, their times; Triton's kernels one by one."""
    warm()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        for number, (_, call) in enumerate(calls):
            for _ in range(times):
                much.sum()
                torch.cuda.synchronize()
                with record_function(f"case:{number}"):
                    call()
                    torch.cuda.synchronize()
    return read(events_of(found), [name for name, _ in calls])


def read(events, names):
    windows = sorted(
        (event["ts"], event["ts"] + event["dur"], int(event["name"][5:]))
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("case:")
    )

    def window(at):
        place = bisect_right(windows, (at, float("inf"), 0)) - 1
        return place if place >= 0 and at <= windows[place][1] else None

    rounds = defaultdict(list)
    for one in trace.works(events):
        if (place := window(one.at_us)) is not None and not one.signature.startswith("kernel;triton_"):
            rounds[place].append((one.at_us, {"signature": one.signature}, one.for_us))
    ops = trace.ops_of_launches(events)
    for event in events:
        if (
            event.get("cat") == "kernel"
            and event["name"].startswith("triton_")
            and (place := window(event["ts"])) is not None
        ):
            args = event["args"]
            op = ops.get(args["correlation"], {}).get("args", {})
            told = {"name": event["name"], "grid": args["grid"], "block": args["block"], "shared": args.get("shared memory", 0),
                    "dims": op.get("Input Dims", []), "types": op.get("Input type", []), "concrete": op.get("Concrete Inputs", [])}  # fmt: skip
            rounds[place].append((event["ts"], told, event["dur"]))
    by_case = defaultdict(list)
    for place, (_, _, number) in enumerate(windows):
        by_case[number].append(sorted(rounds[place], key=lambda one: one[0]))
    lines = []
    for number, found in sorted(by_case.items()):
        line = {"case": names[number]}
        first = [json.dumps(told) for _, told, _ in found[0]]
        alike = [one for one in found if [json.dumps(told) for _, told, _ in one] == first]
        if len(alike) < len(found):
            line["alike"] = len(alike), len(found)
        line["works"] = [
            told
            | {"us": round(median(one[at][2] for one in alike), 3), "least": round(min(one[at][2] for one in alike), 3)}
            for at, (_, told, _) in enumerate(found[0])
        ]
        lines.append(line)
    return lines
