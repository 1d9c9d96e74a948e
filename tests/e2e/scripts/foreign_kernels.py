"""Kernels that belong to no operation of ATen write to tensors that exist: what they may have written is unknown."""

from __future__ import annotations

import ctypes

import torch

HOOK = ctypes.CDLL(None)
HOOK.phantora_unmodelled_reads.restype = ctypes.c_uint64
DRIVER = ctypes.CDLL("libcuda.so.1")
PTX = b".version 7.0\n.target sm_80\n.address_size 64\n"


class Struct(ctypes.Structure):
    """A struct like the one in which a tensor accessor is passed by value."""

    _fields_ = [("size", ctypes.c_int64), ("data", ctypes.c_void_p), ("stride", ctypes.c_int64)]


def launch(name: str, *parameters: object) -> None:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert DRIVER.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert DRIVER.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
    addresses = (ctypes.c_void_p * len(parameters))(*[ctypes.addressof(parameter) for parameter in parameters])
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert DRIVER.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, addresses, None) == 0


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def reported(tensor: torch.Tensor) -> bool:
    before = HOOK.phantora_unmodelled_reads()
    value = tensor.cpu()
    counted = bool(HOOK.phantora_unmodelled_reads() > before)
    assert not counted or not value.any(), "what is unknown reads as 0"
    assert counted or torch.equal(value, torch.ones_like(value)), "what is not written keeps its values"
    return counted


def tensors(n: int) -> list[torch.Tensor]:
    return [torch.ones(n, device="cuda") for _ in range(3)]


def main() -> None:
    torch.ones(1, device="cuda")
    for n in (64, 5000, 1 << 20):
        a, b, c = tensors(n)
        launch("_Z3addPKfS0_Pfi", pointer(a), pointer(b), pointer(c), ctypes.c_int(n))  # (const float *, ..., float *)
        assert [reported(a), reported(b), reported(c)] == [False, False, True], n
        a, b, c = tensors(n)
        # template <typename T> __global__ void scale(Accessor<T>, const T *)
        launch("_Z5scaleIfEv8AccessorIT_EPKS1_", Struct(n, c.data_ptr(), 1), pointer(b))
        assert [reported(a), reported(b), reported(c)] == [False, False, True], n
        a, b, c = tensors(n)
        launch("plain_c_name", pointer(a), ctypes.c_int(n), pointer(c))
        assert [reported(a), reported(b), reported(c)] == [True, False, True], n
    graph, c = torch.cuda.CUDAGraph(), torch.ones(64, device="cuda")
    with torch.cuda.graph(graph):
        launch("_Z4fillPf", pointer(c))
    c.fill_(1)
    assert not reported(c)
    graph.replay()
    assert reported(c), "at each launch of the graph"
    print("PASSED")


main()
