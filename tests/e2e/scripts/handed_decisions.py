"""Decisions by values that nobody computed, in nested functions, other threads, pools and another file. Lines that
decide end in a comment that says so; all others only tell the values.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.pool import ThreadPool
from typing import Any

import judging
import torch
from judging import Meter

L = torch.ones(300, 300, device="cuda")


def loss() -> Any:
    return (L @ L).mean()


HISTORY = []
CURRENT = 0.0
TOLD = []


def remember() -> Any:
    HISTORY.append(loss().item())


def look() -> Any:
    if HISTORY[-1] < 3:  # decides
        torch.zeros(1)


def set_current() -> Any:
    global CURRENT
    CURRENT = loss().item()


def use_current() -> Any:
    return CURRENT > 2 and 3  # decides


def pool_submit() -> Any:
    with ThreadPoolExecutor(1) as p:
        f = p.submit(loss().item)
        return 1 if f.result() > 2 else 0  # decides


def evaluate() -> Any:
    return loss().item()


def pool_completed() -> Any:
    with ThreadPoolExecutor(1) as p:
        for f in as_completed([p.submit(evaluate)]):
            if f.result() > 2:  # decides
                torch.zeros(1)


def pool_mapped() -> Any:
    def one(i: Any) -> Any:
        return loss().item() + i

    with ThreadPool(2) as p:
        values = p.map(one, range(3))
    return max(values) > 2  # decides


async def a_eval() -> Any:
    return loss().item()


async def a_main() -> Any:
    if await a_eval() > 2:  # decides
        torch.zeros(1)


async def a_thread() -> Any:
    def inner() -> Any:
        return loss().item()

    v = await asyncio.to_thread(inner)
    return "x" if v > 2 else "y"  # decides


def gen() -> Any:
    for _ in range(2):
        yield loss().item()


def use_gen() -> Any:
    for v in gen():
        if v > 2:  # decides
            torch.zeros(1)


def lam_arg() -> Any:
    better = lambda v, b: v > b  # noqa: E731 # decides
    return better(loss().item(), 2)


def with_callback(fn: Any) -> Any:
    return 1 if fn() > 2 else 0  # decides


def callback() -> Any:
    return with_callback(lambda: loss().item())


class T(threading.Thread):
    def run(self) -> Any:
        self.value = loss().item()
        if self.value > 2:  # decides
            torch.zeros(1)


class T2(threading.Thread):
    def run(self) -> Any:
        self.outcome = loss().item()


def t2() -> Any:
    t = T2()
    t.start()
    t.join()
    return [1, 2][int(t.outcome)]  # decides


def t_list() -> Any:
    out = []

    def work() -> Any:
        out.append(loss().item())

    t = threading.Thread(target=work)
    t.start()
    t.join()
    if out[0] < 9:  # decides
        torch.zeros(1)


def t_queue() -> Any:
    q = queue.Queue()

    def work() -> Any:
        q.put(loss().item())

    t = threading.Thread(target=work)
    t.start()
    t.join()
    return "ok" if q.get() < 9 else "no"  # decides


def t_handed() -> Any:
    def work(n: Any, v: Any) -> Any:
        if v > n:  # decides
            torch.zeros(1)

    t = threading.Thread(target=work, args=(1, loss().item()))
    t.start()
    t.join()


def t_timer() -> Any:
    t = threading.Timer(0.001, lambda: judging.check(loss().item(), 3))
    t.start()
    t.join()


def other_file() -> Any:
    return judging.check(loss().item(), 3)


def static() -> Any:
    return Meter.good(loss().item())


def classm() -> Any:
    return Meter.of(loss().item())


def partial2() -> Any:
    f = functools.partial(judging.check, bound=3)
    return f(loss().item())


def nested_state() -> Any:
    best, bad = 9.0, 0

    def on_epoch(value: Any) -> Any:
        nonlocal best, bad
        if value < best:  # decides
            best, bad = value, 0
        else:
            bad += 1

    on_epoch(loss().item())
    return bad


def closure_container() -> Any:
    losses = [loss().item(), loss().item()]

    def summary() -> Any:
        return sorted(losses)  # decides

    return summary()


def decorated() -> Any:
    def retry(f: Any) -> Any:
        @functools.wraps(f)
        def inner(*a: Any) -> Any:
            r = f(*a)
            return r if r > 2 else None  # decides

        return inner

    @retry
    def step() -> Any:
        return loss().item()

    return step()


def ctx() -> Any:
    v = loss().item()

    class P:
        def ok(self) -> Any:
            return v > 2  # decides

    return P().ok()


def reducer() -> Any:
    return functools.reduce(lambda a, b: a if a < b else b, [loss().item(), 2.0])  # decides


def stop() -> Any:
    for i in range(3):
        if loss() and i > 1:  # decides
            break

    class E:
        stopped = False

    E.stopped = bool(loss() < 0.5)  # decides


def try_lr() -> Any:
    p = torch.nn.Parameter(torch.ones(1))
    o = torch.optim.SGD([p], lr=1.0)
    s = torch.optim.lr_scheduler.LambdaLR(o, lambda e: 0.5 if loss().item() < 3 else 1.0)  # decides
    o.step()
    s.step()


def complex_dec() -> Any:
    return torch.nonzero((L @ L)[:3, :3]).shape  # decides


def uniq_dim() -> Any:
    return torch.unique((L @ L)[:32, :10].argmax(1, keepdim=True), dim=0).shape  # decides


def uniq_cons_dim() -> Any:
    return torch.unique_consecutive((L @ L)[:32, :10].argmax(1, keepdim=True), dim=0).shape  # decides


def eq_choice() -> Any:
    return torch.equal((L @ L)[:32, :10].argmax(1), torch.zeros(32, dtype=torch.long, device="cuda"))  # decides


def eq_large() -> Any:
    return torch.equal(L @ L, L)  # decides


def mask_print() -> Any:
    print((L @ L)[0, :5] > 3)  # decides


def chain_choice() -> Any:
    pred = (L @ L)[:32, :10].argmax(1)
    u, c = pred.unique(return_counts=True)  # decides
    return u[c.argmax()].item()  # decides


def tells() -> Any:
    out = []

    def log(v: Any) -> Any:
        print("inner", v)
        out.append(v)

    log(loss().item())
    if out:
        print(len(out))

    def keep() -> Any:
        return loss().item()

    keep()
    print(f"{keep():.2f}")
    TOLD.append(loss().item())
    if TOLD:
        print(sum(TOLD) / len(TOLD))
    judging.show(loss().item())
    t = threading.Thread(target=log, args=(loss().item(),))
    t.start()
    t.join()
    with ThreadPoolExecutor(1) as p:
        p.submit(log, loss().item()).result()
    d = {"loss": loss().item()}

    def report(step: Any, metrics: Any) -> Any:
        if step % 10 == 0:
            print(step, metrics["loss"])

    report(0, d)
    with ThreadPoolExecutor(1) as p:
        p.submit(report, 1, d).result()
    m = Meter()
    m.update(loss().item())
    print(m.all)
    known = torch.arange(10, device="cuda")
    assert known.unique().numel() == 10
    assert torch.equal(known, known)
    assert len(known.nonzero()) == 9
    big = torch.arange(100000, device="cuda").float().view(100, -1)
    assert torch.equal(big, big + 0)
    assert not torch.equal(big, big + 1)
    assert big[big > 5].numel() == 99994


def main() -> Any:
    remember()
    look()
    set_current()
    use_current()
    pool_submit()
    pool_completed()
    pool_mapped()
    asyncio.run(a_main())
    asyncio.run(a_thread())
    use_gen()
    lam_arg()
    callback()
    t = T()
    t.start()
    t.join()
    t2()
    t_list()
    t_queue()
    t_handed()
    t_timer()
    other_file()
    static()
    classm()
    partial2()
    nested_state()
    closure_container()
    decorated()
    ctx()
    reducer()
    stop()
    try_lr()
    complex_dec()
    uniq_dim()
    uniq_cons_dim()
    eq_choice()
    eq_large()
    mask_print()
    chain_choice()
    tells()
    print("PASSED")


if __name__ == "__main__":
    main()
