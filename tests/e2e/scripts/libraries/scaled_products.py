"""Every form of torch._scaled_mm, the grouped one too: prints which the GPU refuses."""

import torch

M, K, N, GROUPS = 1024, 2048, 4096, 4
E4M3, BF16 = torch.float8_e4m3fn, torch.bfloat16
a = torch.zeros(M, K, device="cuda").to(E4M3)
b = torch.zeros(N, K, device="cuda").to(E4M3).t()
one = torch.ones((), device="cuda")


def attempt(name, product, *operands, **options):
    try:
        out = product(*operands, out_dtype=BF16, **options)
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"{name}: refused: {str(error).splitlines()[0]}")
        return
    assert out.shape == (M, N), out.shape
    print(f"{name}: ran")


def ones(*shape):
    return torch.ones(*shape, device="cuda")


attempt("tensorwise", torch._scaled_mm, a, b, one, one)
attempt("tensorwise, fast", torch._scaled_mm, a, b, one, one, use_fast_accum=True)
attempt("rowwise", torch._scaled_mm, a, b, ones(M, 1), ones(1, N), use_fast_accum=True)
blocks = ones(K // 128, M).t(), ones(N // 128, K // 128).t()
attempt("blocks of 128", torch._scaled_mm, a, b, *blocks)
scales = [torch.zeros(rows * K // 32, device="cuda").to(torch.float8_e8m0fnu) for rows in (M, N)]
attempt("mxfp8", torch._scaled_mm, a, b, *scales)
packed = [torch.zeros(rows, K // 2, device="cuda", dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for rows in (M, N)]
scales = [ones(rows * K // 16).to(E4M3) for rows in (M, N)]
attempt("nvfp4", torch._scaled_mm, packed[0], packed[1].t(), *scales)
offsets = torch.arange(M // GROUPS, M + 1, M // GROUPS, device="cuda", dtype=torch.int32)
weights = torch.zeros(GROUPS, N, K, device="cuda").to(E4M3).transpose(-2, -1)
attempt("grouped", torch._scaled_grouped_mm, a, weights, ones(M), ones(GROUPS, N), offs=offsets)
