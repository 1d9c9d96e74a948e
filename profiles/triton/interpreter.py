"""Follows a Triton program's integers and addresses for a few of its instances.

Floating-point values are not computed. Integers that come from memory are not known: an index is taken to be random, a
count that ends a loop to be what `values.value_loaded` says. Of a loop three iterations are followed, the first, the
middle and the last one; what changes from one to the next is taken to change evenly. A loop whose end is data, and in
which data says where rows lie (a permutation of tokens among experts), turns as often as it takes to go once through
the buffer that it reads or writes in this way; of several, through the one that takes the fewest turns. Where it moves
single items instead of rows (the tokens that a request has sampled), no buffer says how often, and it turns once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from formats.ttir import Operation, Program
from profiles.triton.text import axis_of, constant, elements, pointed, reshaped, result_of, tensors_of
from profiles.triton.values import (
    BINARY,
    COMPARE,
    Buffer,
    Loaded,
    Pointer,
    Share,
    Value,
    addressed,
    combined,
    difference,
    moved,
    selected,
    value_loaded,
)
from profiles.triton.work import SECTOR_NBYTES, LaunchWork

SAMPLES = 6
BRANCHING_SAMPLES = 48  # where instances branch differently or loop a different number of times
# Multiples of these, without their whole parts, fill an interval evenly: the golden ratio, and its like for two.
EVENLY = (0.6180339887498949, 0.7548776662466927)
PIPELINED = 3.0  # loads of the loop of a product that are under way at once
ADVANCED = 0.15  # share of the integer instructions in the loop of a product that is left
PAIRED = 0.08  # of the time of a reduction across threads, one that joins two neighbours
# Times as many instructions, by the root of the number of a loop's products: each waits for what lies before it.
BETWEEN = 1.13

_ITEMS = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "f8E4M3FN": 1,
    "f8E5M2": 1,
}
# Instructions per element of what takes more than one.
_COSTS = {
    "arith.divf": 8.0,
    "math.exp": 8.0,
    "math.exp2": 3.0,
    "math.log": 5.0,
    "math.log2": 4.0,
    "math.sqrt": 6.0,
    "math.rsqrt": 4.0,
    "math.erf": 34.0,
    "math.sin": 16.0,
    "math.cos": 16.0,
    "math.tanh": 15.0,
    "tt.precise_sqrt": 8.0,
    "tt.precise_divf": 10.0,
    "arith.divsi": 2.0,
    "arith.remsi": 2.0,
    "arith.divui": 2.0,
    "arith.remui": 2.0,
    "tt.mulhiui": 2.5,
    "arith.extf": 0.5,
    "arith.truncf": 0.5,
}
_LIBRARY = (("erf", 34.0), ("tanh", 15.0), ("sin|cos|tan", 16.0), ("pow", 40.0), ("exp|log", 10.0), ("sqrt", 5.0))
_FREE = (
    "tt.splat",
    "tt.expand_dims",
    "tt.broadcast",
    "tt.make_range",
    "arith.constant",
    "tt.trans",
    "tt.reshape",
    "tt.get_program_id",
    "tt.get_num_programs",
    "tt.addptr",
    "tt.assert",
    "tt.bitcast",
    "arith.bitcast",
    "arith.index_cast",
    "tt.return",
    "cf.label",
)


Integers = Mapping[str, int | tuple[int, ...] | Buffer]
"""Integer arguments by name, and by pointer the integers in memory or the bytes behind it; those missing are not
known.
"""


def launch_work(program: Program, grid: tuple[int, int, int], integers: Integers) -> LaunchWork:
    """The work of a whole launch."""
    work = _launch_work(program, grid, integers, None)
    turns = [
        behind.nbytes / asked
        for base, asked in work.turned_nbytes.items()
        if isinstance(behind := integers.get(base), Buffer) and behind.nbytes
    ]
    return _launch_work(program, grid, integers, min(turns)) if turns else work


def _launch_work(program: Program, grid: tuple[int, int, int], integers: Integers, turns: float | None) -> LaunchWork:
    """The work of a whole launch, whose loops with an end that is data turn so often; None: once."""
    instances = prod(grid)
    branching = any(one.name == "scf.if" for one in program.body)
    counted = any(isinstance(known, tuple) for known in integers.values())
    places = _sampled(grid, BRANCHING_SAMPLES if branching or counted else SAMPLES)
    work = LaunchWork()
    inner, most = max(len(places) - 2, 1), 0.0
    for number, at in enumerate(places):
        edge = number in (0, len(places) - 1)
        weight = 1.0 if edge or len(places) < 3 else (instances - 2) / inner
        if len(places) < 3:
            weight = instances / len(places)
        run = _Run(program, at, grid, integers, work, turns)
        before = work.flops
        run.block(program.body, weight)
        most = max(most, (work.flops - before) / weight)
        work.rounds = max(work.rounds, run.rounds)
        work.reductions = max(work.reductions, run.reductions)
    for side in (work.reads, work.writes):
        for base, traffic in side.items():
            behind = integers.get(base)
            if isinstance(behind, Buffer) and behind.nbytes:
                traffic.most_nbytes = behind.nbytes
    if work.flops:
        work.longest = most * instances / work.flops
    return work


def _sampled(grid: tuple[int, int, int], most: int) -> list[tuple[int, int, int]]:
    """The first, the last, and others between that fill each axis evenly: blocks of one row may have more to do than
    those of another.
    """
    x, y, z = grid
    if prod(grid) <= most:
        return [(number % x, number // x % y, number // (x * y)) for number in range(prod(grid))]
    one, two = EVENLY
    inner = [
        (int((at + 0.37) / (most - 2) * x), int(at * one % 1 * y), int(at * two % 1 * z)) for at in range(most - 2)
    ]
    return [(0, 0, 0), *inner, (x - 1, y - 1, z - 1)]


class _Run:
    """One instance of the program."""

    def __init__(
        self,
        program: Program,
        at: tuple[int, int, int],
        grid: tuple[int, int, int],
        integers: Integers,
        work: LaunchWork,
        turns: float | None,
    ) -> None:
        self.at, self.grid, self.work = at, grid, work
        self.turns = turns
        self.turned = False
        """True if the block being run is a loop whose end is data."""
        self.rounds = 0.0
        self.reductions = 0.0
        self.multiplies = False
        """True if the block being run is the loop of a product, whose addresses the compiler advances by constants."""
        self.between = 1.0
        """The number of times that its instructions count."""
        self.values: dict[str, Value] = {}
        for parameter in program.parameters:
            known = Pointer(parameter.name, 0) if parameter.is_pointer else integers.get(parameter.name)
            self.values[f"%{parameter.name}"] = known
        self.counts = {name: known for name, known in integers.items() if isinstance(known, tuple)}
        self.indirect = any(isinstance(known, Buffer) for known in integers.values())

    def block(self, operations: Any, weight: float) -> list[Value]:
        """Runs the operations; the values that the block yields."""
        loads = False
        yielded: list[Value] = []
        for one in operations:
            if one.name in ("scf.yield", "tt.reduce.return", "tt.scan.return"):
                yielded = [self.values.get(name) for name in one.operands]
            elif one.name == "scf.for":
                self._for(one, weight)
            elif one.name == "scf.if":
                self._if(one, weight)
            elif one.name == "scf.while":
                self.work.guesses += 1
                for region in one.regions:
                    self.block(region, weight)
            else:
                loads |= one.name in ("tt.load", "tt.gather", "tt.descriptor_load", "tt.experimental_descriptor_load")
                self._single(one, weight)
        self.rounds += loads
        return yielded

    def _get(self, name: str) -> Value:
        return self.values.get(name)

    def _set(self, one: Operation, value: Value) -> None:
        for result in one.results:
            self.values[result] = value

    # ---- control ----

    def _for(self, one: Operation, weight: float) -> None:
        names = re.findall(r"(%[\w.$-]+) = (%[\w.$#-]+)", one.text.split("->")[0])
        variable, (low, high, step) = one.operands[0], one.operands[1:4]
        carried = [(mine, self._get(given)) for mine, given in names if mine != variable]
        if isinstance(self._get(high), Loaded) or isinstance(self._get(low), Loaded):
            self._for_of_data(one, variable, carried, weight)
            return
        trips = self._trips(self._get(low), self._get(high), self._get(step))
        start, by = self._get(low), self._get(step)
        if not isinstance(start, int | np.integer) or not isinstance(by, int | np.integer):
            start, by = 0, 1
        before, reduced, multiplied = self.rounds, self.reductions, self.multiplies
        products = sum(inner.name == "tt.dot" for inner in one.regions[0])
        self.multiplies = bool(products) or multiplied
        between, self.between = self.between, max(self.between, BETWEEN * products**0.5 if products > 1 else 1.0)
        self.work.loops += weight * (products > 1 and trips > 0)
        if trips <= 0:
            final = [value for _, value in carried]
        else:
            first = [value for _, value in carried]
            final = self._iteration(one, variable, int(start), carried, first, 1.0 if trips > 1 else trips, weight)
            change = [difference(a, b) for a, b in zip(first, final, strict=False)]
            for place, share in ((trips // 2, trips - 2), (trips - 1, 1)):
                if trips > 1 and share > 0 and place > 0:
                    entered = [moved(value, by_one, place) for value, by_one in zip(first, change, strict=False)]
                    final = self._iteration(one, variable, int(start + place * by), carried, entered, share, weight)
        self.multiplies, self.between = multiplied, between
        evaluated = min(trips, 3)
        if evaluated > 0:
            self.rounds = before + (self.rounds - before) * trips / evaluated / (PIPELINED if products else 1.0)
            self.reductions = reduced + (self.reductions - reduced) * trips / evaluated
        for result, value in zip(one.results, final, strict=False):
            self.values[result] = value

    def _for_of_data(self, one: Operation, variable: str, carried: list[tuple[str, Value]], weight: float) -> None:
        """Follows one turn of a loop whose end is data, for all that there are."""
        before, reduced, around = self.rounds, self.reductions, self.turned
        self.turned = True
        turns = 1.0 if self.turns is None else self.turns
        self.work.guesses += self.turns is None
        final = self._iteration(one, variable, 0, carried, [value for _, value in carried], turns, weight)
        self.turned = around
        self.rounds = before + (self.rounds - before) * turns
        self.reductions = reduced + (self.reductions - reduced) * turns
        for result, value in zip(one.results, final, strict=False):
            self.values[result] = value

    def _iteration(
        self, one: Operation, variable: str, index: int, carried: Any, entered: list[Value], share: float, weight: float
    ) -> list[Value]:
        self.values[variable] = index
        for (mine, _), value in zip(carried, entered, strict=False):
            self.values[mine] = value
        return self.block(one.regions[0], weight * share)

    def _trips(self, low: Value, high: Value, step: Value) -> int:
        if isinstance(high, Share) or not all(isinstance(one, int | np.integer) for one in (low, high, step)):
            self.work.guesses += 1
            return 1
        return max(-(-(int(high) - int(low)) // max(int(step), 1)), 0)

    def _if(self, one: Operation, weight: float) -> None:
        condition = self._get(one.operands[0]) if one.operands else None
        regions = one.regions
        if isinstance(condition, bool | int | np.bool_ | np.integer):
            regions = regions[:1] if condition else regions[1:2]
        else:
            self.work.guesses += 1
        values: list[Value] = []
        for region in reversed(regions):
            values = self.block(region, weight / max(len(regions), 1))
        for result, value in zip(one.results, values, strict=False):
            self.values[result] = value

    # ---- single operations ----

    def _issue(self, instructions: float) -> None:
        self.work.instructions += instructions * self.between

    def _single(self, one: Operation, weight: float) -> None:
        name = one.name
        count, item = result_of(one)
        if name in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
            self._access(one, weight)
            return
        if name == "tt.dot" or name == "tt.dot_scaled":
            self._product(one, weight)
            return
        if name == "tt.reduce" or name == "tt.scan":
            operands = sum(elements(shape) for shape, _ in tensors_of(one.text.rsplit(": (", 1)[-1]))
            inner = max(len(one.regions[0]) - 1, 1) if one.regions else 1
            self._issue(weight * operands * (1.0 + 0.25 * inner))
            self.reductions += PAIRED if _is_of_pairs(one) else 1.0
            return
        if name == "tt.extern_elementwise":
            symbol = re.search(r'symbol = "(\w+)"', one.text)
            cost = next((c for part, c in _LIBRARY if symbol and re.search(part, symbol[1])), 8.0)
            self._issue(weight * count * cost)
            return
        if name not in _FREE and count > 1:
            advanced = self.multiplies and item.startswith("i")
            self._issue(weight * count * _COSTS.get(name, 1.0) * (ADVANCED if advanced else 1.0))
        self._set(one, self._value(one, name, item))

    def _value(self, one: Operation, name: str, item: str) -> Value:
        operands = [self._get(operand) for operand in one.operands]
        if name == "arith.constant":
            return constant(one.text)
        if name == "tt.get_program_id":
            return self.at["xyz".index(axis_of(one.text))]
        if name == "tt.get_num_programs":
            return self.grid["xyz".index(axis_of(one.text))]
        if name == "tt.make_range":
            end, start = (int(re.search(rf"{key} = (-?\d+)", one.text)[1]) for key in ("end", "start"))  # type: ignore[index]
            return np.arange(start, end, dtype=np.int64)
        if name == "tt.addptr":
            return addressed(*operands[:2])
        if name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"):
            return reshaped(one, name, operands[0])
        if name in (
            "arith.extsi",
            "arith.extui",
            "arith.trunci",
            "arith.index_cast",
            "arith.index_castui",
            "tt.bitcast",
        ):
            return operands[0]
        if name == "arith.cmpi":
            found = re.match(r'"?arith\.cmpi"? (\w+),', one.text)
            return combined(COMPARE.get(found[1]) if found else None, *operands[:2])
        if name == "arith.select":
            return selected(*operands[:3])
        if name.startswith("arith.") and name[6:] in BINARY and len(operands) == 2:
            return combined(BINARY[name[6:]], *operands)
        return None

    # ---- memory and products ----

    def _access(self, one: Operation, weight: float) -> None:
        pointer = self._get(one.operands[0])
        stored = one.name != "tt.load"
        shape, item = pointed(one.text)
        count = elements(shape)
        at = 2 if stored else 1  # a store and an atomic operation take the value before the mask
        mask = self._get(one.operands[at]) if len(one.operands) > at else None
        mask = mask.value if isinstance(mask, Loaded) else mask
        nbytes = _ITEMS.get(item, 4)
        base = pointer.base if isinstance(pointer, Pointer) else "?"
        side = self.work.writes if stored else self.work.reads
        if isinstance(pointer, Pointer) and pointer.offset is not None:
            touched, asked, bounds = _sectors(pointer.offset, shape, mask, nbytes)
            side[base].add(weight * touched, weight * asked, None if pointer.random else bounds)
            if self.turned and pointer.random and shape and asked and self.turns is None:
                self.work.turned_nbytes[base] += weight * asked
            # Whole vectors of 16 bytes where neighbours lie side by side, else one access an element, as where many
            # ask for the same.
            dense = (asked >= 0.5 * touched or self.multiplies) and not (self.multiplies and asked > 2 * touched)
            self._issue(weight * (asked / 16 * 3 if dense else asked / nbytes * 4))
        else:
            side[base].add(weight * count * max(nbytes, SECTOR_NBYTES / 4), weight * count * nbytes, None)
            self._issue(weight * count * 4)
        if one.name.startswith("tt.atomic"):
            self._issue(weight * count * 20)
            self.work.atomics += weight * count
        if not stored:
            self.work.gathers += weight * (self.multiplies and bool(shape) and item in ("i32", "i64"))
            value = value_loaded(pointer, shape, item, self.counts.get(base), indirect=self.indirect)
            self.work.guesses += isinstance(value, Share)
            self._set(one, value)

    def _product(self, one: Operation, weight: float) -> None:
        types = tensors_of(one.text)
        (a, dtype), (b, _) = types[0], types[1]
        m, k, n = a[-2], a[-1], b[-1]
        batch = prod(a[:-2])
        self.work.product_flops[dtype] += weight * 2.0 * batch * m * n * k
        tile = self.work.smallest_tile
        self.work.smallest_tile = (min(m, tile[0]), min(n, tile[1])) if tile else (m, n)


def _is_of_pairs(one: Operation) -> bool:
    """True if a reduction joins two neighbours, as sorting networks do: a thread has both, or its neighbour in the warp
    has one, so that no threads wait for each other.
    """
    axis = re.search(r"axis = (\d+)", one.text)
    shapes = tensors_of(one.text.rsplit(": (", 1)[-1])
    shape = shapes[0][0] if shapes else ()
    return one.name == "tt.reduce" and axis is not None and int(axis[1]) < len(shape) and shape[int(axis[1])] == 2


def _sectors(offset: Any, shape: tuple[int, ...], mask: Value, nbytes: int) -> tuple[float, float, tuple[int, int]]:
    """Bytes of the sectors touched, bytes asked for, and the bounds of the addresses."""
    addresses = np.broadcast_to(np.asarray(offset, dtype=np.int64), shape).ravel() * nbytes
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_:
        addresses = addresses[np.broadcast_to(mask, shape).ravel()]
    elif mask is False or (isinstance(mask, np.bool_) and not mask):
        addresses = addresses[:0]
    if not addresses.size:
        return 0.0, 0.0, (0, 0)
    sectors = addresses // SECTOR_NBYTES
    runs = 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1]))
    # Runs of equal sectors are the distinct ones, unless neighbours lie in another order than memory.
    bounds = int(addresses.min()), int(addresses.max()) + nbytes
    if runs * SECTOR_NBYTES > min(2 * addresses.size * nbytes, bounds[1] - bounds[0] + SECTOR_NBYTES):
        runs = min(runs, int(np.unique(sectors).size))
    return float(runs * SECTOR_NBYTES), float(addresses.size * nbytes), bounds
