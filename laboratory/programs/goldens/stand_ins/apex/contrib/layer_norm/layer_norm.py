"""The persistent kernel's tensors: those of the other one, and its output is a view."""

import torch

from apex.normalization.fused_layer_norm import FusedLayerNormAffineFunction


class FastLayerNormFN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, epsilon, memory_efficient=False):
        made = FusedLayerNormAffineFunction.forward(ctx, x, gamma, beta, gamma.shape, epsilon, memory_efficient)
        return made.view(x.shape)

    @staticmethod
    def backward(ctx, dz):
        return *FusedLayerNormAffineFunction.backward(ctx, dz)[:3], None, None
