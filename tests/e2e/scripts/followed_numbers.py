"""Numbers that nobody computed, on their way through tensors and arrays of the host's, containers, threads, files and
functions in C. Lines that decide by them end in a comment that says so; all others only tell them.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import copy
import csv
import dataclasses
import heapq
import io
import json
import logging
import math
import pickle
import queue
import random
import statistics
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from judging import AverageMeter, Stopper

L = torch.ones(256, 256, device="cuda")
FOLDER = tempfile.mkdtemp()
SCORE: contextvars.ContextVar[Any] = contextvars.ContextVar("SCORE")


def loss() -> Any:
    return (L @ L).mean()


def number() -> Any:
    return loss().item()


def use(*values: Any) -> None:
    """Uses values that are computed."""


def host_tensors() -> None:
    one = torch.zeros(())
    one.copy_(loss())
    use(one.item() > 2)  # decides
    pinned = torch.zeros((), pin_memory=True)
    pinned.copy_(loss(), non_blocking=True)
    torch.cuda.synchronize()
    use(pinned > 2)  # decides
    losses = torch.zeros(3)
    for k in range(3):
        losses[k] = loss()
    use(losses.mean() < 2)  # decides
    losses = torch.zeros(3)
    losses[1] = number()
    use(losses.sum().item() < 2)  # decides
    use(losses[0] < 2)
    columns = torch.zeros(2, 2)
    columns[:, 0].copy_((L @ L)[0, :2])
    use((columns.sum(1) > 3).any())  # decides
    use(columns[:, 1].sum() > 3)  # decides
    stacked = torch.stack([loss().cpu(), loss().cpu()])
    use(stacked.std() > 1)  # decides
    double = loss().detach().to("cpu", torch.float64)
    assert double < 1000  # decides
    use(torch.equal(loss().cpu(), torch.tensor(3.0)))  # decides
    use((L @ L)[0, :4].cpu().sort())  # decides
    while one > 1:  # decides
        pass
    use(one.tolist() > 1)  # decides
    use(torch.zeros(int(one)))  # decides
    sent = torch.tensor([number(), 1.0], device="cuda")
    use(sent.sum().item() > 2)  # decides


def known_again() -> None:
    losses = torch.zeros(3)
    losses[0] = loss()
    losses[0] = 1.0
    use(losses.mean() > 1)
    losses.copy_(loss())
    losses.copy_(torch.ones(3, device="cuda"))
    assert losses.sum() == 3
    losses[1] = loss()
    losses.zero_()
    assert losses.sum() == 0
    losses.add_(loss().cpu())
    torch.ones(3, out=losses)
    assert losses.sum() == 3


def holds(values: Any, *expected: float | None) -> None:
    """Checks that the tensor or array has these numbers; None: nobody computed it, and it decides nothing here."""
    given = values.flatten().tolist()
    known = [type(value) is float for value in given]  # the class of others prints as `float`, and is another one
    assert known == [value is not None for value in expected], (given, known)
    assert all(one is None or value == one for value, one in zip(given, expected, strict=True)), given


def beside_known() -> None:
    for dtype in (torch.float32, torch.float64):
        one, eight = torch.tensor(number(), dtype=dtype), torch.tensor(8.0, dtype=dtype)
        holds(torch.tensor([number(), 8], device="cuda", dtype=dtype), None, 8)
        holds(torch.tensor([number(), 8], dtype=dtype), None, 8)
        holds(torch.tensor([number(), 8], dtype=dtype).cuda(), None, 8)
        holds(torch.tensor([3, number()], dtype=dtype).pin_memory().to("cuda", non_blocking=True), 3, None)
        holds(torch.stack([one, eight]).cuda(), None, 8)
        holds(torch.cat([one[None], eight[None]]).to("cuda", torch.float32), None, 8)
        holds(torch.from_numpy(np.array([number(), 8.0])).to("cuda", dtype), None, 8)
    holds(torch.tensor([loss(), 8], device="cuda"), None, 8)
    holds(torch.tensor([[number(), 8], [1, number()]], device="cuda"), None, 8, 1, None)
    holds(L.new_tensor([number(), 3.0]), None, 3)
    losses = torch.zeros(3)
    losses[0], losses[1] = number(), 5
    losses /= 5
    holds(losses, None, 1, 0)
    holds(losses.half().cuda(), None, 1, 0)
    holds((losses + torch.tensor([1.0, number(), 1.0]))[[2, 1]], 1, None)
    holds(torch._foreach_add([losses], 1.0)[0], None, 2, 1)
    holds(losses.reshape(3, 1).expand(3, 2).contiguous(), None, None, 1, 1, 0, 0)
    holds(torch.add(losses, 1, out=torch.zeros(3)), None, 2, 1)
    assert losses[1:].sum() == 1
    assert losses[1] > 0
    use(losses.sum() > 0)  # decides
    sums = torch.zeros(3, device="cuda")
    sums[0] += loss()
    sums[1] += 5
    holds(sums, None, 5, 0)
    _, five, zero = sums.tolist()
    assert five > zero
    array = sums.cpu().numpy()
    holds(array, None, 5, 0)
    holds(array * 2 + 1, None, 11, 1)
    holds(np.stack([array, array])[1], None, 5, 0)
    holds(torch.as_tensor(array, device="cuda"), None, 5, 0)
    array /= 5
    array[2] = 3
    holds(array, None, 1, 3)
    assert array[1:].sum() == 4
    assert array[1] > 0
    use(array.sum() > 0)  # decides


def of_elements_on_the_device() -> None:
    one, row = torch.tensor([0.0, 5.0, 2.0], device="cuda"), torch.tensor([[0.0, 5.0], [2.0, 3.0]], device="cuda")
    one[0], row[0, 0] = loss(), loss()
    last = torch.tensor([2, 0, 1], device="cuda")
    first = torch.tensor([True, False, False], device="cuda")
    five = one[1]
    holds(one + 1, None, 6, 3)
    holds(one / loss(), None, None, None)
    holds(row * torch.tensor([1.0, 2.0], device="cuda"), None, 10, 2, 6)
    holds(torch.stack([loss(), five, five * 2]), None, 5, 10)
    holds(torch.cat([loss()[None], five[None]]), None, 5)
    holds(torch.where(first, loss(), one), None, 5, 2)
    holds(torch.where(first, 7.0, one), 7, 5, 2)
    holds(one[last], 2, None, 5)
    holds(row.index_select(0, last[1:]), None, 5, 2, 3)
    holds(one.gather(0, last), 2, None, 5)
    holds(row.t().contiguous().double(), None, 2, 5, 3)
    holds(row.sum(1), None, 5)
    holds(row.mean(0), None, 4)
    holds(row.max(1).values, None, 3)
    holds(one.flip(0).cumsum(0), 2, 7, None)
    holds(row.sort(1, descending=True).values, None, None, 3, 2)
    holds(torch._foreach_mul([one], 2)[0], None, 10, 4)
    holds(one * loss().cpu(), None, None, None)
    holds(torch.ones(2, device="cuda") * loss().cpu(), None, None)
    holds(one * torch.tensor(2.0), None, 10, 4)
    holds(torch.linalg.vector_norm(row, 0, 1), None, None)
    mean = one.clone().mul_(0.5).add_(torch.ones(3, device="cuda"), alpha=0.5)
    holds(mean, None, 3, 1.5)
    holds(mean.masked_fill_(first, 7.0), 7, 3, 1.5)
    sums = torch.zeros(3, device="cuda")
    sums[last[:2]] = torch.stack([five, loss()])
    holds(sums, None, 0, 5)
    holds(sums.index_add_(0, last[1:], torch.stack([five, five])), None, 5, 5)
    holds(torch.mul(one, 2, out=sums), None, 10, 4)
    assert ((one > 3) & (one > 1))[1:].tolist() == [True, False]
    assert (one == 5)[1:].sum().item() == 1
    assert torch.isfinite(row).all(1)[1]
    assert not row.all(0)[1:].logical_not()
    assert (row > 2).all(1).tolist()[1] is False  # decides


def arrays() -> None:
    part = torch.zeros(2)
    part[0].copy_(loss())
    use(part.numpy()[0] > 2)  # decides
    losses = np.zeros(3)
    losses[1] = number()
    use(losses.mean() > 2)  # decides
    use(np.float64(number()) > 2)  # decides
    use(np.mean([number(), number()]) > 2)  # decides
    use((L @ L)[:4, :4].cpu().numpy().argmax())  # decides
    square = np.asarray((L @ L)[:4, :4].cpu())
    use(np.argsort(square, axis=1))  # decides
    use(np.array([loss().cpu(), 1.0]).max() > 2)  # decides
    use(np.zeros(()) + number() > 2)  # decides
    use(np.array_equal(loss().cpu().numpy(), np.float32(3.0)))  # decides
    use(torch.from_numpy(loss().cpu().numpy()) > 2)  # decides


async def gathered() -> Any:
    async def get() -> Any:
        return number()

    return await asyncio.gather(get(), get())


def containers() -> None:
    meter = AverageMeter()
    meter.add(number())
    meter.add(loss().cpu())
    use(meter.mean() > 2)  # decides
    stopper = Stopper()
    stopper.step(number())
    stopper.step(number())
    use(asyncio.run(gathered())[1] > 2)  # decides
    try:
        raise ValueError(number())
    except ValueError as error:
        use(error.args[0] > 2)  # decides
    SCORE.set(number())
    use(SCORE.get() > 2)  # decides
    named: Any = Stopper()
    setattr(named, "last", number())  # noqa: B010
    use(getattr(named, "last") > 2)  # noqa: B009 # decides
    names = {"v": number()}
    exec("r = v > 2", names)  # decides
    eval("v > 2", names)  # decides
    kept: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: kept.__setitem__("a", number()))
    thread.start()
    thread.join()
    use(kept["a"] > 2)  # decides
    use(len({number(), 1.0}))  # decides
    use(collections.Counter([number()]))  # decides
    for value in iter(number, 0.0):  # decides
        use(value)
    heapq.heapify([(number(), i) for i in range(3)])  # decides
    waiting: Any = queue.PriorityQueue()
    waiting.put((number(), 1))
    waiting.put((number(), 2))  # decides
    use(copy.deepcopy({"a": number()})["a"] > 2)  # decides

    @dataclasses.dataclass(order=True)
    class Trial:
        score: float

    max(Trial(number()), Trial(2.0))  # decides


def files() -> None:
    use(pickle.loads(pickle.dumps(number())) > 2)  # decides
    torch.save({"best": number(), "loss": loss(), "log": [1, number()]}, f"{FOLDER}/last.pt")
    found = torch.load(f"{FOLDER}/last.pt", map_location="cpu")
    use(found["best"] > 2)  # decides
    use(found["loss"] > 2)  # decides
    use(found["log"][1] > 2)  # decides
    use(found["log"][0] > 2)
    totals = torch.tensor([number(), 5.0], device="cuda")
    torch.save([totals, totals.cpu()], f"{FOLDER}/totals.pt")
    device, host = torch.load(f"{FOLDER}/totals.pt")
    holds(device, None, 5)
    holds(host, None, 5)


def extremes() -> None:
    use(max(0.0, number()) > 2)  # decides
    use(min(number() for _ in range(2)) < 2)  # decides
    use(min([9.0, number()]) < 2)  # decides
    use(max([(number(), 1), (number(), 2)]))  # decides
    scores = [number(), number()]
    use(scores.index(max(scores)))  # decides
    use(max("ab", key=lambda letter: number()))  # decides
    best = 9.0
    value = number()
    if value < best:  # decides
        best = value
    use(best)
    if value > 2:  # decides
        print(loss())


def rates() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(8, device="cuda"))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    scheduler.step(number())  # decides
    for group in optimizer.param_groups:
        assert group["lr"] > 0, "the file reads the rate: so the scheduler's decision is told"


def functions_in_c() -> None:
    try:
        use(math.exp(number()))  # decides
    except OverflowError:
        use(math.inf)
    use(math.exp(number()) < 10)  # decides
    use(math.fsum([number(), number()]) > 2)  # decides
    use(float(loss()) > 2)  # decides
    use(statistics.mean([number(), number()]) > 2)  # decides
    recent = collections.deque([number(), number()], maxlen=3)
    use(statistics.stdev(recent) > 2)  # decides
    use(statistics.median(recent) > 2)  # decides
    use(np.mean(recent) > 2)  # decides
    use(np.fromiter((one for one in recent), float).mean() > 2)  # decides
    print(statistics.quantiles(recent), np.std(recent))
    use(torch.tensor([number(), 1.0]).max() > 2)  # decides
    use(random.choices([1, 2], weights=[number(), 1.0]))  # decides
    whole = round(number() * 100)
    use(whole > 3)  # decides
    for _ in range(int(number())):  # decides
        pass


def tells() -> None:
    v, t, a = number(), loss().cpu(), (L @ L)[:2, :2].cpu().numpy()
    print(v, t, a, [v], {"a": v}, f"{v:.3f} {v} {t:.3f} {t.item():g}", str(v), f"{int(v)}")
    logging.getLogger().warning("loss %.3f", v)
    json.dumps({"a": v}, indent=1)
    csv.writer(io.StringIO()).writerow([v])
    assert not math.isnan(v)
    assert math.isfinite(v)
    use(v != v, v == float("inf"), v == math.inf)
    use(np.isnan(a).any(), np.isfinite(a).all(), bool(torch.isnan(t)), bool(torch.isfinite(t).all()))
    np.save(f"{FOLDER}/x.npy", a)
    torch.save({"l": v, "t": t}, f"{FOLDER}/c.pt")
    math.exp(min(20, v))
    print(min([v, v]), max(v, 0.1), min(v for _ in range(2)), v > 2, "good" if v < 1 else "bad")
    best = 9.0
    if v < best:
        best = v
        print(f"new best {v:.3f}")
    elif v > 5 and best > 1:
        logging.getLogger().warning("worse than %.3f", round(best, 3))
    try:
        perplexity = math.exp(v)
    except OverflowError:
        perplexity = float("inf")
    print(best, perplexity)
    parameters = [torch.nn.Parameter(torch.ones(8, device="cuda"))]
    parameters[0].grad = torch.ones(8, device="cuda")
    for optimizer in (torch.optim.Adam(parameters, lr=v), torch.optim.SGD(parameters, lr=1 / (1 + v))):
        optimizer.step()
    torch.distributions.Normal(v, v + 1.0).sample()
    print("mean", sum([v, v]) / 2, np.mean([v, v]), statistics.mean([v, v]), int(v))
    copy.deepcopy({"v": v, "a": a, "t": t})
    pickle.dumps((v, a, t))
    assert type(v).__name__ == "float"
    print(np.float32(1) * v, v * np.ones(2), np.ones(2) * v, v * torch.ones(2), torch.ones(2).mul(v), v.hex())


def main() -> None:
    forms: list[Callable[[], None]] = [
        host_tensors,
        known_again,
        beside_known,
        of_elements_on_the_device,
        arrays,
        extremes,
        containers,
        files,
        functions_in_c,
        rates,
        tells,
    ]
    for form in forms:
        form()
    print("PASSED")


if __name__ == "__main__":
    main()
