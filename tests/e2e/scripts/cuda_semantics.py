"""Streams, events, graphs and copies of one GPU as PyTorch programs use them; prints what it measured.

`busy` is a memory-bound kernel whose duration is measured first: times are told as multiples of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch
from torch.cuda import Event, Stream, current_stream

torch.cuda.set_device(0)
large = torch.empty(1 << 30, device="cuda", dtype=torch.bfloat16)
out = torch.empty_like(large)
found: dict[str, object] = {}


def busy() -> None:
    """One kernel of about a millisecond, bound by memory: the power limit does not change its time."""
    torch.add(large, large, out=out)


def timed_event() -> Event:
    return Event(enable_timing=True)


def recorded(stream: Stream | None = None) -> Event:
    event = timed_event()
    event.record(stream or current_stream())
    return event


def us(first: Event, last: Event) -> float:
    last.synchronize()
    return first.elapsed_time(last) * 1e3


def host_us(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e6


def fresh() -> Event:
    torch.cuda.synchronize()
    return recorded()


for _ in range(3):  # libraries set up
    busy()
start = fresh()
busy()
kernel_us = us(start, recorded())
found["kernel"] = kernel_us

# ---- streams and events
side, other = Stream(), Stream()
start = fresh()
side.wait_stream(current_stream())
with torch.cuda.stream(side):
    busy()
    busy()
    first = recorded()
    busy()
other.wait_event(first)
with torch.cuda.stream(other):
    busy()
    last = recorded()
found["wait_event"] = us(start, last) / kernel_us
found["side_stream_s_own_end"] = us(start, recorded(side)) / kernel_us
found["between_streams"] = us(first, last) / kernel_us

start = fresh()
again = timed_event()
busy()
again.record()
waiter = Stream()
waiter.wait_event(again)
busy()
again.record()
found["recorded_again_waiter"] = us(start, recorded(waiter)) / kernel_us
found["recorded_again"] = us(start, again) / kernel_us

never = timed_event()
found["never_recorded_query"] = never.query()
found["never_recorded_synchronize"] = host_us(never.synchronize) / kernel_us

# ---- questions
start = fresh()
busy()
end = recorded()
try:
    start.elapsed_time(end)
except (RuntimeError, ValueError) as error:
    found["elapsed_before_completion"] = type(error).__name__
asked = 0
begun = time.perf_counter()
while not end.query():
    asked += 1
found["query_loop_asked"] = asked
found["query_loop"] = (time.perf_counter() - begun) * 1e6 / kernel_us
found["query_afterwards"] = end.query(), current_stream().query()

# ---- copies: which calls keep the host
size = 1 << 18  # 1 MiB of floats
device, pageable, pinned = torch.zeros(size, device="cuda"), torch.zeros(size), torch.zeros(size).pin_memory()
copies: dict[str, Callable[[], object]] = {
    "pinned to device, non_blocking": lambda: device.copy_(pinned, non_blocking=True),
    "device to pinned, non_blocking": lambda: pinned.copy_(device, non_blocking=True),
    "device to device": lambda: device.copy_(device.clone()),
    "pinned to device": lambda: device.copy_(pinned),
    "device to pinned": lambda: pinned.copy_(device),
    "pageable to device, non_blocking": lambda: device.copy_(pageable, non_blocking=True),
    "device to pageable, non_blocking": lambda: pageable.copy_(device, non_blocking=True),
    "item": lambda: device[0].item(),
}
found["copies"] = {}
for name, copy in copies.items():
    torch.cuda.synchronize()
    for _ in range(10):
        busy()
    found["copies"][name] = host_us(copy) / kernel_us  # type: ignore[index]

# ---- graphs
graph, graph_side = torch.cuda.CUDAGraph(), Stream()
torch.cuda.synchronize()
begun = time.perf_counter()
with torch.cuda.graph(graph):
    busy()
    graph_side.wait_stream(current_stream())
    with torch.cuda.stream(graph_side):
        busy()
    busy()
    current_stream().wait_stream(graph_side)
    busy()
torch.cuda.synchronize()
found["capture"] = (time.perf_counter() - begun) * 1e6 / kernel_us
start = fresh()
replayed_us = host_us(graph.replay)
middle = recorded()
graph.replay()
last = recorded()
found["replay"] = us(start, middle) / kernel_us
found["second_replay"] = us(middle, last) / kernel_us
found["replay_host"] = replayed_us / kernel_us

broken = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(broken):
        busy()
        torch.cuda.synchronize()
except RuntimeError as error:
    found["synchronize_in_a_capture"] = str(error).partition("\n")[0]
start = fresh()  # everything works on after it
busy()
found["after_a_broken_capture"] = us(start, recorded()) / kernel_us

# ---- the launch queue
small = torch.empty(1 << 20, device="cuda")


def launch(count: int) -> None:
    for _ in range(count):
        small.add_(1)


start = fresh()
launch(100)
found["small"] = us(start, recorded()) / 100 / kernel_us
torch.cuda.synchronize()
for _ in range(20):
    busy()
found["launches"] = [host_us(lambda: launch(700)) / kernel_us, host_us(lambda: launch(700)) / kernel_us]
torch.cuda.synchronize()
print("FOUND", json.dumps(found))
