"""Element-wise kernels with operands that are not dense along the innermost dimension."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.signature import Kernel, Strided, format_signature, parse
from profiles.timings.layouts import layout_of
from profiles.timings.table import Measured, Table

GPU = profiles.load_gpu("h100")
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::"
    "{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
)
ADD = COPY.replace("{lambda(c10::BFloat16)#1}", "{lambda(c10::BFloat16, c10::BFloat16)#1}")
SIZES = ((8192, 8192), (8192, 8192), ())
TURNED = Strided(COPY, (131072, 1, 1), (128, 1, 1), 0, "aten::copy_", SIZES, (8192, 8192), "2x16384,16384x2")


def us(what: Kernel) -> float:
    return estimate(GPU, what).solo_ns / 1e3


def test_a_transposed_copy_takes_as_long_as_measured() -> None:
    """506 us on an H100 for 8,192 x 8,192 of bf16 (laboratory/rows/kernels-h100.jsonl.gz)."""
    assert us(TURNED) == pytest.approx(506, rel=0.1)
    assert us(TURNED) > 3 * us(Kernel(*(getattr(TURNED, name) for name in Kernel.__slots__)))


def test_rows_shorter_than_a_block_find_their_sectors_again() -> None:
    """2^22 elements: rows of 64, of which a block has eight, 20 us on an H100; rows of 65,536 32 us."""
    short = replace(TURNED, grid=(8192, 1, 1), sizes=((65536, 64),) * 2, extent=(64, 65536), strides="2x128,131072x2")
    long = replace(TURNED, grid=(8192, 1, 1), sizes=((64, 65536),) * 2, extent=(65536, 64), strides="2x131072,128x2")
    assert us(short) == pytest.approx(20.2, rel=0.3)
    assert us(long) == pytest.approx(32.4, rel=0.1)


def test_what_the_l2_cache_cannot_keep_comes_from_memory_again() -> None:
    """The last dimension of 512 x 1,024 x 32 items is made the first: 136 us in bf16 (32 MB), 410 us in f32 (64 MB)."""
    bf16 = replace(TURNED, grid=(32768, 1, 1), sizes=((32, 512, 1024),) * 2, extent=(524288, 32))
    kept = replace(bf16, strides="2x1048576,64x2")
    again = replace(bf16, name=COPY.replace("c10::BFloat16", "float"), strides="4x2097152,128x4")
    assert us(kept) == pytest.approx(136, rel=0.15)
    assert us(again) == pytest.approx(410, rel=0.15)


def op(name: str, dims: list[list[int]], strides: list[list[int]], types: list[str]) -> dict[str, Any]:
    return {"name": name, "args": {"Input Dims": dims, "Input Strides": strides, "Input type": types}}


BF16 = "c10::BFloat16"


def test_the_layout_follows_from_the_inputs_of_the_op() -> None:
    """The layouts are those that the hook read from the kernels' parameters."""
    copy = op(
        "aten::copy_",
        [[16, 64, 64, 320], [16, 64, 64, 320], []],
        [[1310720, 20480, 320, 1], [1310720, 64, 1, 4096], []],
        [BF16, BF16, "Scalar"],
    )
    assert layout_of(COPY, copy) == ((320, 4096, 16), "2x640x2621440,8192x2x2621440")
    made = op("aten::add", [[200, 300], [200, 300], []], [[300, 1], [1, 200], []], [BF16, BF16, "Scalar"])
    assert layout_of(ADD, made) == ((300, 200), "2x600,2x600,400x2")


def test_dense_operands_have_no_layout() -> None:
    broadcast = op("aten::add", [[512, 256], [512, 1], []], [[256, 1], [1, 1], []], [BF16, BF16, "Scalar"])
    assert layout_of(ADD, broadcast) is None
    assert layout_of("void at::native::vectorized_elementwise_kernel<4>(int)", broadcast) is None


def test_a_time_without_strides_counts_if_it_can_be_that_of_this_layout() -> None:
    plain = format_signature(Kernel(*(getattr(TURNED, name) for name in Kernel.__slots__)))

    def cost(measured_us: int) -> profiles.Cost:
        table = Table()
        table.add({}, [Measured(plain, measured_us * 1000, None, 1, 0)])
        return profiles.CostModel(GPU, profiles.TimesOn(table, GPU)).cost(format_signature(TURNED))

    assert (cost(497).solo_ns, cost(497).source) == (497_000, profiles.Source.MEASURED)
    assert cost(130).source != profiles.Source.MEASURED
    assert parse(format_signature(TURNED)) == TURNED


def test_vectors_of_channels_in_a_batch_norm() -> None:
    """The gradient is channels first, as behind a mean; the images are channels last. Its vectors were read as rows of
    pixels, which made 6 ms of 53 us.
    """
    items = ", ".join([BF16, BF16, *["float"] * 5])
    functor = f"at::native::batch_norm_elementwise_backward_train()::{{lambda({items})#1}}"
    kernel = f"at::native::gpu_kernel_impl_nocast<{functor}>(at::TensorIteratorBase&)::{{lambda(int)#1}}"
    name = f"void at::native::elementwise_kernel<128, 4, {kernel}>(int, {kernel})"
    dims = [[48, 1280, 10, 10], [48, 1280, 10, 10], *[[1280]] * 5, [], [], []]
    strides = [[128000, 100, 10, 1], [128000, 1, 12800, 1280], *[[1]] * 5, [], [], []]
    found = layout_of(
        name, op("aten::native_batch_norm_backward", dims, strides, [BF16, BF16, *["float"] * 5, *["Scalar"] * 3])
    )
    vectors = ",".join(["4x0x0"] * 5)
    assert found == ((1280, 100, 48), f"2x2560x256000,200x2x256000,2x2560x256000,{vectors}")
    what = Strided(name, (12000, 1, 1), (128, 1, 1), 0, "", tuple(map(tuple, dims)), *found)
    assert estimate(GPU, what).solo_ns == pytest.approx(52_800, rel=0.1)
