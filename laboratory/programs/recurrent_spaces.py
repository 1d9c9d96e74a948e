"""python laboratory/programs/recurrent_spaces.py OUT.jsonl.gz [SECONDS]: what cuDNN says that recurrent networks need.

It is asked for the workspace, the reserve space and the space of the weights of networks drawn at random; nothing runs.
A line has the return codes (description, training, inference), mode, algorithm, whether in both directions, dtype,
math type, layers, input, hidden, projection (0: none), batch, steps, dropout, layout (0: steps first, 1: packed), rows
of all sequences, then bytes: workspace and reserve space in training, both in inference, and the weights.
As PyTorch does, it asks for padded input and output unless the sequences are packed.
"""

import ctypes
import glob
import gzip
import json
import random
import sys
import time

import nvidia.cudnn
import torch

DTYPES, LAYOUTS, RATES = [0, 0, 2, 9], [0, 0, 1], [0.0, 0.0, 0.3]
WIDTHS = [32, 64, 96, 128, 200, 256, 300, 384, 400, 512, 640, 768, 1000, 1024, 1500, 2048]
BATCHES = [1, 2, 8, 16, 17, 20, 32, 33, 64, 100, 128, 256]
STEPS = [1, 2, 7, 20, 35, 50, 64, 100, 128, 200, 500]
LSTM, STANDARD, DOUBLE_BIAS, PACKED, FMA, TENSOR_OPS = 2, 0, 2, 1, 3, 1
MOST = 24000


def made(create):
    out = ctypes.c_void_p()
    assert create(ctypes.byref(out)) == 0
    return out


def main(out: str, seconds: float) -> None:
    torch.nn.LSTM(8, 8).cuda()(torch.randn(2, 2, 8, device="cuda"))  # loads cuDNN
    c = ctypes.CDLL(glob.glob(next(iter(nvidia.cudnn.__path__)) + "/lib/libcudnn.so.9")[0])
    handle, net, rate, data = (
        made(c[f"cudnnCreate{what}"]) for what in ("", "RNNDescriptor", "DropoutDescriptor", "RNNDataDescriptor")
    )
    n = ctypes.c_size_t()
    c.cudnnDropoutGetStatesSize(handle, ctypes.byref(n))
    states = torch.empty(n.value, dtype=torch.uint8, device="cuda")
    rows: list[list] = [["states", n.value]]
    draw = random.Random(6)
    last_rate = None

    def width():
        return draw.choice([draw.randint(1, 64), draw.choice(WIDTHS), 8 * draw.randint(1, 200)])

    def drawn(what):
        """Draws one of the quantities that describe a network."""
        return {
            "layers": lambda: draw.choice([1, 1, 2, 2, 3, 4, 6]),
            "inputs": width,
            "hidden": width,
            "batch": lambda: draw.choice(BATCHES),
            "steps": lambda: draw.choice(STEPS),
            "dropout": lambda: draw.choice(RATES),
        }[what]()

    end = time.time() + seconds
    net_of = {}
    while time.time() < end and len(rows) < MOST:
        # Six lines of a network change one quantity each, so that a rule can be read off their differences.
        if len(rows) % 7 == 1:
            net_of = {what: drawn(what) for what in ("layers", "inputs", "hidden", "batch", "steps", "dropout")}
            mode, algorithm = draw.choice([0, 1, 2, 2, 2, 3, 3]), draw.choice([0, 0, 0, 1])
            both, dtype = draw.choice([0, 1]), draw.choice(DTYPES)
            math = draw.choice([FMA, TENSOR_OPS]) if dtype == 0 else TENSOR_OPS
            layout, projects = draw.choice(LAYOUTS), draw.random() < 0.2
            one = net_of
        else:
            what = draw.choice(list(net_of))
            one = net_of | {what: drawn(what)}
        layers, inputs, hidden, batch, steps, dropout = one.values()
        may_project = projects and mode == LSTM and algorithm == STANDARD and hidden > 64
        outputs = max(1, hidden // 4) if may_project else 0
        lengths = [steps] * batch
        if layout == PACKED:
            lengths = sorted([steps] + [draw.randint(1, steps) for _ in range(batch - 1)], reverse=True)
        if dropout != last_rate:
            at = ctypes.c_void_p(states.data_ptr())
            c.cudnnSetDropoutDescriptor(rate, handle, ctypes.c_float(dropout), at, n, ctypes.c_ulonglong(1))
            last_rate = dropout
        status = c.cudnnSetRNNDescriptor_v8(
            net, algorithm, mode, DOUBLE_BIAS, both, 0, dtype, 0, math, inputs, hidden, outputs or hidden, layers,
            rate, int(layout != PACKED),
        )  # fmt: skip
        status = status or c.cudnnSetRNNDataDescriptor(
            data, dtype, layout, steps, batch, inputs, (ctypes.c_int * batch)(*lengths), None
        )
        nbytes = [ctypes.c_size_t() for _ in range(5)]
        at = [ctypes.byref(one) for one in nbytes]
        training = status or c.cudnnGetRNNTempSpaceSizes(handle, net, 1, data, at[0], at[1])
        inference = status or c.cudnnGetRNNTempSpaceSizes(handle, net, 0, data, at[2], at[3])
        c.cudnnGetRNNWeightSpaceSize(handle, net, at[4])
        rows.append(
            [status, training, inference, mode, algorithm, both, dtype, math, layers, inputs, hidden, outputs, batch,
             steps, dropout, layout, sum(lengths), *(one.value for one in nbytes)]
        )  # fmt: skip
    with gzip.open(out, "wt") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 55)
