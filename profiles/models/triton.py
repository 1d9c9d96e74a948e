"""Models Triton's kernels by what their program does (profiles.triton)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

from formats.ttir import Program, read_program
from profiles.descriptions.gpu import Gpu
from profiles.models.kernels.by_name import by_grid
from profiles.models.machine import OVERLAP, Estimate, Machine, both, overlapped
from profiles.models.products.engines import ENGINES, MULTIPLIED_AS
from profiles.models.products.experts import experts
from profiles.signature import Triton
from profiles.triton.interpreter import launch_work
from profiles.triton.values import Buffer
from profiles.triton.work import LaunchWork

ROUND_NS = 183.0  # a round of dependent loads
REDUCTION_NS = 256.0  # a reduction across the threads of an instance
SHARED_KB_NS = 112.0  # a KiB that an instance passes on through shared memory
FIRST_ROUND_NS = 133.0  # the first loads of each further wave of instances
START_NS = 18.0  # an SM begins a warp of an instance, of the first WARPS
WARPS = 4
HIDDEN = 1.17  # exponent that joins waits and streaming: hardly any is hidden
# The share of the memory traffic that finds nothing in the L2 cache: compiled code reads weights and saved activations,
# and what it wrote just before. Nothing is found from so many times the cache's size on, although streaming kernels
# still find something.
COLD = 0.6
REACH = 3.2
ISSUE = 1.17  # times the instructions counted: addresses, predicates and barriers come on top
ONE_WARP = 2.1  # exponent that joins resources, where an instance is a warp, which uses one after the other
ATOMIC_NS = 0.0012  # the whole GPU's time for one item
PRODUCT_RATE = 1.02  # times the rate of the library's engine
PRODUCT_START_NS = 2_940.0  # an instance with products starts: the first loads of its pipeline, and its results
LOOP_NS = 2_600.0  # a loop of several products begins: where its blocks are, then their first loads
GATHER_NS = 446.0  # numbers that a mask's rule looks up, in each turn of a loop of products
# Exponents that join products and what lies between them: by one instance of an SM, or by several side by side.
BY_TURNS, SIDE_BY_SIDE = 1.55, 1.3
# Factors on the L2 cache's streaming bandwidth; tiles of products are loaded past the first-level cache.
L2 = 1.35
PRODUCT_L2 = 2.1
STREAM = 1.05  # times the streaming bandwidth
WARP = 32
EVEN = 1.1  # instances whose work differs by less
MOST_COUNTS = 16384
"""The most numbers that a signature has for one pointer: emu/hook/kernels/program.c."""
DTYPES = {"f8E4M3FN": "f8e4m3", "f8E5M2": "f8e5m2", "i8": "i8"}

_read = lru_cache(maxsize=512)(read_program)


def triton(gpu: Gpu, what: Triton) -> Estimate:
    try:
        program = _read(what.program)
        integers = integers_of(program, what.arguments)
        if found := experts(gpu, what, integers):
            return found
        work = launch_work(program, what.grid, integers)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        return by_grid(gpu, what, f"Triton program of {what.name}: {error}")
    found = both(
        gpu,
        lambda machine: work_ns(machine, what, work),
        work.flops,
        model="Triton, products" if work.product_flops else "Triton",
        nbytes=work.memory_nbytes,
        peak=max((_peak(dtype) for dtype in work.product_flops), key=gpu.peak_flops, default=""),
    )
    return replace(found, unknown=f"Triton program of {what.name}: a loop's length is data") if work.guesses else found


def integers_of(program: Program, arguments: str) -> dict[str, int | tuple[int, ...] | Buffer]:
    """The integer arguments by name, and the counts or bytes that pointers lead to. `arguments`: in the program's
    order, `-` for those that are not known.
    """
    named = zip(program.parameters, arguments.split(","), strict=False)
    return {parameter.name: known for parameter, value in named if (known := _integers(value)) is not None}


def _integers(text: str) -> int | tuple[int, ...] | Buffer | None:
    if text.lstrip("-").isdecimal():
        return int(text)
    if text.endswith("b"):
        return Buffer(int(text[:-1]))
    if text == "-":
        return None
    counts: list[int] = []
    for run in text.split("+"):
        value, _, times = run.partition("x")
        if not 0 < int(times) <= MOST_COUNTS - len(counts):
            raise ValueError(f"more than {MOST_COUNTS} counts, or none: {run[:40]!r}")
        counts += [int(value)] * int(times)
    return tuple(counts)


def work_ns(machine: Machine, what: Triton, work: LaunchWork) -> float:
    instances, threads = prod(what.grid), max(prod(what.block), WARP)
    limits = machine.gpu.limits
    resident = max(min(limits.blocks_per_sm, limits.threads_per_sm // threads), 1)
    if what.shared_nbytes:
        resident = max(min(resident, limits.shared_nbytes_per_sm // what.shared_nbytes), 1)
    waves = max(instances / (machine.sms * resident), 1.0)
    reach = REACH * machine.gpu.achieved.l2_reach
    memory = machine.memory_ns(work.memory_nbytes, blocks=instances, cold=COLD, reach=reach) / STREAM
    issue, cached = machine.issue_ns(work.instructions), work.sector_nbytes / machine.l2_gb_per_s
    if not work.product_flops:
        issue, cached = ISSUE * issue, cached / L2
        # The floor of a launch has room for one instance that waits once.
        waits = ROUND_NS * max(work.rounds - 1, 0.0) + REDUCTION_NS * work.reductions
        waits += SHARED_KB_NS * what.shared_nbytes / 1024
        latency = waits * waves + FIRST_ROUND_NS * (waves - 1)
        begun = START_NS * min(threads / WARP, WARPS) * instances / machine.sms
        used = overlapped(memory, issue, cached, begun, exponent=ONE_WARP if threads == WARP else OVERLAP)
        used += ATOMIC_NS * work.atomics
        return float((used**HIDDEN + latency**HIDDEN) ** (1 / HIDDEN))
    cached /= PRODUCT_L2
    busy = sum(_product_ns(machine, work, dtype, flops) for dtype, flops in work.product_flops.items())
    uneven = machine.quantised(instances) if instances < machine.sms * 16 else 1.0
    if work.longest > EVEN:  # half of the longest one is left when the first SM has nothing more to do
        uneven = max(uneven, 1.0 + work.longest / 2 * min(machine.sms * resident / instances, 1.0) / resident)
    # The same warps multiply and compute what lies between products.
    multiplied = overlapped(busy, issue, exponent=SIDE_BY_SIDE if resident > 1 else BY_TURNS)
    begins = PRODUCT_START_NS + (LOOP_NS * work.loops + GATHER_NS * work.gathers) / instances
    return begins * waves + overlapped(multiplied * uneven, memory, cached)


def _peak(dtype: str) -> str:
    name = MULTIPLIED_AS.get(DTYPES.get(dtype, dtype), "bf16")
    return "tf32" if name == "f32" else name


def _product_ns(machine: Machine, work: LaunchWork, dtype: str, flops: float) -> float:
    name = _peak(dtype)
    engine = ENGINES[name]
    high, wide = work.smallest_tile or (128, 128)
    narrow = min(high, wide)
    rate = machine.tensor_flops_per_ns(name) * engine.rate * PRODUCT_RATE * machine.sms
    feed = 1 + engine.feed * (1 / high + 1 / wide)
    return float(flops / rate * feed * max(engine.narrow / narrow, 1.0) ** 0.5)
