"""Attention to a cache: the model against public times, and what its time follows from."""

from __future__ import annotations

from collections import defaultdict

import pytest

from laboratory.fits.public_attention import Row, call, measured, modelled_ns
from laboratory.fits.public_gemms import errors
from profiles import load_gpu
from profiles.kernel_names.kernel_name import read_name
from profiles.models.dispatch import estimate
from profiles.models.kernels.by_name import kernel
from profiles.models.machine import Machine
from profiles.models.products.paged import parts, problem_of
from profiles.signature import Kernel, Sequences

H100 = load_gpu("h100")
DECODING = Row("h100", "0.19.0", 0, 16, 1, 3500, 32, 8, 128, 0, 0)


def attention_ns(row: Row, gpu: str = "h100") -> float:
    return estimate(load_gpu(gpu), call(row)[1]).solo_ns


def test_errors_on_the_half_that_was_kept() -> None:
    gpus = {name: load_gpu(name) for name in ("h100", "h200")}
    ratios = defaultdict[str, list[float]](list)
    for row, is_fitted in measured(every=23):
        if not is_fitted:
            ratios[row.kind].append(modelled_ns(gpus[row.gpu], row) / row.ns)
    assert {kind: len(found) > 400 for kind, found in ratios.items()} == {"decoding": True, "context": True}
    for found in ratios.values():
        middle, typical, high = errors(found)
        assert abs(middle) <= 0.03
        assert typical <= 0.11
        assert high <= 0.32


def test_long_decoding_takes_as_long_as_its_keys_take_to_read() -> None:
    """16 x 3,500 tokens of 8 heads of 128 are 229 MB."""
    short, long = (attention_ns(DECODING._replace(keys=keys)) for keys in (128, 3500))
    reading = 16 * 3500 * 8 * 128 * 2 * 2 / 3352.0
    assert reading < long - short < 2 * reading
    faster = attention_ns(DECODING, "h200")
    assert long - faster == pytest.approx(reading * (1 - 3352 / 4800), rel=0.25)


def test_a_window_bounds_what_is_read() -> None:
    windowed = DECODING._replace(window=512)
    assert attention_ns(windowed._replace(keys=100_000)) == pytest.approx(attention_ns(windowed), rel=0.1)
    assert attention_ns(windowed) < attention_ns(DECODING)


def test_context_counts_the_pairs_below_the_diagonal() -> None:
    row = Row("h100", "0.19.0", 0, 1, 8192, 8192, 32, 8, 128, 0, 0)
    found = estimate(H100, call(row)[1])
    assert found.flops == pytest.approx(4 * 32 * 128 * 8192 * 8193 / 2)
    assert found.flops / found.solo_ns * 1e-3 == pytest.approx(600, rel=0.1)  # TFLOP/s
    # A later chunk of the prompt sees all that came before.
    later = estimate(H100, call(row._replace(keys=16384))[1])
    assert later.solo_ns == pytest.approx(3 * found.solo_ns, rel=0.1)


def test_one_long_sequence_is_divided_among_the_gpu() -> None:
    one = DECODING._replace(sequences=1, keys=32768)
    assert attention_ns(one) < attention_ns(one._replace(sequences=8)) < 8 * attention_ns(one)
    problems = [problem_of(call(row)[1], read_name(call(row)[1].name)) for row in (one, DECODING)]
    assert [parts(Machine.alone(H100), problem) for problem in problems if problem] == [132 // 8, 1]
    assert estimate(H100, call(one)[2]).solo_ns > H100.achieved.kernel_floor_ns


def test_eight_bits_halve_what_is_read() -> None:
    row = DECODING._replace(sequences=64, keys=8192)
    assert attention_ns(row._replace(eight_bit=1)) < 0.75 * attention_ns(row)


def test_without_lengths_it_is_not_recognised() -> None:
    what = call(DECODING)[1]
    unknown = Kernel(what.name, what.grid, what.block, what.shared_nbytes, what.op, what.sizes)
    assert kernel(H100, unknown).unknown
    assert not kernel(H100, what).unknown
    without_sizes = Sequences(what.name, what.grid, what.block, 0, what.op, (), 16, 16, 56000, 16, 438, 438, 28, 56000)
    assert kernel(H100, without_sizes).unknown


def test_flash_attention_2_with_pages_counts_its_keys() -> None:
    """Its name is that of kernels without a cache; the op's sizes tell of pages."""
    sizes = ((16, 32, 128), (4096, 16, 8, 128), (4096, 16, 8, 128))
    name = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>, true, false, false>()"

    def ns(keys: int) -> float:
        tiles = -(-keys // 128)
        extent = (16, 16, 16 * keys, 16, 16 * tiles, 16 * tiles, tiles, 16 * keys)
        launch = ((1, 16, 8), (128, 1, 1), 0, "_vllm_fa2_C::varlen_fwd", sizes)
        found = kernel(load_gpu("a100-80g"), Sequences(name, *launch, *extent))
        assert not found.unknown
        return found.solo_ns

    reading = 16 * 3500 * 8 * 128 * 2 * 2 / 2039.0
    assert reading < ns(3500) - ns(128) < 1.5 * reading
