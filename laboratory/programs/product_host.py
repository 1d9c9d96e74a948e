"""What a product of cuBLASLt takes of the host, call by call: `python product_host.py OUT.json`, on a GPU."""

import ctypes
import json
import statistics
import sys
import time

import torch

SIZES = [(4096, 4096, 1024), (4096, 1024, 4096), (1024, 4096, 4096), (4096, 11008, 2048), (2048, 4096, 6144)]
ROUNDS = 300
BF16, F32, COMPUTE_F32, TRANSPOSED, WORKSPACE = 14, 0, 68, 1, 32 << 20
torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if "libcublasLt.so" in line}
lt = ctypes.CDLL(files.pop())
pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
lt.cublasLtMatrixLayoutCreate.argtypes = [pointer, ctypes.c_int, u64, u64, ctypes.c_int64]
lt.cublasLtMatmulAlgoGetHeuristic.argtypes = [pointer] * 7 + [ctypes.c_int] + [pointer] * 2
lt.cublasLtMatmul.argtypes = [pointer] * 13 + [ctypes.c_size_t, pointer]
handle = pointer()
assert lt.cublasLtCreate(ctypes.byref(handle)) == 0
times: dict[str, list[int]] = {}
evict = torch.ones(4 << 20)


def timed(name, call):
    begin = time.perf_counter_ns()
    result = call()
    times.setdefault(name, []).append(time.perf_counter_ns() - begin)
    return result


def layout(rows, columns):
    made = pointer()
    assert lt.cublasLtMatrixLayoutCreate(ctypes.byref(made), BF16, rows, columns, rows) == 0
    return made


def product(way, m, n, k, a, b, c, workspace):
    operation, preference, found = pointer(), pointer(), ctypes.c_int()
    lt.cublasLtMatmulDescCreate(ctypes.byref(operation), COMPUTE_F32, F32)
    lt.cublasLtMatmulDescSetAttribute(operation, 3, ctypes.byref(ctypes.c_int(TRANSPOSED)), u64(4))
    left, right, out = layout(k, m), layout(k, n), layout(m, n)
    lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference))
    lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, ctypes.byref(u64(WORKSPACE)), u64(8))
    results = (ctypes.c_uint8 * 256)()
    asked = handle, operation, left, right, out, out, preference, 1, results, ctypes.byref(found)
    assert timed(f"{way}: choice", lambda: lt.cublasLtMatmulAlgoGetHeuristic(*asked)) == 0
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    called = handle, operation, one, a, left, b, right, zero, c, out, c, out, results, workspace, WORKSPACE, None
    assert timed(f"{way}: launch", lambda: lt.cublasLtMatmul(*called)) == 0
    timed(f"{way}: python", lambda: lt.cublasLtGetVersion())


memory = [torch.zeros(48 << 20, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
addresses = [each.data_ptr() for each in memory]
operands = {
    (m, n, k): (torch.zeros(m, k, device="cuda").bfloat16(), torch.zeros(k, n, device="cuda").bfloat16())
    for m, n, k in SIZES
}
for turn in range(ROUNDS):
    cold = turn % 2
    for size in SIZES:
        way = "new" if not turn else "cold" if cold else "warm"
        if cold:
            evict.add_(1)
        product(way, *size, *addresses)
        if cold:
            evict.add_(1)
        timed(f"{way}: torch.mm", lambda size=size: torch.mm(*operands[size]))
        timed(f"{way}: torch.empty", lambda: torch.empty(16, device="cuda"))
    torch.cuda.synchronize()
found = {name: [statistics.median(each), len(each)] for name, each in times.items()}
with open(sys.argv[1], "w") as file:
    json.dump({"torch": torch.__version__, "median_ns_and_count": found}, file, indent=1)
print(json.dumps(found, indent=1))
