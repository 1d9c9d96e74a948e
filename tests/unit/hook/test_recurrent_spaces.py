"""Memory that recurrent networks need: workspace, reserve space and weights as cuDNN said on an H200, to the byte.

laboratory/notes/recurrent-spaces.md tells of the measurements.
"""

import ctypes
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_cudnn_workspaces import BF16, F16, F32, GRU, LSTM, PERSIST_STATIC, PERSIST_STATIC_SMALL, STANDARD, TANH, made

ROWS = Path(__file__).parents[3] / "laboratory" / "rows"
RELU = 0
PADDED, PACKED = 0, 1
"""Layouts: steps of padded sequences first, or packed sequences."""
INFERENCE, TRAINING = 0, 1
MODES = {"LSTM": LSTM, "GRU": GRU, "RNN": TANH}
DTYPES = {"f32": F32, "tf32": F32, "f16": F16, "bf16": BF16}
NOT_SUPPORTED = 3000

# mode, algorithm, dtype, input, hidden, projection, layers, directions, batch, steps, layout, rows of all sequences,
# dropout: workspace in training, in inference, reserve space
NETWORKS = [
    ((LSTM, STANDARD, F16, 520, 512, 512, 4, 1, 17, 7, PADDED, 119, 0.3), (51916064, 51916064, 2825792)),
    ((LSTM, STANDARD, F16, 1000, 384, 384, 6, 1, 33, 200, PADDED, 6600, 0.0), (119209888, 106444960, 177408256)),
    ((LSTM, STANDARD, F32, 2, 39, 39, 2, 1, 33, 500, PADDED, 16500, 0.3), (27506624, 27506624, 28394720)),
    ((LSTM, STANDARD, F16, 88, 9, 9, 1, 2, 20, 50, PADDED, 1000, 0.0), (17965120, 17228320, 180256)),
    ((LSTM, STANDARD, F32, 62, 1024, 256, 3, 2, 16, 1, PADDED, 16, 0.0), (122458368, 122458368, 2720000)),
    ((LSTM, STANDARD, F32, 1500, 300, 75, 1, 1, 64, 20, PACKED, 675, 0.0), (21939328, 20549696, 5062816)),
    ((LSTM, PERSIST_STATIC, F32, 256, 384, 384, 1, 2, 2, 7, PADDED, 14, 0.3), (26920736, 25356576, 215296)),
    ((GRU, STANDARD, F16, 60, 300, 300, 2, 2, 32, 128, PADDED, 4096, 0.3), (69102784, 68611264, 64512256)),
    ((GRU, STANDARD, BF16, 1568, 1024, 1024, 4, 1, 128, 100, PADDED, 12800, 0.0), (269518080, 237470976, 707789056)),
    ((GRU, STANDARD, F16, 384, 42, 42, 3, 1, 32, 500, PACKED, 9550, 0.3), (32744256, 28206560, 16212288)),
    ((GRU, PERSIST_STATIC, F16, 1, 27, 27, 4, 1, 256, 50, PADDED, 12800, 0.0), (47103296, 44893504, 18662656)),
    ((GRU, PERSIST_STATIC, BF16, 23, 400, 400, 3, 2, 100, 64, PADDED, 6400, 0.3), (129271904, 128977504, 207360256)),
    ((TANH, STANDARD, F32, 23, 64, 64, 3, 1, 1, 128, PADDED, 128, 0.0), (25412384, 25333536, 164096)),
    ((TANH, STANDARD, F16, 1, 768, 768, 4, 2, 33, 200, PACKED, 3371, 0.0), (133344512, 122988800, 72490240)),
    ((RELU, PERSIST_STATIC, F16, 1024, 168, 168, 6, 1, 1, 20, PADDED, 20, 0.3), (52283008, 51392992, 76416)),
]


class Library:
    """cuDNN as the rank sees it, asked about one network after the other."""

    def __init__(self, c):
        self.c = c
        self.handle, self.net, self.data = made(c, ""), made(c, "RNNDescriptor"), made(c, "RNNDataDescriptor")
        self.dropout = made(c, "DropoutDescriptor")
        self.nbytes = [ctypes.c_size_t() for _ in range(4)]

    def spaces(self, mode, algorithm, dtype, inputs, hidden, outputs, layers, directions, batch, steps, layout, rows,
               dropout, padded_io):  # fmt: skip
        """Returns a status, workspace and reserve space in training, workspace in inference, and the weights' space."""
        c, training, reserve, inference, weights = self.c, *(ctypes.byref(n) for n in self.nbytes)
        lengths = (ctypes.c_int * batch)(*(rows // batch + (i < rows % batch) for i in range(batch)))
        assert not c.cudnnSetDropoutDescriptor(self.dropout, self.handle, ctypes.c_float(dropout), None, 0, 0)
        assert not c.cudnnSetRNNDescriptor_v8(
            self.net, algorithm, mode, 2, directions - 1, 0, dtype, 0, 1, inputs, hidden, outputs, layers,
            self.dropout, int(padded_io),
        )  # fmt: skip
        assert not c.cudnnSetRNNDataDescriptor(self.data, dtype, layout, steps, batch, inputs, lengths, None)
        assert not c.cudnnGetRNNWeightSpaceSize(self.handle, self.net, weights)
        for n in self.nbytes[:3]:
            n.value = 0
        status = c.cudnnGetRNNTempSpaceSizes(self.handle, self.net, TRAINING, self.data, training, reserve)
        assert c.cudnnGetRNNTempSpaceSizes(self.handle, self.net, INFERENCE, self.data, inference, None) == status
        return status, *(n.value for n in self.nbytes)


@pytest.mark.parametrize(("network", "measured"), NETWORKS)
def test_a_network_needs_what_was_measured(running, network, measured):
    def program(rank):
        status, training, reserve, inference, _ = Library(rank.c).spaces(*network, network[10] != PACKED)
        assert (status, training, inference, reserve) == (0, *measured)

    running(program)


def test_states_of_dropout_are_as_large_as_measured(running):
    def program(rank):
        n = ctypes.c_size_t()
        assert not rank.c.cudnnDropoutGetStatesSize(made(rank.c, ""), ctypes.byref(n))
        assert n.value == 6488064

    running(program)


def measured_lines(name: str) -> Iterator[tuple]:
    """Yields what was asked for and what cuDNN said, of each line; laboratory/programs/recurrent_spaces.py has both."""
    with gzip.open(ROWS / name, "rt") as lines:
        next(lines)  # the states of dropout
        for line in lines:
            (_, status, _, mode, algorithm, both, dtype, _, layers, inputs, hidden, projection, batch, steps, dropout,
             layout, rows, training, reserve, inference, _, weights) = json.loads(line)  # fmt: skip
            network = (mode, algorithm, dtype, inputs, hidden, projection or hidden, layers, both + 1, batch, steps,
                       layout, rows, dropout)  # fmt: skip
            yield network, (status, training, reserve, inference, weights)


# The earlier program asked for padded input and output of packed sequences alone: PyTorch does the contrary.
@pytest.mark.parametrize(
    ("name", "lines", "padded_layouts"),
    [
        ("recurrent-spaces-h200.jsonl.gz", 23999, [PADDED]),
        ("recurrent-spaces-earlier-h200.jsonl.gz", 11999, [PACKED]),
    ],
)
def test_all_networks_need_what_was_measured(running, name, lines, padded_layouts):
    def program(rank):
        library, asked, wrong = Library(rank.c), 0, []
        for network, measured in measured_lines(name):
            asked += 1
            if library.spaces(*network, network[10] in padded_layouts) != measured:
                wrong.append(network)
        assert (asked, wrong[:5]) == (lines, [])

    running(program)


def algorithm_of_pytorch(line: dict, states: dict[bool, int]) -> int:
    """Which algorithm PyTorch asks for on this GPU: one for small states, or in f16 one that persists if all fits."""
    gated, batch, hidden = line["mode"] != "RNN", line["batch"], line["hidden"]
    if hidden <= states[gated]:
        return PERSIST_STATIC_SMALL
    fits = line["kind"] == "f16" and (line["layers"], line["both"]) == (1, False) and hidden <= 1024
    if not fits or line["mode"] == "GRU" or hidden % 128 or line["inputs"] % 128 or batch % 8 or batch > 128:
        return STANDARD
    return PERSIST_STATIC if gated or batch < 96 or hidden < 896 else STANDARD


FORWARD_STATES, BACKWARD_STATES = {True: 192, False: 384}, {True: 128, False: 256}
"""The widest small states of networks with and without gates."""


@pytest.mark.parametrize(("name", "calls"), [("workspaces", 160), ("convolutions", 33), ("dense", 24)])
def test_pytorch_takes_as_much_as_on_an_h100(running, name, calls):
    def program(rank):
        library, asked, wrong = Library(rank.c), 0, []
        for line in lines:
            sizes = (line["inputs"], line["hidden"], line["hidden"], line["layers"], line["both"] + 1, line["batch"],
                     line["steps"], PADDED, line["batch"] * line["steps"], line["dropout"])  # fmt: skip
            forward, backward = (
                library.spaces(
                    MODES[line["mode"]], algorithm_of_pytorch(line, states), DTYPES[line["kind"]], *sizes, True
                )
                for states in (FORWARD_STATES, BACKWARD_STATES)
            )
            asked += 1
            # A forward pass takes the workspace and the reserve space, a backward pass takes the workspace last.
            if [*forward[1:3], backward[1]] != [*line["fwd"]["blocks"][-2:], line["bwd"]["blocks"][-1]]:
                wrong.append(line)
        assert (asked, wrong[:5]) == (calls, [])

    with gzip.open(ROWS / f"{name}-h100.jsonl.gz", "rt") as file:
        lines = [line for line in map(json.loads, file) if line.get("family") == "recurrent"]
    running(program)


def test_persistent_kernels_of_gates_wider_than_1536_do_not_exist(running):
    def program(rank):
        def status(mode, algorithm, hidden):
            return Library(rank.c).spaces(
                mode, algorithm, F32, 64, hidden, hidden, 1, 1, 4, 8, PADDED, 32, 0.0, True
            )[0]  # fmt: skip

        assert status(LSTM, PERSIST_STATIC, 1536) == 0
        assert status(LSTM, PERSIST_STATIC, 1544) == NOT_SUPPORTED
        assert status(GRU, PERSIST_STATIC, 1568) == NOT_SUPPORTED
        assert status(TANH, PERSIST_STATIC, 2048) == 0
        assert status(LSTM, STANDARD, 2048) == 0

    running(program)
