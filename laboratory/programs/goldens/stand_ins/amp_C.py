"""Apex's kernels for lists of tensors: what they allocate, and copies in place of scaled copies."""

import torch

BLOCKS = 320
"""Partial sums of a norm."""


def multi_tensor_scale(chunk, noop_flag, tensor_lists, scale):
    torch._foreach_copy_(tensor_lists[1], tensor_lists[0])


def multi_tensor_l2norm(chunk, noop_flag, tensor_lists, per_tensor=False):
    device = tensor_lists[0][0].device
    partial = torch.zeros(BLOCKS, dtype=torch.float32, device=device)
    norms = (
        torch.zeros(len(tensor_lists[0]), dtype=torch.float32, device=device)
        if per_tensor
        else torch.empty(0, device=device)
    )
    norm = torch.zeros(1, dtype=torch.float32, device=device)
    del partial
    return norm, norms
