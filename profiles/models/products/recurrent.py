"""cuDNN's recurrent networks: one product over all steps for the inputs, then for each step a product with the
recurrent weights and a kernel that applies the gates.

Where the program asks for a persistent algorithm, the recurrent weights stay in registers and shared memory, and one
kernel runs all steps. Layers and
directions run on streams of their own and overlap in part.
"""

from __future__ import annotations

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.models.products.engines import ALIGNMENT_NBYTES, engine_of
from profiles.models.products.tiles import MEDIUM, Engine, product_ns
from profiles.models.products.transforms import NEVER_SPLIT
from profiles.signature import Rnn, dtype_nbytes

# Gradients of weights sum over rows: tensor cores must have TF32 operands turned first. No sum is split.
SUMS_TF32 = Engine("recurrent weights tf32", MEDIUM, 0.64, 41.0, 43.0, 1.0, 9.3, 590.0, 0.162, 350.0, 50.0, NEVER_SPLIT)
GATES = {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}
CELL_NS = 1_100.0  # beside the floor of a launch
CELL_GB_PER_S = 920.0
SINGLE_ITEMS_STEP = 1.7  # a step's product where rows do not begin at multiples of 16 bytes: items are loaded singly
# Backwards a step's product sums over all gates and has few tiles: nanoseconds an item of the sum.
LONG_SUM_NS = {"f32": 9.5, "tf32": 5.6, "f16": 1.5, "bf16": 1.5}
# The sum of all steps' gate gradients goes through the rows one after the other: nanoseconds a row.
BIAS_ROW_NS = {"lstm": 15.0, "gru": 40.0, "tanh": 4.8, "relu": 4.8}
BIAS_GB_PER_S = 1_300.0
# A step of cuDNN's persistent kernels: those for few units, and, per unit, those for tensor cores.
SMALL_STEP_NS = 2_200.0
STATIC_UNIT_NS = {"fwd": 13.5, "dgrad": 19.0}
GAP_NS = 2_000.0  # between the kernels of a chain, which run on several streams
BEHIND_STEPS = 8  # a layer begins so many steps behind the one below it
SHARE = {"tf32": 0.7}  # share of the GPU that a step's kernels keep busy: their tiles are large
JOINED = 3.0  # exponent of the norm that joins what keeps the GPU busy and what must wait for its turn
BIASES_BESIDE = 0.3  # share of the biases' time that is left beside the biases of other layers


def rnn(gpu: Gpu, what: Rnn) -> Estimate:
    gates, layers = GATES[what.mode], max(what.layers, 1)
    ways = 2 if what.bidirectional else 1
    floor = gpu.achieved.kernel_floor_ns

    def ns(machine: Machine) -> float:
        widths = [what.input if layer == 0 else what.projection * ways for layer in range(layers)]
        found = [_layer_ns(machine, what, gates, width, floor) for width in widths]
        once, work = (ways * sum(one[at] for one in found) for at in (0, 1))
        behind = 1 + (layers - 1) * BEHIND_STEPS / max(what.steps, 1)
        chain = max(one[2] for one in found) * behind
        return once + float((work**JOINED + chain**JOINED) ** (1 / JOINED))

    weights = [
        gates * what.hidden * ((what.input if layer == 0 else what.projection * ways) + what.projection)
        for layer in range(layers)
    ]
    flops = 2.0 * sum(weights) * ways * what.steps * what.batch
    kind = ", persistent" if what.algorithm.startswith("persist") else ""
    return both(gpu, ns, flops, model=f"rnn {what.mode}{kind}", peak=engine_of(what.dtype)[1])


def _layer_ns(machine: Machine, what: Rnn, gates: int, width: int, floor: float) -> tuple[float, float, float]:
    """One direction of one layer: what is done once for all steps, what all steps keep the GPU busy for, and how long
    they take one after the other.
    """
    rows, all_steps = gates * what.hidden, what.steps * what.batch
    item = dtype_nbytes(what.dtype)

    def product(m: int, n: int, k: int) -> float:
        engine, dtype = engine_of(what.dtype, row_nbytes=k * item)
        if what.direction == "wgrad" and what.dtype == "tf32":
            engine = SUMS_TF32
        return floor + product_ns(machine, engine, dtype, m, n, k, nbytes=item * (m * k + k * n + m * n))

    if what.direction == "wgrad":
        biases = max(all_steps * BIAS_ROW_NS[what.mode], all_steps * rows * item / BIAS_GB_PER_S)
        products = product(rows, width, all_steps) + product(rows, what.projection, all_steps)
        return products, biases * BIASES_BESIDE, biases
    if what.direction == "fwd":
        inputs, step = product(rows, all_steps, width), (rows, what.batch, what.projection)
    else:
        inputs, step = product(width, all_steps, rows), (what.projection, what.batch, rows)
    if what.algorithm == "persist_static_small":
        return inputs + floor + what.steps * SMALL_STEP_NS, 0.0, 0.0
    if what.algorithm.startswith("persist"):
        return inputs + floor + what.steps * STATIC_UNIT_NS[what.direction] * what.hidden, 0.0, 0.0
    cell = floor + CELL_NS + what.batch * rows * item / CELL_GB_PER_S
    single = what.dtype != "f32" and what.hidden * item % ALIGNMENT_NBYTES != 0
    slower = SINGLE_ITEMS_STEP if single else 1.0
    multiplied = product(*step) * slower
    latency = floor + rows * LONG_SUM_NS[what.dtype] if what.direction == "dgrad" else 0.0
    share = SHARE.get(what.dtype, 1.0)
    return inputs, what.steps * (multiplied + cell) * share, what.steps * (max(multiplied, latency) + cell + 2 * GAP_NS)
