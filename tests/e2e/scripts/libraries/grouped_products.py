"""torch._grouped_mm in all layouts, forward and backward."""

import torch

GROUPS, M, K, N = 4, 1024, 512, 768
offsets = torch.arange(M // GROUPS, M + 1, M // GROUPS, device="cuda", dtype=torch.int32)


def operand(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


for x, w, offs, shape in (
    (operand(M, K), operand(GROUPS, K, N), offsets, (M, N)),
    (operand(M, K), operand(GROUPS, N, K).transpose(-2, -1), offsets, (M, N)),
    (operand(GROUPS, M, K), operand(K, M), offsets, (M, M)),
    (operand(K, M), operand(M, N), offsets, (GROUPS, K, N)),
    (operand(GROUPS, 256, K), operand(GROUPS, K, N), None, (GROUPS, 256, N)),
):
    out = torch._grouped_mm(x, w, offs=offs)
    assert out.shape == shape, out.shape
    out.backward(torch.empty_like(out))
torch.cuda.synchronize()
print("PASSED")
