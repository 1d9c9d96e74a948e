"""Expressions of training scripts. Of known values they give what a CPU gives; of values that nobody computed, each
line warns, but for those that only tell the value or a size that does not depend on it.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import statistics
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn


def inputs(device: str, *, known: bool) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(3)
    big = torch.rand(300, 300, generator=generator).to(device) * 1000
    scores = torch.rand(32, 10, generator=generator).to(device)
    labels = torch.randint(0, 10, (32,), generator=generator).to(device)
    loss = torch.tensor(2.5).to(device)
    if not known:
        big = big @ big
        scores, loss = big[:32, :10] + 0, big.mean()
    return SimpleNamespace(big=big, pred=scores, labels=labels, loss=loss)


def decide(x: SimpleNamespace) -> Iterator[Any]:
    yield 1 if x.loss.item() < 3.0 else 0
    yield 1 if x.loss < 3 else 0
    yield (x.big > 500).any().item()
    yield bool((x.big > 0).all())
    yield bool((x.pred > 0.5).any())
    yield sorted(range(3), key=lambda i: x.pred[i, 0].item())
    yield min(range(3), key=lambda i: float(x.pred[i, 0]))
    yield max(x.pred[:3, 0].tolist()) > 0.5
    yield list(filter(lambda v: v > 0.5, x.pred[0].tolist()))
    yield [i for i, v in enumerate(x.pred[0].tolist()) if v > 0.5]
    yield {0: "a", 1: "b", 2: "c"}.get(int(x.loss.item()), "none")
    yield "abcdefghij"[x.pred.argmax(-1)[0].item()]
    yield x.big.argmax(1).unique().numel()
    yield x.big.argmax().item()
    yield x.big.max(dim=1).indices.tolist()[:3]
    yield x.big[x.big > 500].shape[0]
    yield x.pred[x.pred > 0.5].numel()
    yield len((x.pred > 0.5).nonzero())
    yield len(torch.where(x.pred > 0.5)[0])
    yield torch.where(x.big > 500)[0].shape
    yield torch.argwhere(x.big > 500).size(0)
    yield torch.count_nonzero(x.pred > 0.5).item()
    yield torch.bincount(x.pred.argmax(-1), minlength=10).tolist()
    yield len(torch.bincount(x.big.argmax(1)))
    yield torch.bincount(x.labels * 10 + x.pred.argmax(1), minlength=100).view(10, 10).diag().tolist()
    yield torch.searchsorted(torch.tensor([0.1, 0.5, 0.9], device=x.pred.device), x.pred[0].contiguous()).tolist()
    yield torch.histc(x.big, 4).argmax().item()
    yield (x.pred.topk(3).indices == x.labels[:, None]).any(1).float().mean().item()
    yield (x.pred.argmax(1) == x.labels).float().mean().item()
    yield (x.pred.argmax(1) == x.labels).sum().item()
    yield x.loss.item() in [1.0, 2.0]
    yield 2.0 in x.pred
    yield list(range(int(x.loss)))
    yield f"{x.pred.argmax(1)[0].item():d}"
    yield x.pred.argmax(1).cpu().numpy()[:4].tolist()
    yield (x.pred.detach().cpu().numpy() > 0.5).sum().item()
    yield "hi" if x.loss.item() > 2 else "lo"
    yield bisect.bisect([1, 2, 3], x.loss.item())
    yield [1] * int(x.loss.item())
    yield list(range(10))[: int(x.loss.item())]
    yield list(range(10))[: x.pred.argmax(1)[3]]
    yield x.labels[: x.pred.argmax(1)[3]].shape
    yield torch.zeros(int(x.loss.item())).shape
    yield torch.arange(x.pred.argmax(1)[3].item(), device=x.pred.device).numel()
    yield torch.repeat_interleave(x.labels, x.pred.argmax(1)).numel()
    yield [len(s) for s in torch.arange(100, device=x.pred.device).split((x.pred.argmax(1)[:2] * 0 + 50).tolist())]
    yield torch.equal(x.big, x.big + 1)
    yield torch.allclose(x.pred, x.pred * 1.1)
    yield torch.allclose(x.big, x.big * 1.1)
    yield (x.pred == x.pred.flip(0)).all().item()
    yield [t.tolist() for t in x.pred.argmax(1).unique(return_counts=True)]
    yield x.big.argmax(1).unique_consecutive().numel()
    yield torch.isin(x.pred.argmax(1), torch.tensor([1, 2], device=x.pred.device)).sum().item()
    yield nn.functional.one_hot(x.pred.argmax(1)).shape
    yield len(set(x.pred.argmax(1).tolist()))
    yield collections.Counter(x.pred.argmax(1).tolist()).most_common(1)
    yield [k for k, _ in itertools.groupby(x.pred[0].tolist(), lambda v: v > 0.5)]
    yield len(list(itertools.takewhile(lambda v: v > 0.1, x.pred[0].tolist())))
    yield statistics.median(x.pred[0].tolist()) > 0.5
    yield ((x.big > 500) & (x.big > 400)).sum().item() / max(1, ((x.big > 500) | (x.big > 400)).sum().item())
    yield (x.pred > x.pred.quantile(0.9)).sum().item()
    yield x.big.flatten()[:5000].kthvalue(10).indices.item()
    yield x.pred.masked_select(x.pred > 0.5).numel()
    yield sum((x.pred[0] > 0.5).tolist())
    yield any(v > 0.5 for v in x.pred[0].tolist())
    yield next((i for i, v in enumerate(x.pred[0].tolist()) if v > 0.5), None)
    yield np.where(x.pred[0].cpu().numpy() > 0.5)[0].tolist()
    yield np.arange(10)[x.pred[0].cpu().numpy() > 0.5].tolist()
    yield (x.loss.item(), 1) < (2.0, 2)
    yield {"k": x.loss.item()}["k"] > 1
    yield "y" if x.big.sum() > 10 else "n"
    yield round(x.loss.item(), 1) == 2.5
    yield x.labels[x.pred.argmax(1)].tolist()[:4]
    yield x.big.sort(dim=1).indices[:2, :2].tolist()
    yield (x.pred.cumsum(1) > 1).int().argmax(1).tolist()
    yield torch.nonzero(torch.ones(3, 3, device=x.pred.device).triu() * (x.loss > 1)).shape
    yield x.labels[x.pred.max(1).values > 0.5].numel()
    yield (
        torch.zeros(32, 10, device=x.pred.device)
        .scatter_(1, x.pred.argmax(1, keepdim=True), 1.0)
        .sum(0)
        .argmax()
        .item()
    )
    yield list(range(x.loss.long()))
    yield x.pred.cpu().numpy().max() > 0.5
    yield "x" * int(x.loss.item())
    yield int(x.loss.item()) * (1, 2)
    yield x.loss.item().is_integer()
    yield min({"loss": 3.0}, {"loss": x.loss.item()}, key=lambda one: one["loss"])
    yield torch.randint(0, 3, (1 + int(x.loss.item()),)).shape
    yield x.pred.cpu().topk(2).indices.tolist()


def tell(x: SimpleNamespace) -> Iterator[Any]:
    yield torch.histc(x.pred, 4, 0, 1).tolist()
    yield f"{x.loss.item():.3f}"
    yield x.pred.mean().item()
    yield [round(value, 3) for value in x.pred[0].tolist()]
    yield x.big.gather(1, x.big.argmax(1, keepdim=True)).shape


def compare() -> None:
    on_gpu, on_cpu = inputs("cuda", known=True), inputs("cpu", known=True)
    for one, other in zip((*decide(on_gpu), *tell(on_gpu)), (*decide(on_cpu), *tell(on_cpu)), strict=True):
        assert str(one) == str(other), (one, other)


def show() -> None:
    x = inputs("cuda", known=False)
    for value in (*decide(x), *tell(x)):
        print(value)


if __name__ == "__main__":
    {"known": compare, "unknown": show}[sys.argv[1]]()
    print("PASSED")
