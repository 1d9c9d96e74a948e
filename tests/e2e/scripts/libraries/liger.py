"""Liger's kernels: normalisations, the cross entropy that is fused with its projection."""

import torch
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerFusedLinearCrossEntropyLoss, LigerRMSNorm


def operand(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


LigerRMSNorm(1024).cuda().bfloat16()(operand(2, 512, 1024)).sum().backward()
labels = torch.randint(0, 4096, (512,), device="cuda")
LigerCrossEntropyLoss()(operand(512, 4096), labels).backward()
weight = operand(4096, 1024)
LigerFusedLinearCrossEntropyLoss()(weight, operand(512, 1024), labels).backward()
assert weight.grad.shape == weight.shape
torch.cuda.synchronize()
print("PASSED")
