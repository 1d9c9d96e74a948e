"""What operators take of the host in a tight loop: `python hot_loop.py`. Prints µs a call until the host goes on, and until the GPU has ended.

Each of nine operators alone, then a loop of eight of them, as in farthest point sampling: nothing else runs between."""

import time

import torch

DEV, CALLS, WARM = "cuda", 200, 50


def timed(call, warm):
    for _ in range(warm):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    issued = time.perf_counter() - begin
    torch.cuda.synchronize()
    return issued / CALLS * 1e6, (time.perf_counter() - begin) / CALLS * 1e6


def main():
    x, rows = torch.randn(16, 2048, 3, device=DEV), torch.arange(16, device=DEV)
    at, found = torch.zeros(16, dtype=torch.long, device=DEV), torch.zeros(16, 512, dtype=torch.long, device=DEV)
    far, center = torch.full((16, 2048), 1e10, device=DEV), torch.randn(16, 1, 3, device=DEV)
    apart, least = torch.randn(16, 2048, 3, device=DEV), torch.randn(16, 2048, device=DEV)

    def whole():
        nonlocal far, at
        found[:, 3] = at
        far = torch.minimum(far, (x - x[rows, at][:, None]).square().sum(-1))
        at = far.argmax(-1)

    calls = {
        "copy_": lambda: found[:, 3].copy_(at),
        "assignment": lambda: found.__setitem__((slice(None), 3), at),
        "index": lambda: x[rows, at],
        "view": lambda: center[:, None],
        "sub": lambda: x - center,
        "square": lambda: apart.square(),
        "sum": lambda: apart.sum(-1),
        "minimum": lambda: torch.minimum(far, least),
        "argmax": lambda: least.argmax(-1),
        "loop of eight": whole,
    }
    with torch.no_grad():
        for name, call in calls.items():
            print(f"{name:14}", *(f"{us:7.2f}" for us in timed(call, WARM)))


if __name__ == "__main__":
    main()
