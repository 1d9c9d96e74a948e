"""Operations that a library brings when it is loaded: what the CPU's kernel gives for values that are known."""

import ctypes
import os

import torch

hook = ctypes.CDLL(None)
hook.phantora_unmodelled_reads.restype = ctypes.c_uint64
computed = []
library = torch.library.Library("brought", "DEF")


def on_cpu(lengths):
    computed.append(lengths.tolist())
    return lengths.cumsum(0)


class Brought:
    """The path of a library of PyTorch's; who asks for it has loaded one that registers operations."""

    def __fspath__(self):
        for name in ("offsets", "of_no_cpu"):
            library.define(f"{name}(Tensor lengths) -> Tensor")
            library.impl(name, torch.empty_like, "CUDA")  # as a kernel that is not executed
        library.impl("offsets", on_cpu, "CPU")
        return os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")


torch.ops.load_library(Brought())
lengths = torch.tensor([3, 1, 2]).cuda()
assert torch.ops.brought.offsets(lengths).tolist() == [3, 4, 6]
assert hook.phantora_unmodelled_reads() == 0
large = torch.ones(3000, 3000, device="cuda")
unknown = (large @ large)[0, :3].long()
assert torch.ops.brought.offsets(unknown).tolist() == [0, 0, 0]
assert hook.phantora_unmodelled_reads() == 1
torch.ops.brought.of_no_cpu(lengths).tolist()
assert hook.phantora_unmodelled_reads() == 2
assert computed == [[3, 1, 2]], "values that nobody knows are not assumed"
print("PASSED")
