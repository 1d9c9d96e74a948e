"""The measured calls that emu/hook/cudnn/workspace.c goes by: `python -m laboratory.fits.workspaces [--left-out]`.

Reads what convolutions needed (laboratory/rows: FILES), writes each call
with the form of its workspace to emu/hook/cudnn/workspaces.csv.gz, or tells how far off calls are whose shapes are left
out. Forms and features are those of workspace.c.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import log2, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.c_lists import read_list

ROOT = Path(__file__).resolve().parents[2]
FILES = {"H100": ("convolutions-h100", "workspaces-h100"), "H200": ("workspaces-h200", "small-convolutions-h200")}
DATA = {gpu: tuple(ROOT / "laboratory" / "rows" / f"{name}.jsonl.gz" for name in names) for gpu, names in FILES.items()}
ANY = "ANY"
"""The GPU of a call whose workspace was measured on one GPU only, or is the same on all."""
LIST = ROOT / "emu" / "hook" / "cudnn" / "workspaces.csv.gz"
COLUMNS = (
    # The GPU of the call (ANY: one or both), and what was asked for,
    *("gpu", "type", "layout", "direction"),
    # the form of what it needed: copies of x, y and w (1), padded (2, 3), kind, amount, bytes besides,
    *("x", "y", "w", "kind", "amount", "rest"),
    # and sizes: `Convolution.row`.
    *("images", "c", "k", "taps", "image", "groups", "stride", "dilation", "flat", "extents", "bf16"),
)

TYPES = {"f16": "HALF", "bf16": "HALF", "tf32": "TF32", "f32": "F32"}
DIRECTIONS = {"fwd": "FORWARD", "dgrad": "DGRAD", "wgrad": "WGRAD"}
METRICS = {
    direction: (int(nearest), float(half_at), tuple(map(float, weights)))
    for _, (direction, nearest, half_at, *weights) in read_list(LIST.with_name("metrics.def"), "METRIC")
}
"""The metric by direction: the number of nearest calls that count, the squared distance at which one counts half, and
the weights of the features. f16 and bf16 differ for few calls.
"""
COPIES = range(4)
"""The copies of an operand: none, as it is, padded, with the channels of each group padded to a power of two."""
MOST_SUMS, MOST_OUTPUTS, MOST_TILES = 150, 20, 300
TILE = 128 * 128 * 4
MOST_OPEN_TILES = 1200
"""The most tiles of a form that says something about calls of other sizes; a call that needs more has no known form."""
OPEN = 2000
"""The bytes that a form may leave open."""
GROUPS_AT_ONCE = 8
ONCE = ("IMAGES", "WINOGRAD", "SPECTRA", "WHOLE_SPECTRA", "TILED_SPECTRA")
KIND_COSTS = {"NOTHING": 0.0, "SUMS": 2.0, "OUTPUTS": 2.5, "TILES": 4.0} | dict.fromkeys(("GROUPS", *ONCE), 1.0)
"""The complexity of each kind of form. Of forms that give the same bytes, the simplest is taken, and the one that
others need.
"""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Form:
    x: int
    y: int
    w: int
    kind: str
    amount: int = 1

    @property
    def complexity(self) -> float:
        return self.x + self.y + self.w + KIND_COSTS[self.kind] + 0.002 * self.amount


@dataclass(frozen=True)
class Convolution:
    """A convolution that cuDNN was asked for. One of one dimension is written as PyTorch asks for it, with a first
    dimension of a single point.
    """

    of: str
    kind: str
    last: bool
    direction: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    stride: int
    dilation: int
    groups: int
    nbytes: int
    gpu: str = ANY

    @property
    def asked(self) -> tuple[Any, ...]:
        return self.kind, self.x, self.w, self.y, self.last, self.direction, self.stride, self.dilation, self.groups

    @property
    def of_kind(self) -> tuple[str, str, str]:
        return TYPES[self.kind], "NHWC" if self.last else "NCHW", DIRECTIONS[self.direction]

    @property
    def shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.x[1:], self.w

    @cached_property
    def row(self) -> tuple[int, ...]:
        taps, extents = prod(self.w[2:]), sum(side > 1 for side in self.x[2:])
        flat = int(taps > 1 and min(self.w[2:]) == 1)
        image = prod(self.y[2:])
        return (
            self.x[0],
            self.x[1],
            self.w[0],
            taps,
            image,
            self.groups,
            self.stride,
            self.dilation,
            flat,
            extents,
            int(self.kind == "bf16"),
        )

    @cached_property
    def features(self) -> list[float]:
        images, c, k, taps, image, groups, stride, dilation, flat, extents, bf16 = self.row
        return [
            log2(images),
            log2(c),
            log2(k),
            log2(taps),
            log2(image),
            log2(images) + log2(image),
            log2(stride),
            log2(dilation),
            log2(groups),
            aligned(c),
            aligned(k),
            extents,
            aligned(image),
            min(log2(c), log2(k)),
            flat,
            taps == 1,
            bf16,
        ]

    @cached_property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        """The bytes of x, y and w, by COPIES."""
        item, least = (2, 8) if TYPES[self.kind] == "HALF" else (4, 4)
        c, k, inner, taps = self.x[1], self.w[0], self.x[1] // self.groups, prod(self.w[2:])
        x, y = item * self.x[0] * prod(self.x[2:]), item * self.y[0] * prod(self.y[2:])
        filters = item * k * inner * taps, item * up(k, least) * up(inner, least) * taps
        found = (0, x * c, x * up(c, least)), (0, y * k, y * up(k, least)), (0, *filters)
        if self.groups == 1:
            return found
        c, k = power_of_two(inner), power_of_two(self.w[0] // self.groups)
        padded = x * c * self.groups, y * k * self.groups, item * c * k * self.groups * taps
        return (*found[0], padded[0]), (*found[1], padded[1]), (*found[2], padded[2])

    @cached_property
    def of_forms(self) -> dict[str, float]:
        """The bytes of each kind of form, once."""
        n, c, k, taps = self.x[0], self.x[1], self.w[0], prod(self.w[2:])
        sums = 4.0 * k * (c // self.groups) * taps
        output = n * (c * prod(self.x[2:]) if self.direction == "dgrad" else k * prod(self.y[2:]))
        found = {"NOTHING": 0.0, "TILES": TILE}
        found |= {"SUMS": sums, "IMAGES": n * sums} if self.direction == "wgrad" else {"OUTPUTS": 4.0 * output}
        if self.groups > 1:
            found["GROUPS"] = (
                (self.operands[0][1] + self.operands[1][1]) / self.groups * min(self.groups, GROUPS_AT_ONCE)
            )
        if len(self.x) == 4 and TYPES[self.kind] != "HALF" and self.groups == 1:
            tiles = n * -(-self.y[2] // 4) * -(-self.y[3] // 4)
            places = 2 if max(self.x[2:]) > 32 - max(self.w[2:]) + 1 else 1
            found["WINOGRAD"] = 36.0 * 4 * (tiles * (c + k) + c * k)
            found["SPECTRA"] = spectrum(32) * (c * k + n * (c + k) * places)
            found["TILED_SPECTRA"] = self._turned(self._side(64), output_too=False)
            if self._side(512) <= 256:
                found["WHOLE_SPECTRA"] = self._turned(self._side(512), output_too=True)
        return found

    def _side(self, largest: int) -> int:
        side, needs = 16, max(x + w - 1 for x, w in zip(self.x[2:], self.w[2:], strict=True))
        while side < min(needs, largest):
            side *= 2
        return side

    def _turned(self, side: int, *, output_too: bool) -> float:
        x, y, w = self.x[0] * self.x[1], self.x[0] * self.w[0], self.x[1] * self.w[0]
        inside, out = {"fwd": (x + w, y), "dgrad": (y + w, x), "wgrad": (x + y, w)}[self.direction]
        turned = self.operands[1][1] if self.direction == "wgrad" else self.operands[2][1]
        return 2 * spectrum(side) * (max(inside, out) if output_too else inside) + turned

    def nbytes_by(self, form: Form) -> float:
        x, y, w = (one if len(one) == len(COPIES) else (*one, one[-1]) for one in self.operands)
        return x[form.x] + y[form.y] + w[form.w] + form.amount * self.of_forms.get(form.kind, 0.0)

    def forms(self) -> Iterator[Form]:
        """Yields the forms that give the measured bytes."""
        x, y, w = self.operands
        close = max(OPEN, 0.0005 * self.nbytes)
        amounts = {"SUMS": MOST_SUMS, "OUTPUTS": MOST_OUTPUTS, "TILES": MOST_TILES}
        for of_x, of_y, of_w in product(range(len(x)), repeat=3):
            rest = self.nbytes - x[of_x] - y[of_y] - w[of_w]
            if rest < -close:
                continue
            for kind, once in self.of_forms.items():
                amount = max(1, round(rest / once)) if once and kind in amounts else 1
                if amount < amounts.get(kind, 2) and abs(rest - amount * once) <= close and (once or kind == "NOTHING"):
                    yield Form(of_x, of_y, of_w, kind, amount)

    def tiles(self) -> Form:
        """A form that is close to the measured bytes, whatever it means."""
        x, y, w = self.operands
        copies = [one for one in product(range(len(x)), repeat=3) if x[one[0]] + y[one[1]] + w[one[2]] <= self.nbytes]
        best = max(copies, key=lambda one: x[one[0]] + y[one[1]] + w[one[2]])
        left = self.nbytes - x[best[0]] - y[best[1]] - w[best[2]]
        return Form(best[0], best[1], best[2], "TILES", round(left / TILE))


def up(value: int, least: int) -> int:
    return -(-value // least) * least


def power_of_two(value: int) -> int:
    return max(8, 1 << (value - 1).bit_length())


def aligned(value: int) -> int:
    return 3 if value % 8 == 0 else 2 if value % 4 == 0 else 1 if value % 2 == 0 else 0


def spectrum(side: int) -> float:
    return side * (side // 2 + 1) * 8.0


# ---- what was measured ----
def read(data: Mapping[str, Iterable[Path]] = DATA) -> dict[tuple[str, str, str], list[Convolution]]:
    """Reads the calls by type, layout and direction: each call once, or once for each GPU where they differ."""
    found: dict[tuple[str, str, str], dict[Any, list[Convolution]]] = defaultdict(lambda: defaultdict(list))
    for gpu, paths in data.items():
        for path in paths:
            with gzip.open(path, "rt") as file:
                for line in map(json.loads, file):
                    for call in _calls_of(line):
                        known = found[call.of_kind][call.asked]
                        if gpu not in {one.gpu for one in known}:
                            known.append(replace(call, gpu=gpu))
    return {
        kind: [call for known in calls.values() for call in _told_apart(known)] for kind, calls in sorted(found.items())
    }


def _told_apart(known: Sequence[Convolution]) -> Sequence[Convolution]:
    return known if len({one.nbytes for one in known}) > 1 else [replace(known[0], gpu=ANY)]


def _calls_of(line: dict[str, Any]) -> Iterator[Convolution]:
    if "nbytes" in line:
        yield _call(line, line["direction"], line["x"], line["y"], line["nbytes"])
    elif "blocks" in line or (line.get("family") == "convolution" and "error" not in line):
        y = _output(line)
        sizes = {"fwd": prod(y), "dgrad": prod(line["x"]), "wgrad": prod(line["w"])}
        given = line.get("blocks") or {one: line[one]["blocks"] for one in sizes if one in line}
        for direction in given:
            blocks = list(given[direction])
            output = sizes[direction] * (2 if TYPES[line["kind"]] == "HALF" else 4)
            blocks.remove(output)
            if len(blocks) > 1:  # the program's own copies, too
                continue
            x, out, asked = line["x"], y, direction
            if line.get("transposed"):
                x, out, asked = y, line["x"], {"fwd": "dgrad", "dgrad": "fwd", "wgrad": "wgrad"}[direction]
            yield _call(line, asked, x, out, sum(blocks))


def _call(line: dict[str, Any], direction: str, x: Sequence[int], y: Sequence[int], nbytes: int) -> Convolution:
    def dims(sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sizes) if len(sizes) > 3 else (*sizes[:2], 1, sizes[2])

    return Convolution(
        line["of"],
        line["kind"],
        line["last"],
        direction,
        dims(x),
        dims(line["w"]),
        dims(y),
        max(line["stride"]),
        max(line["dilation"]),
        line["groups"],
        nbytes,
    )


def _output(line: dict[str, Any]) -> list[int]:
    x, w, stride, pad, far = (line[key] for key in ("x", "w", "stride", "padding", "dilation"))
    if line.get("transposed"):
        sides = [
            (x[2 + i] - 1) * stride[i] - 2 * pad[i] + far[i] * (w[2 + i] - 1) + line["more"][i] + 1
            for i in range(len(stride))
        ]
        return [x[0], w[1] * line["groups"], *sides]
    sides = [(x[2 + i] + 2 * pad[i] - far[i] * (w[2 + i] - 1) - 1) // stride[i] + 1 for i in range(len(stride))]
    return [x[0], w[0], *sides]


def forms_of(calls: Sequence[Convolution]) -> list[Form]:
    """The form of each call. Among the forms that give the measured bytes, it is the one that most calls share, unless
    it is less simple.
    """
    possible = [list(call.forms()) for call in calls]
    shared: dict[Form, float] = defaultdict(float)
    for forms in possible:
        for form in forms:
            shared[form] += 1 / len(forms)
    return [
        max(forms, key=lambda form: min(shared[form], 30) - 4 * form.complexity) if forms else call.tiles()
        for call, forms in zip(calls, possible, strict=True)
    ]


# ---- the table ----
def write(path: Path = LIST) -> None:
    """Writes the rows by type, layout and direction, as `emu/hook/build.py` packs them; equal rows give equal bytes."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    found = read()
    for kind, layout, direction in product(("HALF", "TF32", "F32"), ("NCHW", "NHWC"), DIRECTIONS.values()):
        calls = found[kind, layout, direction]
        for call, form in zip(calls, forms_of(calls), strict=True):
            alone = form.kind == "TILES" and form.amount > MOST_OPEN_TILES
            rest = round(call.nbytes - call.nbytes_by(form))
            numbers = (form.x, form.y, form.w, "ALONE" if alone else form.kind, form.amount, rest, *call.row)
            table.writerow((call.gpu, kind, layout, direction, *numbers))
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


# ---- errors ----
def left_out(calls: Sequence[Convolution], direction: str) -> Floats:
    """The bytes that each call would be predicted to need if no call of its shape, at any batch, were in the list."""
    nearest, half_at, weights = METRICS[direction]
    forms = forms_of(calls)
    features = np.array([call.features for call in calls], float) * np.array(weights)
    squares = (features**2).sum(1)
    apart = np.maximum(squares[:, None] + squares[None] - 2 * features @ features.T, 0.0)
    shapes = {shape: at for at, shape in enumerate({call.shape for call in calls})}
    same = np.array([shapes[call.shape] for call in calls])
    apart[same[:, None] == same[None]] = np.inf
    alone = np.array([np.inf if form.kind == "TILES" and form.amount > MOST_OPEN_TILES else 0.0 for form in forms])
    found = np.empty(len(calls))
    for at, call in enumerate(calls):
        near = np.argsort(apart[at] + alone)[:nearest]
        nbytes = np.array([max(call.nbytes_by(forms[one]), 0) for one in near])
        order, weight = np.argsort(nbytes), 1 / (apart[at][near] + half_at)
        passed = np.cumsum(weight[order])
        found[at] = nbytes[order][int((passed >= passed[-1] / 2).argmax())]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--left-out", action="store_true")
    if not parser.parse_args().left_out:
        write()
        return
    print("| | calls | mean, MB | within 1 % or 0.1 MB | off, MB: mean | 90th percentile |\n| --- |" + 5 * " ---: |")
    names = {name: word for word, name in DIRECTIONS.items()}
    for kind, every in read().items():
        calls = [call for call in every if call.gpu != "H200"]
        real = np.array([call.nbytes for call in calls], float)
        off = np.abs(left_out(calls, names[kind[2]]) - real)
        good = (off <= np.maximum(0.01 * real, 1e5)).mean()
        figures = (one / 1e6 for one in (off.mean(), np.quantile(off, 0.9)))
        row = (
            " ".join(kind).lower(),
            len(calls),
            f"{real.mean() / 1e6:.1f}",
            f"{good:.0%}",
            *map("{:.1f}".format, figures),
        )
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
