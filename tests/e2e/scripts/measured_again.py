"""Work measured as phantora-async profile --sweep and --missing measure it, on the emulated GPU."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from emu.gpubench.__main__ import Server

ADD = (
    "at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >"
)
GEMM = {
    "call": "cublasGemmEx",
    "transa": "t",
    "transb": "n",
    "m": 1024,
    "n": 2048,
    "k": 512,
    "batch": 1,
    "a": "bf16",
    "b": "bf16",
    "c": "bf16",
    "compute": "f32",
    "epilogue": "default",
}
SDPA = {
    "q": [2, 4, 256, 64],
    "k": [2, 4, 256, 64],
    "v": [2, 4, 256, 64],
    "dtype": "bf16",
    "causal": True,
    "dropout": False,
}
CONV = {
    "direction": "wgrad",
    "x": [8, 64, 28, 28],
    "w": [64, 64, 3, 3],
    "y": [8, 64, 28, 28],
    "padding": [1, 1],
    "stride": [1, 1],
    "dilation": [1, 1],
    "groups": 1,
    "dtype": "bf16",
    "layout": "nhwc",
}

server = Server()
find = {"do": "find", "op": "aten::add", "sizes": [[512, 1024], [512, 1024], []], "name": ADD, "grid": [512, 1, 1]}
tried = server.answer(find | {"from": 0, "count": 12})["tried"]
works = [
    {"kind": "gemm", "fields": GEMM},
    {"kind": "sdpa", "fields": SDPA | {"direction": "fwd"}},
    {"kind": "sdpa", "fields": SDPA | {"direction": "bwd"}},
    {"kind": "conv", "fields": CONV},
    {"kind": "memset", "fields": {"nbytes": 4096}},
    {"kind": "copy", "fields": {"direction": "h2d", "nbytes": 40960, "memory": "pinned"}},
    {"kind": "triton", "fields": {}},
    {"call": tried[0]["call"]},
]
times = server.answer({"do": "time", "works": works, "states": ["written"]})["times"]
print("FOUND " + json.dumps({"tried": tried, "times": times}))
