"""Host time of calls of cuDNN and cuBLAS, one kind at a time: `python library_calls.py OUT.jsonl [--rounds N]`.

Small shapes, so that the GPU keeps up; 60 calls without synchronisation, 7 rounds of them (the median counts). In emulation the same program
gives what the described host takes. A line: what, `ns` a call, forward or backward."""

import argparse
import gc
import json
import statistics
import time

import torch
from torch import nn

CALLS = 60


def module(layer, *shape, dtype=torch.float32, last=False):
    layer, x = layer.cuda().to(dtype), torch.randn(*shape, device="cuda", dtype=dtype)
    if last:
        layer, x = layer.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return layer, x.requires_grad_()


def cases():
    for dtype in (torch.float16, torch.float32, torch.bfloat16):
        kind = str(dtype).removeprefix("torch.")
        for last in (False, True):
            where = f"{kind} {'nhwc' if last else 'nchw'}"
            yield (
                f"conv2d 16 {where}",
                *module(nn.Conv2d(16, 16, 3, padding=1, bias=False), 2, 16, 8, 8, dtype=dtype, last=last),
            )
            yield (
                f"conv2d 1x1 64 {where}",
                *module(nn.Conv2d(64, 64, 1, bias=False), 2, 64, 8, 8, dtype=dtype, last=last),
            )
            yield (
                f"conv2d groups {where}",
                *module(nn.Conv2d(64, 64, 3, padding=1, groups=8), 2, 64, 8, 8, dtype=dtype, last=last),
            )
            yield f"batch norm {where}", *module(nn.BatchNorm2d(64), 2, 64, 8, 8, dtype=dtype, last=last)
        yield f"conv1d {kind}", *module(nn.Conv1d(32, 32, 5, padding=2), 2, 32, 64, dtype=dtype)
        yield f"conv transposed {kind}", *module(nn.ConvTranspose2d(32, 32, 4, 2, 1), 2, 32, 8, 8, dtype=dtype)
        yield f"lstm 1x64 {kind}", *module(nn.LSTM(64, 64), 4, 8, 64, dtype=dtype)
        yield f"lstm 2x64 both {kind}", *module(nn.LSTM(64, 64, 2, bidirectional=True), 4, 8, 64, dtype=dtype)
        yield f"linear {kind}", *module(nn.Linear(64, 64), 32, 64, dtype=dtype)
        yield f"layer norm {kind}", *module(nn.LayerNorm(64), 32, 64, dtype=dtype)
        yield f"relu {kind}", *module(nn.ReLU(), 32, 64, dtype=dtype)


def timed(run):
    gc.disable()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    took = time.perf_counter() - begin
    torch.cuda.synchronize()
    gc.enable()
    return took / CALLS * 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    gc.collect()
    gc.freeze()  # a collection takes 0.1 s with what PyTorch has loaded
    with open(arguments.out, "a") as out:
        for name, layer, x in cases():
            forward, backward = [], []
            for _ in range(arguments.rounds + 3):
                results = []

                def ahead(results=results, layer=layer, x=x):
                    for _ in range(CALLS):
                        found = layer(x)
                        results.append(found[0] if isinstance(found, tuple) else found)

                forward.append(timed(ahead))
                gradient = torch.ones_like(results[0])

                def back(results=results, gradient=gradient):
                    torch.autograd.backward(results, [gradient] * CALLS)

                backward.append(timed(back))
            for direction, took in (("forward", forward[3:]), ("backward", backward[3:])):
                out.write(
                    json.dumps(
                        {
                            "what": name,
                            "direction": direction,
                            "ns": round(statistics.median(took)),
                            "least": round(min(took)),
                        }
                    )
                    + "\n"
                )
            out.flush()


if __name__ == "__main__":
    main()
