"""Convolutions as measured ones like them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import log
from pathlib import Path

import numpy as np
import pytest

import profiles
from laboratory.fits.measured_convolutions import conv_of, read, took_us
from profiles.models.dispatch import estimate
from profiles.models.limits import least_ns
from profiles.signature import Conv, format_signature, parse
from profiles.timings.convolutions import FILE, Members, load, nearby, place_of, save, scaled

DATA = Path(__file__).parents[3] / "laboratory" / "rows"
FILES = ("convolutions", "dense", "more-convolutions")
H100 = profiles.load_gpu("h100")
# A video network's first layer, bf16, channels first: twice as slow as a product of its size.
VIDEO = (
    "conv;fwd;16x3x16x112x112;64x3x3x7x7;16x64x16x56x56;1x3x3;1x2x2;1x1x1;1;bf16;nchw;aten::cudnn_convolution;"
    "[[16, 3, 16, 112, 112], [64, 3, 3, 7, 7], [], [], [], [], [], [], []]"
)
LINE = {
    "x": [2, 8, 10],
    "w": [8, 4, 3],
    "stride": [2],
    "padding": [1],
    "dilation": [1],
    "groups": 2,
    "kind": "f16",
    "last": True,
}


def conv(text: str) -> Conv:
    what = parse(text)
    assert isinstance(what, Conv)
    return what


@pytest.mark.parametrize("name", FILES)
def test_the_shipped_ratios_are_those_of_the_models(name: str) -> None:
    """Else `python -m laboratory.fits.measured_convolutions` must make them anew."""
    known = load(FILE)
    for one in islice(read(DATA / f"{name}-h100.jsonl.gz"), 0, None, 61):
        family, place = place_of(one.what)
        places, ratios = known[family]
        equal = np.abs(places - np.array(place, np.float32)).max(1) < 0.01
        off = log(one.us * 1e3 / estimate(H100, one.what).solo_ns)
        assert np.abs(ratios[equal] - off).min() < 0.01, one


def test_a_convolution_costs_what_one_like_it_took() -> None:
    """16 x 3 channels of 16 x 112 x 112: 3,188 us in a job on an H200; the measured ones are on an H100, of other
    batches and sides.
    """
    cost = profiles.CostModel(profiles.load_gpu("h200")).cost(VIDEO)
    assert cost.source is profiles.Source.INTERPOLATED
    assert estimate(H100, conv(VIDEO)).solo_ns < 1_500e3 < 1_800e3 < cost.solo_ns < 3_500e3


def test_another_architecture_has_other_kernels() -> None:
    assert nearby(profiles.load_gpu("a100-80g"), conv(VIDEO)) is None
    cost = profiles.CostModel(profiles.load_gpu("a100-80g")).cost(VIDEO)
    assert cost.source is profiles.Source.ROOFLINE


def test_the_stated_error_grows_with_what_neighbours_differ_by_and_with_their_distance() -> None:
    near = np.zeros((2, 3), np.float32)
    alike = Members(near, np.array([0.5, 0.5], np.float32)).around(near[0])
    apart = Members(near, np.array([1.0, 0.0], np.float32)).around(near[0])
    far = Members(near + 2, np.array([0.5, 0.5], np.float32)).around(near[0])
    assert alike is not None
    assert apart is not None
    assert far is not None
    assert alike.factor == pytest.approx(1.648, abs=0.002)
    assert alike.error_share < 0.03 < 0.45 < apart.error_share < 0.55
    assert 2 * alike.error_share < far.error_share < 0.5
    assert Members(near + 4, np.zeros(2, np.float32)).around(near[0]) is None


def test_a_member_that_is_left_out_says_nothing() -> None:
    places = np.zeros((2, 3), np.float32)
    members = Members(places, np.array([1.0, 0.0], np.float32))
    found = members.around(places[0], but=np.array([True, False]))
    assert found is not None
    assert found.factor == 1.0
    assert members.around(places[0], but=np.array([True, True])) is None


def test_nothing_is_faster_than_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {place_of(conv(VIDEO))[0]: Members(scaled(place_of(conv(VIDEO))[1])[None], np.array([-9.0], np.float32))}
    monkeypatch.setattr("profiles.timings.convolutions._shipped", lambda: members)
    cost = profiles.CostModel(H100).cost(VIDEO)
    assert cost.solo_ns >= 0.999 * least_ns(H100, conv(VIDEO), estimate(H100, conv(VIDEO)))


def test_f16_and_bf16_differ_where_channels_are_few() -> None:
    few, many = conv(VIDEO), replace(conv(VIDEO), x=(16, 64, 16, 112, 112), w=(64, 64, 3, 7, 7))

    def apart(what: Conv) -> float:
        return float(np.linalg.norm(scaled(place_of(replace(what, dtype="f16"))[1]) - scaled(place_of(what)[1])))

    assert apart(many) < 1 < 3 < apart(few)


def test_lines_of_measurements_are_read_as_pytorch_calls_cudnn() -> None:
    """Lines as images one pixel high, transposed ones as gradients of the data."""
    what = conv_of(LINE, "fwd")
    assert (what.x, what.w, what.y) == ((2, 8, 1, 10), (8, 4, 1, 3), (2, 8, 1, 5))
    assert (what.stride, what.padding, what.layout) == ((1, 2), (0, 1), "nchw")
    turned = conv_of(LINE | {"transposed": True, "more": [1]}, "fwd")
    assert (turned.direction, turned.y, turned.x) == ("dgrad", (2, 8, 1, 10), (2, 8, 1, 20))
    assert format_signature(what).startswith("conv;fwd;2x8x1x10;8x4x1x3;2x8x1x5;0x1;1x2;1x1;2;f16;nchw;")


def test_groups_side_by_side_count_the_time_that_passes() -> None:
    measured = {"us": 10.0, "span": 6.0, "kernels": [["one", 2.0, 5.0]]}
    assert took_us(LINE | {"fwd": measured}, "fwd") == 6.0
    assert took_us(LINE | {"fwd": measured | {"covered": 5.0}}, "fwd") == 5.0
    assert took_us(LINE | {"fwd": measured | {"kernels": [["all", 1.0, 10.0]]}}, "fwd") == 10.0
    assert took_us(LINE, "fwd") == 0.0


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    places, ratios = np.array([[1.0, 2.0]], np.float32), np.array([0.25], np.float32)
    save(tmp_path / "some.npz", {"half-fwd": (places, ratios)})
    ((name, found),) = load(tmp_path / "some.npz").items()
    assert name == "half-fwd"
    assert found[0].tolist() == [[1.0, 2.0]]
    assert found[1].tolist() == [0.25]
