"""Kernels of vLLM's extensions by size: vllm_kernels_on_gpu.py FOLDER OUT. FOLDER holds `_C_stable_libtorch.so` and
`_moe_C_stable_libtorch.so` of vLLM's wheel (0.33.0). Each call follows a kernel that writes its input, as in a model;
the profiler's durations count. Writes OUT, gzip: JSON lines {op, sizes, name, grid, block, ns: the median of nine}."""

import gzip
import json
import statistics
import sys
import tempfile
from collections import defaultdict

import torch

FOLDER, OUT = sys.argv[1:3]
REPEATS = 9
for library in ("_C_stable_libtorch", "_moe_C_stable_libtorch"):
    torch.ops.load_library(f"{FOLDER}/{library}.so")
C, CACHE, MOE = torch.ops._C, torch.ops._C_cache_ops, torch.ops._moe_C
bf, dev = torch.bfloat16, "cuda"
TOKENS = (
    1,
    2,
    4,
    8,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    16384,
)
cases = []


def normal(*shape, dtype=bf):
    return torch.randn(*shape, device=dev, dtype=torch.float32).to(dtype)


def sizes_of(*arguments):
    return [list(one.shape) if isinstance(one, torch.Tensor) else [] for one in arguments]


def call(op, written, *arguments):
    """A case: the op on these arguments, behind a kernel that writes `written`."""
    source = written.clone()

    def run():
        written.copy_(source)
        op(*arguments)

    return run, sizes_of(*arguments)


def gated(op, tokens, width, dtype=bf):
    x, y = normal(tokens, 2 * width, dtype=dtype), torch.empty(tokens, width, device=dev, dtype=dtype)
    return call(op, x, y, x)


def norm(tokens, width):
    x = normal(tokens, width)
    return call(C.rms_norm, x, torch.empty_like(x), x, normal(width), 1e-5)


def added_norm(tokens, width):
    x, rest = normal(tokens, width), normal(tokens, width)
    return call(C.fused_add_rms_norm, x, x, rest, normal(width), 1e-5)


def rotary(tokens, heads, key_heads, depth):
    qkv = normal(tokens, (heads + 2 * key_heads) * depth)
    q, k, _ = qkv.split([heads * depth, key_heads * depth, key_heads * depth], dim=-1)
    positions = torch.arange(tokens, device=dev) % 8192
    return call(C.rotary_embedding, qkv, positions, q, k, depth, normal(8192, depth), True)


def cached(tokens, key_heads, depth, page=16):
    kv = normal(tokens, 2 * key_heads * depth)
    k, v = (one.view(tokens, key_heads, depth) for one in kv.split(key_heads * depth, dim=-1))
    pages = max(2 * tokens // page + 2, 4096)
    cache = torch.zeros(pages, 2, page, key_heads, depth, device=dev, dtype=bf)
    keys, values = cache.unbind(1)
    slots = torch.randperm(pages, device=dev)[: tokens // page + 1].repeat_interleave(page)[:tokens] * page
    slots += torch.arange(tokens, device=dev) % page
    if tokens <= 512:  # decoding: a sequence's token lies in a page of its own
        slots = torch.randperm(pages, device=dev)[:tokens] * page
    one = torch.ones((), device=dev)
    return call(CACHE.reshape_and_cache_flash, kv, k, v, keys, values, slots, "auto", one, one)


def routed(tokens, experts, chosen):
    scores = normal(tokens, experts)
    out = [torch.empty(tokens, chosen, device=dev, dtype=one) for one in (torch.float32, torch.int32, torch.int32)]
    return call(MOE.topk_softmax, scores, *out, scores, True, None, None)


def aligned(tokens, experts, chosen, block):
    ids = torch.rand(tokens, experts, device=dev).topk(chosen, dim=-1).indices.int()
    most = ids.numel() + experts * (block - 1)
    if ids.numel() < experts:
        most = min(ids.numel() * block, most)
    named = [torch.empty(n, device=dev, dtype=torch.int32) for n in (most, -(-most // block), 1)]
    return call(MOE.moe_align_block_size, ids, ids, experts, block, *named, None, None)


def summed(tokens, chosen, width):
    x = normal(tokens, chosen, width)
    return call(MOE.moe_sum, x, x, torch.empty(tokens, width, device=dev, dtype=bf), None, None)


def scaled(op, tokens, width, per_token):
    x, y = normal(tokens, width), torch.empty(tokens, width, device=dev, dtype=torch.float8_e4m3fn)
    if per_token:
        return call(op, x, y, x, torch.empty(tokens, 1, device=dev), None)
    return call(op, x, y, x, torch.ones(1, device=dev))


def in_groups(tokens, width):
    x, y = normal(tokens, width), torch.empty(tokens, width, device=dev, dtype=torch.float8_e4m3fn)
    scales = torch.empty(tokens, width // 128, device=dev)
    return call(C.per_token_group_fp8_quant, x, x, y, scales, 128, 1e-10, -448.0, 448.0, False, False, False)


def add(make, *about):
    cases.append((make, about))


for tokens in TOKENS:
    for width in (704, 1408, 2048, 3584, 5632, 8192, 11008, 14336, 28672):
        if tokens * width <= 1 << 27:
            add(gated, C.silu_and_mul, tokens, width)
            if width in (2048, 8192):
                add(gated, C.gelu_and_mul, tokens, width)
                add(gated, C.silu_and_mul, tokens, width, torch.float16)
    for width in (1024, 2048, 3072, 4096, 5120, 7168, 8192, 12288):
        add(norm, tokens, width)
        add(added_norm, tokens, width)
    for heads in ((32, 8, 128), (64, 8, 128), (8, 1, 128), (16, 16, 64), (28, 4, 128), (40, 40, 128), (12, 2, 256)):
        add(rotary, tokens, *heads)
        add(cached, tokens, *heads[1:])
    for experts, chosen in (
        (8, 2),
        (16, 1),
        (32, 4),
        (60, 4),
        (64, 6),
        (128, 8),
        (160, 6),
        (256, 8),
        (384, 8),
        (512, 10),
    ):
        add(routed, tokens, experts, chosen)
        for block in (16, 64) if tokens < 4096 else (64, 128):
            add(aligned, tokens, experts, chosen, block)
    for chosen, width in ((2, 4096), (4, 2880), (6, 2048), (8, 2048), (8, 7168)):
        if tokens * chosen * width <= 1 << 29:
            add(summed, tokens, chosen, width)
    for width in (2048, 4096, 8192, 14336):
        if tokens * width <= 1 << 27:
            add(scaled, C.static_scaled_fp8_quant, tokens, width, False)
            add(scaled, C.dynamic_scaled_fp8_quant, tokens, width, False)
            add(scaled, C.dynamic_per_token_scaled_fp8_quant, tokens, width, True)
            add(in_groups, tokens, width)


def durations(run):
    """The kernels of a call, in their order: name, grid, block, the durations of all repetitions."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(REPEATS):
            run()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        events = json.load(open(file.name))["traceEvents"]
    found = defaultdict(list)
    for one in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"]):
        found[one["name"], *map(tuple, (one["args"]["grid"], one["args"]["block"]))].append(one["dur"] * 1e3)
    return [(*key, ns) for key, ns in found.items() if "vllm" in key[0] or len(ns) == REPEATS]


with gzip.open(OUT, "wt") as out:
    for number, (make, about) in enumerate(cases):
        op = next((one for one in about if hasattr(one, "_qualified_op_name")), None)
        try:
            run, sizes = make(*about)
            kernels = durations(run)
        except Exception as error:
            print("failed", make.__name__, about, str(error)[:200], flush=True)
            continue
        for name, grid, block, ns in kernels:
            if "at::native" in name:
                continue
            row = dict(op=make.__name__, arguments=[one for one in about if isinstance(one, int)], sizes=sizes)
            row |= dict(called=op._qualified_op_name if op else "", name=name, grid=grid, block=block)
            out.write(json.dumps(row | dict(ns=round(statistics.median(ns)))) + "\n")
        if number % 200 == 0:
            print(number, len(cases), make.__name__, about[-3:], flush=True)
