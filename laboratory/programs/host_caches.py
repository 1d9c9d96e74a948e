"""Measures what a Python function takes, by how many others the thread has run since: where its code and objects still are.

python host_caches.py OUT.jsonl [operators]        `operators`: on a GPU, with an operator between each few functions
"""

import gc
import json
import os
import random
import sys
import time

clock = time.perf_counter_ns
BODY = {
    "short": "def f{n}(o, a, b=1):\n    c = o.x{n} + a\n    if c is None:\n        return b\n    return o.y{n}\n",
    "middle": """def f{n}(o, a, b=1):
    c = o.x{n}
    d = o.d
    if c is None or not isinstance(o, K{n}):
        return b
    d['k{n}'] = a + c
    e = [a, b, c]
    for g in e:
        if g is o:
            return None
        c += g
    try:
        h = len(d) + o.y{n}
    except KeyError:
        h = 0
    if h == -7:
        o.x{n} = c
        o.y{n} = [h, c, d]
        o.d = dict(k=o.x{n}, l=o.y{n})
        return o.d
    return c if h else d
""",
}
MOST = {"short": 32768, "middle": 16384}


def made(kind, count):
    """Functions, each with an object of a class of its own."""
    space, pairs = {}, []
    for n in range(count):
        source = f"class K{n}:\n    def __init__(s):\n        s.x{n}, s.y{n}, s.d = {n}, {n}, {{}}\n" + BODY[
            kind
        ].format(n=n)
        exec(compile(source, f"made{n}", "exec"), space)
        pairs.append((space[f"f{n}"], space[f"K{n}"]()))
    random.Random(0).shuffle(pairs)
    for function, one in pairs * 12:  # the interpreter has specialised them
        function(one, 3)
    return pairs


def once(pairs, rounds):
    gc.disable()
    begin = clock()
    for _ in range(rounds):
        for function, one in pairs:
            function(one, 3)
    took = clock() - begin
    gc.enable()
    return took / rounds / len(pairs)


def loop(pairs, rounds):
    begin = clock()
    for _ in range(rounds):
        for _function, _one in pairs:
            pass
    return (clock() - begin) / rounds / len(pairs)


def by_distance(tell):
    for kind, most in MOST.items():
        pairs = made(kind, most)
        units = len(pairs[0][0].__code__.co_code) // 2
        for turn in range(3):
            n = 8
            while n <= most:
                rounds = max(3, 40_000 // n)
                once(pairs[:n], 2)
                ns = once(pairs[:n], rounds) - loop(pairs[:n], rounds)
                tell(kind=kind, units=units, functions=n, ns=ns, turn=turn)
                n *= 2
        for nbytes in (1 << 19, 1 << 21, 1 << 23, 1 << 25):
            other, total, rounds = (
                bytearray(os.urandom(1 << 12) * (nbytes >> 12)),
                0,
                max(3, min(200, (1 << 27) // nbytes)),
            )
            for _ in range(rounds):
                bytes(memoryview(other)[::64])
                begin = clock()
                for function, one in pairs[:64]:
                    function(one, 3)
                total += clock() - begin
            tell(kind=kind, units=units, after_nbytes=nbytes, ns=total / rounds / 64)


def between_operators(tell):
    import torch

    x, w, norm = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda"), torch.nn.LayerNorm(64).cuda()
    operators = [
        lambda: torch.mm(x, w), lambda: x + w, lambda: x.view(-1), lambda: torch.relu(x), lambda: x.mul(2.0), lambda: norm(x),
        lambda: x.transpose(0, 1).contiguous(), lambda: torch.empty(64, 64, device="cuda"), lambda: x.sum(),
        lambda: torch.cat((x, w)), lambda: x.softmax(-1), lambda: x[3:9],
    ]  # fmt: skip
    for each in (4, 16):
        for count in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
            pairs = made("middle", count)
            groups = [pairs[i : i + each] for i in range(0, count, each)]
            samples = []
            for _ in range(max(4, 4096 // count)):
                total = 0
                for n, group in enumerate(groups):
                    operators[n % len(operators)]()
                    begin = clock()
                    for function, one in group:
                        function(one, 3)
                    total += clock() - begin
                    if n % 64 == 63:
                        torch.cuda.synchronize()
                samples.append(total / count)
            tell(each=each, functions=count, ns=sorted(samples)[len(samples) // 2])


def main():
    with open(sys.argv[1], "a") as file:

        def tell(**row):
            file.write(json.dumps(row) + "\n")
            file.flush()

        (between_operators if "operators" in sys.argv[2:] else by_distance)(tell)


if __name__ == "__main__":
    main()
