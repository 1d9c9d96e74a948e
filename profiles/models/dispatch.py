"""Chooses the model of a signature by its kind."""

from __future__ import annotations

from profiles.descriptions.gpu import Gpu
from profiles.models.batch_norms import norm
from profiles.models.kernels.by_name import kernel
from profiles.models.libraries import library
from profiles.models.limits import bounded
from profiles.models.machine import Estimate
from profiles.models.products.attention import sdpa
from profiles.models.products.convolution import conv
from profiles.models.products.matrix import gemm
from profiles.models.products.recurrent import rnn
from profiles.models.transfers import copy, memset
from profiles.signature import Conv, Copy, Gemm, Grouped, Kernel, Library, Memset, Norm, Rnn, Sdpa, Signature, Triton


def estimate(gpu: Gpu, what: Signature) -> Estimate:
    return bounded(gpu, what, _modelled(gpu, what))


def _modelled(gpu: Gpu, what: Signature) -> Estimate:
    match what:
        case Gemm():
            return gemm(gpu, what)
        case Conv():
            return conv(gpu, what)
        case Sdpa():
            return sdpa(gpu, what)
        case Norm():
            return norm(gpu, what)
        case Rnn():
            return rnn(gpu, what)
        case Library():
            return library(gpu, what)
        case Triton():
            from profiles.models.triton import triton  # few jobs have Triton's kernels; it reads their programs

            return triton(gpu, what)
        case Kernel() | Grouped():
            return kernel(gpu, what)
        case Copy():
            return copy(gpu, what)
        case Memset():
            return memset(gpu, what)
