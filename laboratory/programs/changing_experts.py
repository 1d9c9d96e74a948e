"""Measures what it costs that the loads of experts change: a job whose host reads them (moe_tolist of held_jobs.py), with
constant loads and with those that its routers choose.

    python changing_experts.py constant|changing OUT.jsonl

A row has the steps' times, how many of the 48 loads of each step had not occurred before, and the time of the host for
the two products of an expert's forward pass, in microseconds: deciles where the load is new, and where it is not, after
the first ten steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import held_jobs
import torch
from torch.nn import functional as F

LAYERS, FIRST = 6, 10
now = time.perf_counter_ns
stamps: list[list[tuple[int, int]]] = []


def constant(experts: int, chosen: int, tokens: int) -> torch.Tensor:
    """The experts of each token in turn: all loads are equal."""
    rows = torch.arange(tokens, device="cuda")[:, None] * chosen
    return (rows + torch.arange(chosen, device="cuda")) % experts


def forward(self, x):
    """As the job's own, with stamps around the products."""
    flat = x.reshape(-1, x.shape[-1])
    p, e = self.gate(flat).float().softmax(-1).topk(self.k, -1)
    if sys.argv[1] == "constant":
        e = constant(self.n, self.k, len(flat))
    order = e.flatten().argsort(stable=True)
    sizes = torch.bincount(e.flatten(), minlength=self.n).tolist()
    held_jobs.SIZES.append(sizes)
    out, times = [], []
    for i, z in enumerate(flat[order // self.k].split(sizes)):
        up, down = self.up[i].to(z.dtype), self.down[i].to(z.dtype)
        begin = now()
        h = z @ up
        first = now() - begin
        g = F.gelu(h)
        begin = now()
        out.append(g @ down)
        times.append((first, now() - begin))
    stamps.append(times)
    y = torch.cat(out) * p.flatten()[order, None].to(x.dtype)
    return x + torch.zeros_like(flat).index_add(0, order // self.k, y).view_as(x)


def deciles(ns):
    return [round(t / 1e3, 1) for t in statistics.quantiles(ns, n=10)] if len(ns) > 10 else []


def summary(row, times):
    """Replaces the loads of a row by how many were new, and sums the stamps up."""
    seen, new, of = set(), [], {True: ([], []), False: ([], [])}
    for n, (sizes, pairs) in enumerate(zip(row.pop("sizes"), times, strict=True)):
        step = n // LAYERS
        if n % LAYERS == 0:
            new.append(0)
        for size, pair in zip(sizes, pairs, strict=True):
            is_new = size not in seen
            seen.add(size)
            new[-1] += is_new
            for kept, ns in zip(of[is_new], pair, strict=True):
                if step >= FIRST:
                    kept.append(ns)
    for name, pair in (("new", of[True]), ("had", of[False])):
        row |= {f"{name}_up_us": deciles(pair[0]), f"{name}_down_us": deciles(pair[1])}
    return row | {"new_loads": new}


def main():
    mode, out = sys.argv[1:]
    held_jobs.Experts.forward = forward
    torch.cuda.set_device(0)
    row = held_jobs.run("moe_tolist", steps=40, warm=2, all_sizes=True)
    row = {"mode": mode} | summary(row, stamps)
    with open(out, "a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
