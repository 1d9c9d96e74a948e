"""Models kernels of few threads that do one thing after another: CTC's loss, weight norm, the selection of detectors'
boxes.

Each takes as long as its longest chain of dependent steps, times the rounds in which its blocks find a place.
"""

from __future__ import annotations

from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName
from profiles.models.kernels.sizes import covered, item_of
from profiles.models.machine import Machine, Model, overlapped
from profiles.signature import Kernel, Shape, elements

CTC_START_NS, CTC_STEP_NS = 2_000.0, 560.0  # a frame, whose states wait for each other
COLLECTED_STEP_NS = 450.0
KEPT_NS, KEPT_ROUND_NS = 290.0, 135.0  # time of a box that is kept; of a round, which strikes out 4,096 others
KEPT_SHARE = 0.63  # share of a detector's proposals that is kept; a box that is struck out costs next to nothing
OVERLAPS_START_NS, OVERLAPS_NS, BOXES_OF_BLOCK = 12_000.0, 1_240.0, 64
SAMPLED, SPREAD = 880.0, 3_700.0  # instructions for an output of RoIAlign
USUAL_OUTPUTS = 49  # outputs of a box and channel, 7 x 7, where the grid does not tell
LARGEST_GRID = 4096
NORMED_START_NS, NORMED_ITEM_NS, NORMED_COLUMN_NS = (
    600.0,
    220.0,
    680.0,
)  # an item of a thread; of a column
BLOCKS_OF_SM = 8


def _frames(what: Kernel) -> int:
    """The number of frames: the first size of the logarithms of probabilities (frames, batch, letters)."""
    return next((shape[0] for shape in what.sizes if len(shape) == 3), 1)


def ctc(machine: Machine, what: Kernel, name: KernelName) -> float:
    return CTC_START_NS + CTC_STEP_NS * _frames(what)


def collected(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of a kernel in which each letter of a target adds up its frames."""
    return CTC_START_NS + COLLECTED_STEP_NS * _frames(what)


def overlaps(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of a kernel whose blocks each compare 64 boxes with 64 others; those below the diagonal have nothing to
    do.
    """
    return OVERLAPS_START_NS + OVERLAPS_NS * (prod(what.grid) + what.grid[0]) / 2 / machine.sms


def kept(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of one block that goes through all boxes, the best first. The number of boxes that are kept is not known
    here, whatever policy decides on the size of the result.
    """
    boxes = what.sizes[0][0] if what.sizes and what.sizes[0] else BOXES_OF_BLOCK
    return KEPT_SHARE * boxes * (KEPT_NS + KEPT_ROUND_NS * ceil(boxes / BOXES_OF_BLOCK**2))


def aligned(instructions: float) -> Model:
    """The model of RoIAlign: outputs of 2 x 2 samples with four neighbours each."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        outputs, shapes = covered(what, 1), [shape for shape in what.sizes if shape]
        if "backward" in name.base and shapes:
            outputs = elements(shapes[0])
        elif what.grid[0] >= LARGEST_GRID and len(shapes) > 1:
            outputs = max(outputs, shapes[1][0] * shapes[0][1] * USUAL_OUTPUTS)
        return overlapped(machine.memory_ns(outputs * item_of(name)), machine.issue_ns(instructions * outputs))

    return model


def normed(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of weight norm: a block a row, or rows that are dealt out to the threads of a few columns."""
    weights: Shape = max(what.sizes, key=elements, default=())
    items = elements(weights) / max(prod(what.grid) * prod(what.block), 1)
    rounds = ceil(prod(what.grid) / (machine.sms * BLOCKS_OF_SM))
    item_ns = NORMED_COLUMN_NS if "last_dim" in name.base else NORMED_ITEM_NS
    return rounds * (NORMED_START_NS + item_ns * ceil(items))


FAMILIES = frozenset(("loss of CTC", "weight norm", "detection"))
RULES: tuple[tuple[str, str, Model], ...] = (
    (r"ctc_loss_(log_alpha|backward_log_beta)", "loss of CTC", ctc),
    (r"ctc_loss_backward_collect", "loss of CTC", collected),
    (r"weight_norm_", "weight norm", normed),
    (r"nms_kernel_impl", "detection", overlaps),
    (r"gather_keep_from_mask", "detection", kept),
    (r"roi_align_forward", "detection", aligned(SAMPLED)),
    (r"roi_align_backward", "detection", aligned(SPREAD)),
)
