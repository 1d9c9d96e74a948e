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
from profiles.models.products.tiles import product_ns
from profiles.signature import Rnn, dtype_nbytes

GATES = {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}
LAUNCH_NS = 2_500.0  # between kernels of one call: the host launches them one by one
CELL_NS = 1_100.0  # beside the floor of a launch
CELL_GB_PER_S = 920.0
SINGLE_ITEMS_STEP = 1.7  # a step's product where rows do not begin at multiples of 16 bytes: items are loaded singly
BIAS_GB_PER_S = 110.0  # the sum of all steps' gate gradients
# A step of cuDNN's persistent kernels: those for few units, and, per unit, those for tensor cores.
SMALL_STEP_NS = 2_200.0
STATIC_UNIT_NS = {"fwd": 13.5, "dgrad": 19.0}
OVERLAPPED = 0.12  # of the layers' and directions' time, where there are many


def rnn(gpu: Gpu, what: Rnn) -> Estimate:
    gates, layers = GATES[what.mode], max(what.layers, 1)
    ways = 2 if what.bidirectional else 1
    floor = gpu.achieved.kernel_floor_ns

    stepwise = what.direction != "wgrad" and not what.algorithm.startswith("persist")
    kernels = (2 * what.steps if stepwise else 2) * layers * ways

    def ns(machine: Machine) -> float:
        total = LAUNCH_NS * kernels
        for layer in range(layers):
            width = what.input if layer == 0 else what.projection * ways
            total += ways * _layer_ns(machine, what, gates, width, floor)
        chains = layers * ways
        return total * (1 - OVERLAPPED * (1 - 1 / chains))

    weights = [
        gates * what.hidden * ((what.input if layer == 0 else what.projection * ways) + what.projection)
        for layer in range(layers)
    ]
    flops = 2.0 * sum(weights) * ways * what.steps * what.batch
    return both(gpu, ns, flops, model=f"rnn {what.mode}", peak=engine_of(what.dtype)[1])


def _layer_ns(machine: Machine, what: Rnn, gates: int, width: int, floor: float) -> float:
    """One direction of one layer."""
    rows, all_steps = gates * what.hidden, what.steps * what.batch
    item = dtype_nbytes(what.dtype)

    def product(m: int, n: int, k: int) -> float:
        engine, dtype = engine_of(what.dtype, row_nbytes=k * item)
        return floor + product_ns(machine, engine, dtype, m, n, k, nbytes=item * (m * k + k * n + m * n))

    if what.direction == "wgrad":
        biases = all_steps * rows * item / BIAS_GB_PER_S
        return product(rows, width, all_steps) + product(rows, what.projection, all_steps) + biases
    if what.direction == "fwd":
        inputs, step = product(rows, all_steps, width), (rows, what.batch, what.projection)
    else:
        inputs, step = product(width, all_steps, rows), (what.projection, what.batch, rows)
    if what.algorithm == "persist_static_small":
        return inputs + floor + what.steps * SMALL_STEP_NS
    if what.algorithm.startswith("persist"):
        return inputs + floor + what.steps * STATIC_UNIT_NS[what.direction] * what.hidden
    cell = floor + CELL_NS + what.batch * rows * item / CELL_GB_PER_S
    slower = SINGLE_ITEMS_STEP if what.hidden * item % ALIGNMENT_NBYTES else 1.0
    return inputs + what.steps * (product(*step) * slower + cell)
