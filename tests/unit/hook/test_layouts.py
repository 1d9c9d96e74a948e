"""The strides of element-wise kernels whose operands are not dense, read from a launch's parameters."""

import ctypes
import struct

import pytest

from .coordinator import BLOCK, GRID, Dim3

COPY = (
    b"_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cudaERNS_"
    b"18TensorIteratorBaseEENKUlvE1_clEvENKUlvE10_clEvEUlN3c108BFloat16EE_EEvS4_RKT_EUliE_EEviT1_"
)
DIMS, DIVIDER = 25, 12


def functor(extent, strides, pointers):
    """Returns ATen's OffsetCalculator and what follows it, with rubbish in the dimensions that are not used."""
    operands = len(pointers)
    sizes = b"".join(struct.pack("<III", size, 7, 7) for size in extent)
    rows = b"".join(struct.pack(f"<{operands}I", *(of[at] for of in strides)) for at in range(len(extent)))
    head = (
        struct.pack("<i", len(extent)) + sizes.ljust(DIMS * DIVIDER, b"\x11") + rows.ljust(DIMS * operands * 4, b"\x22")
    )
    return head.ljust(-(-len(head) // 8) * 8, b"\x33") + struct.pack(f"<{operands}Q", *pointers) + bytes(64)


def signatures(running, name, *functors):
    """Returns the signatures of launches. `functors`: each is given the address of device memory."""

    def program(rank):
        kernel, memory = rank.kernel(name.decode()), ctypes.c_void_p()
        assert rank.c.cudaMalloc(ctypes.byref(memory), 1 << 20) == 0
        for make in functors:
            count, body = ctypes.c_int(64), make(memory.value)
            held = ctypes.create_string_buffer(body, len(body))
            params = (ctypes.c_void_p * 2)(ctypes.addressof(count), ctypes.addressof(held))
            assert rank.c.cudaLaunchKernel(kernel, Dim3(*GRID), Dim3(*BLOCK), params, 0, None) == 0

    return [text.split(";") for text in running(program).signatures]


def test_a_transposed_operand_is_told(running):
    turned = signatures(running, COPY, lambda at: functor((512, 256), ((2, 1024), (512, 2)), (at, at + 4096)))
    assert [(text[0], text[-2:]) for text in turned] == [("strided", ["512x256", "2x1024,512x2"])]


def test_dense_and_repeated_operands_are_not(running):
    (text,) = signatures(running, COPY, lambda at: functor((512, 256), ((2, 1024), (2, 0)), (at, at + 4096)))
    assert text[0] == "kernel"


def test_other_strides_are_other_work(running):
    told = signatures(
        running,
        COPY,
        lambda at: functor((512, 256), ((2, 1024), (512, 2)), (at, at)),
        lambda at: functor((512, 256), ((2, 1024), (512, 2)), (at + 64, at)),
        lambda at: functor((256, 512), ((2, 512), (1024, 2)), (at, at)),
    )
    assert [text[-2] for text in told] == ["512x256", "256x512"]


def test_a_launch_that_is_not_understood_has_no_strides(running):
    """No pointers to device memory stand where the operands' should be."""
    (nowhere,) = signatures(running, COPY, lambda at: functor((512, 256), ((2, 1024), (512, 2)), (at, 4096)))
    assert nowhere[0] == "kernel"


UPSAMPLED = b"_ZN2at6native12_GLOBAL__N_138upsample_bilinear2d_backward_out_frameIffEEvmiiiiT0_S3_bPT_PKS4_"
UPSAMPLED_LAST = b"_ZN2at6native12_GLOBAL__N_143upsample_bilinear2d_backward_nhwc_out_frameIffEEviiiiT0_S3_bPT_PKS4_imm"


@pytest.mark.parametrize(("name", "before_them"), [(UPSAMPLED, 1), (UPSAMPLED_LAST, 0)])
def test_the_gradient_of_an_upsampling_tells_its_images(running, name, before_them):
    def program(rank):
        kernel = rank.kernel(name.decode())
        for sizes in ((49, 50, 392, 400), (98, 100, 392, 400)):
            held = [ctypes.c_uint64(7) for _ in range(before_them)] + [ctypes.c_int(size) for size in sizes]
            held += [ctypes.c_uint64(0) for _ in range(8)]
            params = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
            assert rank.c.cudaLaunchKernel(kernel, Dim3(*GRID), Dim3(*BLOCK), params, 0, None) == 0

    told = [text.split(";") for text in running(program).signatures]
    assert [(text[0], *text[-2:]) for text in told] == [("scaled", "49x50", "392x400"), ("scaled", "98x100", "392x400")]
