"""Makes profiles/measured/h100-convolutions.npz: `python -m laboratory.fits.measured_convolutions FILE.jsonl.gz...`.

FILE: convolutions that convolutions_on_gpu.py, dense_on_gpu.py or more_convolutions_on_gpu.py of laboratory/programs
measured
on an H100. Also prints how far the model is from them, and how far with each shape left out, at all batches and in all
dtypes, what the others say. Long kernels count more, with the root of their time. To be run when the models of
convolutions, or what they rest on, change.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiles.descriptions.gpu import load_gpu
from profiles.models.dispatch import estimate
from profiles.models.errors import UNMEASURED
from profiles.signature import Conv
from profiles.timings.convolutions import FILE, Floats, Members, Nearby, place_of, save, scaled

DIRECTIONS = ("fwd", "dgrad", "wgrad")
TRANSPOSED = {"fwd": "dgrad", "dgrad": "fwd", "wgrad": "wgrad"}


@dataclass(frozen=True, slots=True)
class Convolved:
    what: Conv
    us: float


@dataclass(frozen=True, slots=True)
class Checked:
    measured: Convolved
    off: float
    """The logarithm of modelled over measured time."""
    left_out: float
    """... with what the others say."""
    found: Nearby | None


def read(path: Path) -> Iterator[Convolved]:
    with gzip.open(path, "rt") as file:
        for line in map(json.loads, file):
            if line.get("family") == "convolution":
                for direction in DIRECTIONS:
                    if us := took_us(line, direction):
                        yield Convolved(conv_of(line, direction), us)


def took_us(line: Mapping[str, Any], direction: str) -> float:
    """Kernels of groups that run side by side: the time that passes. 0: not measured."""
    found = line.get(direction, {})
    if not (us := found.get("us", 0.0)):
        return 0.0
    side_by_side = line["groups"] > 1 and any(kernel[1] >= line["groups"] for kernel in found["kernels"])
    return float(min(us, found.get("covered", found["span"])) if side_by_side else us)


def conv_of(line: Mapping[str, Any], direction: str) -> Conv:
    """PyTorch convolves lines as images one pixel high; a transposed convolution is the data's gradient of another."""
    x, w = tuple(line["x"]), tuple(line["w"])
    stride, padding, dilation, groups = (
        tuple(line["stride"]),
        tuple(line["padding"]),
        tuple(line["dilation"]),
        line["groups"],
    )
    around = list(zip(x[2:], w[2:], stride, padding, dilation, strict=True))
    if line.get("transposed"):
        more = line.get("more", (0,) * len(around))
        sides = [
            (side - 1) * step - 2 * pad + apart * (taps - 1) + 1 + extra
            for (side, taps, step, pad, apart), extra in zip(around, more, strict=True)
        ]
        x, y, direction = (x[0], w[1] * groups, *sides), x, TRANSPOSED[direction]
    else:
        sides = [(side + 2 * pad - apart * (taps - 1) - 1) // step + 1 for side, taps, step, pad, apart in around]
        y = (x[0], w[0], *sides)
    layout = "nhwc" if line["last"] and len(around) > 1 else "nchw"
    if len(around) == 1:
        x, w, y = ((*one[:2], 1, *one[2:]) for one in (x, w, y))
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    return Conv(direction, x, w, y, padding, stride, dilation, groups, line["kind"], layout, "", ())


def compare(measured: Sequence[Convolved]) -> list[Checked]:
    gpu = load_gpu("h100")
    offs = [log(estimate(gpu, one.what).solo_ns / 1e3 / one.us) for one in measured]
    families: dict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(measured):
        families[place_of(one.what)[0]].append(number)
    found: dict[int, Checked] = {}
    for numbers in families.values():
        places = np.array([scaled(place_of(measured[number].what)[1]) for number in numbers], np.float32)
        members = Members(places, np.array([-offs[number] for number in numbers], np.float32))
        shapes = [_shape(measured[number].what) for number in numbers]
        known = {shape: place for place, shape in enumerate(dict.fromkeys(shapes))}
        shape = np.array([known[one] for one in shapes])
        for place, number in enumerate(numbers):
            near = members.around(places[place], but=shape == shape[place])
            left = offs[number] + (log(near.factor) if near else 0.0)
            found[number] = Checked(measured[number], offs[number], left, near)
    return [found[number] for number in range(len(measured))]


def _shape(what: Conv) -> tuple[object, ...]:
    return what.w, what.x[2:], what.stride, what.dilation


def tables(compared: Sequence[Checked]) -> dict[str, tuple[Floats, Floats]]:
    places: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    for one in compared:
        family, place = place_of(one.measured.what)
        places[family].append(place)
        ratios[family].append(-one.off)
    return {name: (np.array(places[name], np.float32), np.array(ratios[name], np.float32)) for name in places}


def table(compared: Sequence[Checked]) -> Iterator[str]:
    rows: dict[str, list[Checked]] = defaultdict(list)
    for one in compared:
        what = one.measured.what
        dtype = "16 bits" if what.dtype in ("f16", "bf16") else what.dtype
        of = f"{len(what.w) - 2}D" if what.groups == 1 else "groups"
        rows[f"{dtype} {of} {what.direction} {what.layout}"].append(one)
        rows[f"~all {dtype}"].append(one)
    yield "| calls | measured | model: sign, mean | median | left out: sign, mean | median | stated |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, ones in sorted(rows.items()):
        weights = np.sqrt([one.measured.us for one in ones])
        off, left = (np.array([getattr(one, of) for one in ones]) for of in ("off", "left_out"))
        stated = np.average([one.found.error_share if one.found else UNMEASURED for one in ones], weights=weights)
        cells = [_errors(each, weights) for each in (off, left)]
        yield f"| {name.strip('~')} | {len(ones)} | {cells[0]} | {cells[1]} | {stated:.0%} |"


def _errors(off: NDArray[np.float64], weights: NDArray[np.float64]) -> str:
    sign, mean = np.average(off, weights=weights), np.average(np.abs(off), weights=weights)
    return f"{sign:+.0%}, {mean:.0%} | {np.median(np.abs(off)):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m laboratory.fits.measured_convolutions", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N that are most off")
    arguments = parser.parse_args()
    compared = compare([one for path in arguments.files for one in read(path)])
    save(arguments.out, tables(compared))
    print("\n".join(table(compared)))
    for one in sorted(compared, key=lambda one: -abs(one.left_out) * sqrt(one.measured.us))[: arguments.worst]:
        print(f"{one.measured.us:9.0f} us {one.off:+.2f} {one.left_out:+.2f} {one.measured.what}")


if __name__ == "__main__":
    main()
