"""Small data of collectives: what comes out is what NCCL would have written."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.contract import records
from emu.contract.records import NcclKind, process_asking
from phantora_async.errors import ProtocolError
from phantora_async.ingest import small_floats
from phantora_async.ingest.data_exchange import FOLLOWS, DataExchange, reduced
from phantora_async.virtual_time import Timelines
from phantora_async.virtual_time.facts import DTYPE_NBYTES, Collective, Comm

I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, E4M3, E5M2 = range(12)
SUM, PROD, MAX, MIN, AVG, PREMULSUM = range(6)


def comm_of(size: int) -> Comm:
    ranks = tuple(range(10, 10 + size))
    return Comm(5, ranks, (0,) * size, {rank: place for place, rank in enumerate(ranks)}, "a communicator")


def run(
    op: int, inputs: list[bytes], count: int, *, dtype: int = U8, redop: int = SUM, root: int = 0, order: int = 1
) -> dict[int, bytes]:
    """Returns the outputs by rank in the communicator. Everybody joins, in ascending or descending order, and wants an
    output.
    """
    size = len(inputs)
    comm, exchange = comm_of(size), DataExchange(Timelines(32))
    collective = Collective(comm, 0, op, dtype, redop, count, root, comm.members)
    sent: list[tuple[int, bytes]] = []
    for place in list(range(size))[::order]:
        collective.joined.append(comm.members[place])
        call = records.NcclOp(5, 0, op, dtype, redop, root, count, 100 + place, len(inputs[place]), 1.0)
        assert not sent
        sent = exchange.join(comm.members[place], collective, call, inputs[place])
    outputs = {}
    for rank, encoded in sent:
        (data,), _ = records.decode_down(encoded)
        assert isinstance(data, records.Data)
        assert data.token == 100 + comm.rank_of[rank]
        outputs[comm.rank_of[rank]] = data.payload
    return outputs


def test_mirrored_ranks_give_their_inputs_and_are_not_answered() -> None:
    comm, exchange = comm_of(3), DataExchange(Timelines(32), {11, 12})
    for seq, (op, root, sent, output) in enumerate(
        (
            (NcclKind.BROADCAST, 1, [b"", b"b", b""], b"b"),
            (NcclKind.ALL_GATHER, 0, [b"a", b"b", b"c"], b"abc"),
            (NcclKind.ALL_REDUCE, 0, [b"\1", b"\2", b"\4"], b"\7"),
        )
    ):
        collective, answers = Collective(comm, seq, op, U8, SUM, 1, root, comm.members), []
        for rank, data in zip(comm.members, sent, strict=True):
            collective.joined.append(rank)
            call = records.NcclOp(5, seq, op, U8, SUM, root, 1, 100 + rank, len(data), 1.0)
            answers += exchange.join(rank, collective, call, data)
        assert answers == [(10, records.Data.encode(110, 110, 0, payload=output))]


@pytest.mark.parametrize("order", [1, -1])
def test_each_collective_moves_what_it_should(order: int) -> None:
    a, b = b"AAAAaaaa", b"BBBBbbbb"
    assert run(NcclKind.ALL_GATHER, [a, b], 8, order=order) == {0: a + b, 1: a + b}
    assert run(NcclKind.ALL_TO_ALL, [a, b], 4, order=order) == {0: b"AAAABBBB", 1: b"aaaabbbb"}
    assert run(NcclKind.BROADCAST, [b"", b], 8, root=1, order=order) == {0: b, 1: b}
    assert run(NcclKind.SCATTER, [a + b, b""], 8, order=order) == {0: a, 1: b}
    assert run(NcclKind.GATHER, [a, b], 8, order=order)[0] == a + b
    ones = struct.pack("<4i", 1, 2, 3, 4)
    assert run(NcclKind.ALL_REDUCE, [ones, ones], 4, dtype=I32, order=order)[1] == struct.pack("<4i", 2, 4, 6, 8)
    assert run(NcclKind.REDUCE_SCATTER, [ones, ones], 2, dtype=I32, order=order) == {
        0: struct.pack("<2i", 2, 4),
        1: struct.pack("<2i", 6, 8),
    }


def test_a_message_goes_to_its_receiver() -> None:
    comm, exchange = comm_of(2), DataExchange(Timelines(32))
    collective = Collective(comm, 0, NcclKind.SEND, U8, 0, 3, -1, (11, 10))
    collective.joined.append(10)
    assert exchange.join(10, collective, records.NcclOp(5, 0, NcclKind.RECV, U8, 0, 1, 3, 77, 0, 1.0), b"") == []
    collective.joined.append(11)
    send = records.NcclOp(5, 0, NcclKind.SEND, U8, 0, 0, 3, 0, 3, 1.0)
    assert exchange.join(11, collective, send, b"abc") == [(10, records.Data.encode(77, 77, 0, payload=b"abc"))]


def test_bytes_that_follow_later_complete_the_exchange() -> None:
    comm, exchange = comm_of(2), DataExchange(Timelines(32))
    collective = Collective(comm, 0, NcclKind.ALL_GATHER, U8, 0, 3, 0, comm.members)
    collective.joined.append(10)
    late = records.NcclOp(5, 0, NcclKind.ALL_GATHER, U8, 0, 0, 3, 1, FOLLOWS, 1.0)
    assert exchange.join(10, collective, late, b"") == []
    collective.joined.append(11)
    assert exchange.join(11, collective, late._replace(token=2, data_nbytes=3), b"xyz") == []
    (follow,), _ = records.decode_up(records.NcclData.encode(0, 5, 0, NcclKind.ALL_GATHER, 0, 0, payload=b"abc"))
    assert isinstance(follow, records.NcclData)
    sent = exchange.late(10, follow)
    assert sent == [
        (rank, records.Data.encode(token, token, 0, payload=b"abcxyz")) for rank, token in ((10, 1), (11, 2))
    ]
    with pytest.raises(ProtocolError, match=r"rank 10: .*was not announced"):
        exchange.late(10, follow)


@pytest.mark.parametrize(
    ("inputs", "expected"), [((1, 0), 1), ((1, 1), 1), ((3, 0), 3), ((3, 3), 3), ((3, 1), 1), ((1, 3), 1)]
)
def test_outputs_are_assumed_if_an_input_is(inputs: tuple[int, int], expected: int) -> None:
    """1: they follow from values that nobody computed; 3: from checks for overflow alone; 0: they are known."""
    comm, exchange = comm_of(2), DataExchange(Timelines(32))
    collective = Collective(comm, 0, NcclKind.ALL_REDUCE, U8, MAX, 1, 0, comm.members)
    flag = records.NcclOp(5, 0, NcclKind.ALL_REDUCE, U8, MAX, 0, 1, 1, FOLLOWS, 1.0)
    for token, rank in enumerate(comm.members, 1):
        collective.joined.append(rank)
        assert exchange.join(rank, collective, flag._replace(token=token), b"") == []
    answers = []
    for rank, assumed in zip(comm.members, inputs, strict=True):
        late = records.NcclData.encode(0, 5, 0, NcclKind.ALL_REDUCE, 0, assumed, payload=bytes([assumed]))
        (follow,), _ = records.decode_up(late)
        assert isinstance(follow, records.NcclData)
        answers += exchange.late(rank, follow)
    output = bytes([max(inputs)])
    assert answers == [
        (rank, records.Data.encode(token, token, expected, payload=output)) for rank, token in ((10, 1), (11, 2))
    ]


def test_an_output_goes_to_the_process_that_made_the_call() -> None:
    """A rank's child that uses its GPU is a process of the rank, too."""
    comm, exchange = comm_of(2), DataExchange(Timelines(32))
    collective = Collective(comm, 0, NcclKind.ALL_REDUCE, U8, MAX, 1, 0, comm.members)
    token = (3 << 40) + 1
    call = records.NcclOp(5, 0, NcclKind.ALL_REDUCE, U8, MAX, 0, 1, token, 1, 1.0)
    collective.joined.append(10)
    assert exchange.join(10, collective, call, b"\1") == []
    collective.joined.append(11)
    answers = exchange.join(11, collective, call._replace(token=1), b"\2")
    assert [(rank, process_asking(answer)) for rank, answer in answers] == [(10, 3), (11, 0)]


def test_floats_are_unknown_where_an_input_is() -> None:
    known = struct.pack("<2f", 1.5, 2.5)
    for op in (NcclKind.ALL_REDUCE, NcclKind.ALL_GATHER):
        assert run(op, [known, b""], 2, dtype=F32) == {0: b"", 1: b""}
    assert run(NcclKind.ALL_REDUCE, [b"", b""], 2, dtype=F32) == {0: b"", 1: b""}


def test_integers_are_assumed_where_an_input_is_unknown() -> None:
    """The result is as if the unknown integers were zeros. The root of a broadcast is the only member with an input."""
    comm, known = comm_of(2), struct.pack("<q", 5)
    for op, assumed in ((NcclKind.ALL_REDUCE, 1), (NcclKind.BROADCAST, 0)):
        collective, exchange = Collective(comm, 0, op, I64, SUM, 1, 0, comm.members), DataExchange(Timelines(32))
        collective.joined.append(10)
        call = records.NcclOp(5, 0, op, I64, SUM, 0, 1, 1, 8, 1.0)
        assert exchange.join(10, collective, call, known) == []
        collective.joined.append(11)
        assert exchange.join(11, collective, call._replace(token=2, data_nbytes=0), b"") == [
            (rank, records.Data.encode(token, token, assumed, payload=known)) for rank, token in ((10, 1), (11, 2))
        ]


def partly(
    op: int,
    redop: int = SUM,
    *,
    dtype: int = U8,
    bits: int = 0b0101,
    own: bytes = b"a\0c\0",
    other: bytes = b"wxyz",
) -> list[tuple[int, bytes]]:
    """Returns what two members get: `assumed`, and the payload. The first knows these bytes of its own alone."""
    comm, exchange = comm_of(2), DataExchange(Timelines(32))
    count = len(own) // DTYPE_NBYTES[dtype] // (1 + (op in (NcclKind.ALL_TO_ALL, NcclKind.REDUCE_SCATTER)))
    collective = Collective(comm, 0, op, dtype, redop, count, 0, comm.members)
    call = records.NcclOp(5, 0, op, dtype, redop, 0, count, 1, FOLLOWS, 1.0)
    for rank in (10, 11):
        collective.joined.append(rank)
        assert exchange.join(rank, collective, call._replace(token=rank), b"") == []
    mask = bytes([bits]) + bytes(7)
    (first, second), _ = records.decode_up(
        records.NcclData.encode(0, 5, 0, op, 0, 2, payload=mask + own)
        + records.NcclData.encode(0, 5, 0, op, 0, 0, payload=other)
    )
    assert exchange.late(10, first) == []
    got = []
    for _, answer in exchange.late(11, second):
        _, assumed = struct.unpack_from("<QQ", answer, 16)
        got.append((assumed, answer[32:]))
    return got


def test_bytes_that_a_member_does_not_know_are_unknown_in_the_outputs() -> None:
    def masked(bits: int, data: bytes) -> tuple[int, bytes]:
        return 2, bytes([bits]) + bytes(7) + data

    assert [one[:2] for one in partly(NcclKind.ALL_GATHER)] == [masked(0b11110101, b"a\0c\0wxyz")] * 2
    assert [(a, d[:12]) for a, d in partly(NcclKind.ALL_TO_ALL)] == [masked(0b1101, b"a\0wx"), masked(0b1101, b"c\0yz")]
    assert [(a, d[:12]) for a, d in partly(NcclKind.ALL_REDUCE, MAX)] == [masked(0b0101, b"wxyz")] * 2
    assert [(a, d[:10]) for a, d in partly(NcclKind.REDUCE_SCATTER, MAX)] == [masked(1, b"wx"), masked(1, b"yz")]


def test_a_count_beside_a_loss_that_nobody_computed_is_summed() -> None:
    own, other = struct.pack("<2f", 0, 8), struct.pack("<2f", 3, 16)
    got = partly(NcclKind.ALL_REDUCE, dtype=F32, bits=0b11110000, own=own, other=other)
    assert [assumed for assumed, _ in got] == [2, 2]
    assert [payload[0] for _, payload in got] == [0b11110000] * 2
    assert [struct.unpack_from("<2f", payload, 8)[1] for _, payload in got] == [24, 24]


def test_inputs_of_a_wrong_size_name_the_rank() -> None:
    with pytest.raises(ProtocolError, match=r"rank 11: .*3 bytes of input for all_gather #0 of 8 u8.*expected 8"):
        run(NcclKind.ALL_GATHER, [b"AAAAaaaa", b"BBB"], 8)


@pytest.mark.parametrize(
    ("redop", "expected"),
    [(SUM, [-1, 9]), (PROD, [-30, 14]), (MAX, [5, 7]), (MIN, [-6, 2]), (AVG, [0, 4])],
)
def test_integer_reductions(redop: int, expected: list[int]) -> None:
    inputs = [struct.pack("<2q", -6, 7), struct.pack("<2q", 5, 2)]
    assert reduced(inputs, I64, redop, [1.0, 1.0]) == struct.pack("<2q", *expected)


def test_integers_wrap_and_average_towards_zero() -> None:
    assert reduced([b"\xff", b"\x02"], U8, SUM, [1, 1]) == b"\x01"
    assert reduced([struct.pack("b", -4), struct.pack("b", -3)], I8, AVG, [1, 1]) == struct.pack("b", -3)


def test_scaled_sums_use_every_members_own_factor() -> None:
    inputs = [struct.pack("<2d", 1.0, 2.0), struct.pack("<2d", 10.0, 20.0)]
    assert reduced(inputs, F64, PREMULSUM, [0.5, 0.25]) == struct.pack("<2d", 3.0, 6.0)


def test_half_precision_is_rounded_once() -> None:
    values = [np.full(1, 1.0 + 2**-10, "<f2"), np.full(1, 2**-11, "<f2"), np.full(1, 2**-11, "<f2")]
    got = np.frombuffer(reduced([v.tobytes() for v in values], F16, SUM, [1, 1, 1]), "<f2")
    assert got[0] == np.float16(1.0 + 2**-9)


@given(st.floats(width=32))
def test_bf16_rounds_to_a_nearest_value(value: float) -> None:
    single = np.array([value], "<f4")
    back = small_floats.load(small_floats.store(single, BF16), BF16)[0]
    if math.isnan(value):
        assert math.isnan(back)
        return
    if abs(value) > LARGEST_BF16:
        assert abs(back) in (LARGEST_BF16, math.inf)
        return
    neighbours = np.array([back], "<f4").view("<u4") + np.array([-0x10000, 0, 0x10000]).astype("<u4")
    distances = [abs(float(neighbour) - value) for neighbour in neighbours.view("<f4") if math.isfinite(neighbour)]
    assert abs(float(back) - value) == min(distances)


LARGEST_BF16 = 2.0**127 * (2 - 2**-7)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, 1.0),
        (1 + 2**-8, 1.0),
        (1 + 3 * 2**-8, 1 + 2**-6),
        (1 + 2**-8 + 2**-20, 1 + 2**-7),
        (-(1 + 2**-8), -1.0),
        (2**-133, 2**-133),
        (2**-134, 0.0),
        (LARGEST_BF16, LARGEST_BF16),
        (3.4e38, math.inf),
    ],
)
def test_bf16_ties_go_to_even(value: float, expected: float) -> None:
    assert small_floats.load(small_floats.store(np.array([value], "<f4"), BF16), BF16)[0] == expected


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_every_code_of_the_small_formats_survives(dtype: int) -> None:
    codes = bytes(range(256))
    values = small_floats.load(codes, dtype)
    back = small_floats.load(small_floats.store(values, dtype), dtype)
    assert np.array_equal(values, back, equal_nan=True)
    finite = np.isfinite(values)
    assert small_floats.store(values[finite], dtype) == np.frombuffer(codes, "u1")[finite].tobytes()


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (E4M3, 449.0, 448.0),
        (E4M3, 1e9, 448.0),
        (E4M3, 17.0, 16.0),
        (E4M3, 19.0, 20.0),
        (E4M3, 2**-10, 0.0),
        (E4M3, 2**-10 * 1.5, 2**-9),
        (E4M3, -3.3, -3.25),
        (E5M2, 57344.0, 57344.0),
        (E5M2, 61440.0, math.inf),
        (E5M2, 61439.0, 57344.0),
        (E5M2, 1.125, 1.0),
        (E5M2, 1.375, 1.5),
    ],
)
def test_small_formats_round_to_nearest_even(dtype: int, value: float, expected: float) -> None:
    assert small_floats.load(small_floats.store(np.array([value], "<f4"), dtype), dtype)[0] == expected
