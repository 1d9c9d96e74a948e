"""Memory that recurrent networks need, as cuDNN says: reserve space, and the workspace of packed sequences."""

import ctypes

import pytest

from .test_cudnn_workspaces import BF16, F16, F32, GRU, LSTM, PERSIST_STATIC, STANDARD, TANH, made

RELU = 0

# What an H200 said that a training forward pass keeps (laboratory/notes/recurrent-spaces.md). The layout: padded or
# packed.
# mode, algorithm, dtype, input, hidden, projection, layers, directions, batch, steps, layout, rows, dropout: bytes
PADDED, PACKED = 0, 1
RESERVED = [
    ((LSTM, STANDARD, F32, 24, 18, 18, 2, 1, 1, 1, PADDED, 1, 0.0), 1088),
    ((TANH, STANDARD, F16, 1000, 80, 80, 1, 2, 100, 35, PACKED, 2018, 0.0), 646016),
    ((LSTM, PERSIST_STATIC, F32, 7, 136, 136, 3, 1, 1, 50, PACKED, 50, 0.3), 464384),
    ((GRU, STANDARD, F32, 400, 384, 384, 1, 2, 256, 64, PADDED, 16384, 0.0), 301990144),
    ((RELU, PERSIST_STATIC, F32, 176, 288, 288, 4, 1, 100, 64, PADDED, 6400, 0.0), 51609856),
    ((GRU, STANDARD, F32, 4, 768, 768, 1, 2, 8, 100, PACKED, 507, 0.0), 18690304),
    ((LSTM, STANDARD, F16, 42, 4, 4, 2, 1, 8, 50, PACKED, 202, 0.0), 18048),
    ((LSTM, PERSIST_STATIC, F32, 1424, 14, 14, 3, 2, 16, 7, PADDED, 112, 0.3), 215168),
    ((TANH, STANDARD, BF16, 1584, 41, 41, 6, 1, 16, 20, PACKED, 185, 0.3), 175488),
    ((GRU, STANDARD, F16, 576, 256, 256, 2, 2, 64, 50, PADDED, 3200, 0.3), 43008256),
    ((LSTM, STANDARD, F32, 672, 72, 64, 4, 1, 8, 200, PACKED, 916, 0.0), 8061056),
    ((LSTM, STANDARD, F32, 784, 256, 64, 1, 2, 100, 20, PADDED, 2000, 0.3), 25600256),
    ((TANH, STANDARD, F32, 5, 32, 32, 2, 1, 17, 7, PADDED, 119, 0.3), 46432),
    ((LSTM, STANDARD, F16, 512, 300, 64, 4, 2, 20, 2, PACKED, 30, 0.3), 1006816),
    ((GRU, PERSIST_STATIC, BF16, 264, 992, 992, 3, 1, 100, 35, PACKED, 1717, 0.3), 68998848),
    ((LSTM, STANDARD, F32, 1360, 1344, 336, 3, 2, 17, 20, PADDED, 340, 0.3), 75969920),
]


def test_what_a_training_pass_keeps_is_what_was_measured(running):
    def program(rank):
        c = rank.c
        handle, net, data = made(c, ""), made(c, "RNNDescriptor"), made(c, "RNNDataDescriptor")
        dropout, n = made(c, "DropoutDescriptor"), ctypes.c_size_t()
        for problem, _ in RESERVED:
            mode, algorithm, dtype, inputs, hidden, outputs, layers, directions, batch, steps, layout, rows, p = problem
            lengths = (ctypes.c_int * batch)(*(rows // batch + (i < rows % batch) for i in range(batch)))
            assert not c.cudnnSetDropoutDescriptor(dropout, handle, ctypes.c_float(p), None, 0, 0)
            assert not c.cudnnSetRNNDescriptor_v8(
                net, algorithm, mode, 2, directions - 1, 0, dtype, 0, 1, inputs, hidden, outputs, layers, dropout, 0
            )
            assert not c.cudnnSetRNNDataDescriptor(data, dtype, layout, steps, batch, inputs, lengths, None)
            assert not c.cudnnGetRNNTempSpaceSizes(handle, net, 1, data, None, ctypes.byref(n))
            got.append(n.value)
        assert got == [measured for _, measured in RESERVED]
        assert not c.cudnnDropoutGetStatesSize(handle, ctypes.byref(n))
        assert n.value == 6488064

    got = []
    running(program)


# What an H200 said that a training forward pass of a network in one direction works with: mode, dtype, input, hidden,
# layers, batch, steps, dropout: workspace. The probe's padding is that of packed sequences in PyTorch.
WORKED = [
    ((LSTM, BF16, 96, 1056, 4, 100, 200, 0.0), 270842112),
    ((LSTM, BF16, 640, 552, 1, 16, 200, 0.0), 27889920),
    ((GRU, BF16, 200, 184, 3, 33, 50, 0.3), 28940672),
    ((GRU, BF16, 2048, 1000, 1, 20, 20, 0.0), 29196864),
    ((LSTM, F32, 5, 1576, 6, 100, 7, 0.3), 532360960),
    ((GRU, F32, 47, 2048, 2, 17, 64, 0.0), 196501760),
    ((LSTM, BF16, 488, 17, 1, 100, 128, 0.0), 21395808),
    ((LSTM, F32, 64, 2048, 1, 1, 128, 0.3), 82886912),
    ((GRU, F32, 264, 40, 1, 100, 50, 0.0), 14630784),
    ((GRU, F16, 920, 59, 1, 256, 64, 0.3), 40845536),
    ((GRU, BF16, 37, 1344, 1, 8, 35, 0.3), 22600320),
    ((LSTM, F32, 1152, 49, 1, 128, 200, 0.3), 132388128),
]


@pytest.mark.parametrize(("problem", "measured"), WORKED)
def test_packed_sequences_need_the_workspace_that_was_measured(running, problem, measured):
    mode, dtype, inputs, hidden, layers, batch, steps, probability = problem

    def program(rank):
        c = rank.c
        handle, net, data = made(c, ""), made(c, "RNNDescriptor"), made(c, "RNNDataDescriptor")
        dropout, n = made(c, "DropoutDescriptor"), ctypes.c_size_t()
        lengths = (ctypes.c_int * batch)(*[steps] * batch)
        assert not c.cudnnSetDropoutDescriptor(dropout, handle, ctypes.c_float(probability), None, 0, 0)
        assert not c.cudnnSetRNNDescriptor_v8(
            net, STANDARD, mode, 2, 0, 0, dtype, 0, 1, inputs, hidden, hidden, layers, dropout, 0
        )
        assert not c.cudnnSetRNNDataDescriptor(data, dtype, PACKED, steps, batch, inputs, lengths, None)
        assert not c.cudnnGetRNNTempSpaceSizes(handle, net, 1, data, ctypes.byref(n), None)
        assert n.value == pytest.approx(measured, rel=1e-3)

    running(program)
