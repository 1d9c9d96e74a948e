"""Exchanges the small data of collectives: members' input bytes come in, the bytes that NCCL would have written go out.

This does not depend on virtual time: an output leaves as soon as all inputs have arrived. A member whose input was
written by nothing that is modelled sends no bytes. Then the outputs are unknown: floating-point outputs are empty, and
integers are computed as if the missing input were zeros, and marked as assumed. If no member sends bytes, all outputs
are empty. A member may know only some bytes of its input: then each byte of the outputs is marked as known or unknown.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import ProtocolError
from phantora_async.ingest import small_floats
from phantora_async.ingest.communicators import Answers
from phantora_async.ingest.shared_roots import ONE_GIVES, SharedRoots
from phantora_async.virtual_time import Timelines
from phantora_async.virtual_time.facts import DTYPE_NBYTES, Collective

ASSUMED, SOME_KNOWN, CHECKS = 1, 2, 3
"""Values that NCCL_DATA and DATA have for their bytes."""
FOLLOWS = (1 << 64) - 1
"""The value of data_nbytes for an input that comes later, in an NCCL_DATA record."""
SUM, PROD, MAX, MIN, AVG, PREMULSUM = range(6)
"""The values of ncclRedOp_t."""
_NATIVE = ("i1", "u1", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
"""The types of numpy for the first values of ncclDataType_t. numpy lacks those that come after them."""
_FIRST_FLOAT = 6
"""The value of ncclFloat16: the types before it are integers, those after it floating-point."""
Array = NDArray[Any]


class _Announced(NamedTuple):
    """Identifies an input that was announced for later."""

    rank: int
    comm: int
    seq: int
    op: int
    peer: int


class _Input(NamedTuple):
    """Identifies an input: the collective, and the member's place in it."""

    collective: Collective
    place: int


class _Pending:
    """The inputs that members of one collective have sent, by place. A place without an input sent no bytes."""

    __slots__ = ("assumed", "inputs", "masks", "missing", "partly", "scales", "tokens")

    def __init__(self) -> None:
        self.inputs: dict[int, bytes] = {}
        self.masks: dict[int, bytes] = {}
        """The masks of inputs that are known in part, or assumed: 1 for each byte that is known, else 0."""
        self.missing = 0
        """The number of inputs that were announced and have not arrived."""
        self.scales: dict[int, float] = {}
        """The scales of a PREMULSUM, by place."""
        self.tokens: dict[int, int] = {}
        """The members that wait for an output, and how they identify it."""
        self.partly = False
        """True if an input is known only in part."""
        self.assumed = 0
        """ASSUMED: an input follows from values that nobody computed, and so do the outputs. CHECKS: only values that
        check for overflow do.
        """

    def assume(self, what: int) -> None:
        self.assumed = ASSUMED if ASSUMED in (self.assumed, what) else what


class DataExchange:
    """Collects the inputs of each collective.

    A member's place is its rank in the communicator; of a send with its receive, 0 is the sender and 1 the receiver.
    `mirrored` ranks have no process that waits for outputs.
    """

    def __init__(self, timelines: Timelines, mirrored: Container[int] = ()) -> None:
        """`timelines`: a rank that shares a timeline gives the input of the rank that has it."""
        self._timelines = timelines
        self._mirrored = mirrored
        self._roots = SharedRoots(timelines)
        self._pending: dict[Collective, _Pending] = {}
        self._announced: dict[_Announced, list[_Input]] = {}
        """A message of a gather or scatter is one of several, if ranks share the sender's timeline."""

    def join(self, rank: int, collective: Collective, op: records.NcclOp, data: bytes) -> Answers:
        """Takes the input of a member that has just joined the collective.

        Returns encoded DATA for the members that wait for outputs, once nothing is missing. The token says which
        process of the rank gets it, as a question's number does. Members of large collectives send neither bytes nor
        tokens, and nothing is kept for them.
        """
        pending = self._pending.get(collective)
        turn = None
        if self._timelines.shared:
            turn = self._roots.gives(rank, collective, data, op.data_nbytes == FOLLOWS)
        if pending is None:
            if not op.token and not op.data_nbytes and turn is None:
                return []
            pending = self._pending[collective] = _Pending()
        waits = op.token and rank not in self._mirrored
        if waits or op.data_nbytes or op.redop == PREMULSUM:
            place = int(op.op == NcclKind.RECV) if collective.op == NcclKind.SEND else collective.comm.rank_of[rank]
            if op.data_nbytes == FOLLOWS:
                pending.missing += 1
                announced = _Announced(rank, op.comm, op.seq, op.op, op.peer)
                self._announced.setdefault(announced, []).append(_Input(collective, place))
            elif data:
                pending.inputs[place] = data
            if op.redop == PREMULSUM:
                pending.scales[place] = op.scale
            if waits:
                pending.tokens[place] = op.token
        if turn is not None and turn.data:
            pending.inputs[collective.root] = turn.data
        elif turn is not None and turn.record is not None:
            self._put(collective, collective.root, turn.record)
        elif turn is not None and turn.late:
            pending.missing += 1
        return self._finish(collective, pending)

    def late(self, rank: int, record: records.NcclData) -> Answers:
        """Takes an input that was announced. Raises ProtocolError if it was not."""
        found = self._announced.pop(_Announced(rank, record.comm, record.seq, record.op, record.peer), None)
        if found is None:
            raise ProtocolError(rank, f"NCCL_DATA for call {record.seq} of {record.comm:#x} was not announced")
        answers: Answers = []
        waiting = self._roots.later(rank, record) if self._timelines.shared else ()
        for waits, its_place in (*found, *((other, other.root) for other in waiting)):
            pending = self._pending[waits]
            pending.missing -= 1
            self._put(waits, its_place, record)
            answers += self._finish(waits, pending)
        return answers

    def _put(self, collective: Collective, place: int, record: records.NcclData) -> None:
        """Stores an announced input."""
        pending = self._pending[collective]
        if record.payload:
            # The record's length includes padding; the input's length follows from the call.
            nbytes = _input_nbytes(collective, place)
            before = _mask_nbytes(nbytes) if record.assumed == SOME_KNOWN else 0
            pending.inputs[place] = record.payload[before : before + nbytes]
            pending.partly |= bool(before)
            if record.assumed in (ASSUMED, CHECKS):
                pending.assume(record.assumed)
            if record.assumed:
                pending.masks[place] = _unpacked(record.payload[:before], nbytes)

    def _finish(self, collective: Collective, pending: _Pending) -> Answers:
        if len(collective.joined) < len(collective.callers) or pending.missing:
            return []
        del self._pending[collective]
        if len(collective.callers) < len(collective.ranks) and collective.op not in ONE_GIVES:
            self._complete(collective, pending)
        places = sorted(pending.tokens)
        if pending.partly:
            return _partly_known(collective, pending, places)
        unknown = any(place not in pending.inputs and _input_nbytes(collective, place) for place in _givers(collective))
        if unknown:
            pending.assume(ASSUMED)
        if pending.inputs and places and not (unknown and collective.dtype >= _FIRST_FLOAT):
            outputs = _outputs(collective, _inputs(collective, pending.inputs), _scales(collective, pending), places)
        else:
            outputs = [b""] * len(places)
        return [
            (collective.ranks[place], records.Data.encode(token, token, pending.assumed, payload=output))
            for place, token, output in zip(places, (pending.tokens[place] for place in places), outputs, strict=True)
        ]

    def _complete(self, collective: Collective, pending: _Pending) -> None:
        """Adds the inputs of members that share timelines."""
        given: Iterable[dict[int, Any]] = (pending.inputs, pending.masks, pending.scales)
        for place, rank in enumerate(collective.ranks):
            own = self._timelines.of_each[rank]
            if own != rank:
                at = collective.comm.rank_of[own]
                for by_place in given:
                    if at in by_place:
                        by_place[place] = by_place[at]


def _partly_known(collective: Collective, pending: _Pending, places: Sequence[int]) -> Answers:
    """The outputs, each with the mask of its known bytes."""
    given = {place: pending.masks.get(place, b"\1" * len(data)) for place, data in pending.inputs.items()}
    outputs = _outputs(collective, _inputs(collective, pending.inputs), _scales(collective, pending), places)
    known = _known_outputs(collective, _inputs(collective, given), places)
    answers = []
    for place, output, mask in zip(places, outputs, known, strict=True):
        if all(mask):
            assumed, payload = 0, output
        elif any(mask):
            assumed, payload = SOME_KNOWN, _packed(mask) + output
        else:
            assumed, payload = 0, b""
        token = pending.tokens[place]
        answers.append((collective.ranks[place], records.Data.encode(token, token, assumed, payload=payload)))
    return answers


def _known_outputs(collective: Collective, masks: Sequence[bytes], places: Sequence[int]) -> list[bytes]:
    """The masks of the outputs. An element of a reduction is known if it is known on all members."""
    if collective.op not in (NcclKind.ALL_REDUCE, NcclKind.REDUCE, NcclKind.REDUCE_SCATTER):
        return _outputs(collective, masks, (), places)
    width = DTYPE_NBYTES[collective.dtype]
    everywhere = np.minimum.reduce([np.frombuffer(mask, np.uint8).reshape(-1, width) for mask in masks]).min(1)
    whole = np.repeat(everywhere, width).tobytes()
    if collective.op != NcclKind.REDUCE_SCATTER:
        return [whole for _ in places]
    return [whole[place * collective.nbytes : (place + 1) * collective.nbytes] for place in places]


def _mask_nbytes(nbytes: int) -> int:
    return (nbytes + 63) // 64 * 8


def _unpacked(bits: bytes, nbytes: int) -> bytes:
    """One byte for each bit; zeros beyond the given bits."""
    if not bits:
        return bytes(nbytes)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=nbytes, bitorder="little").tobytes()


def _packed(mask: bytes) -> bytes:
    bits = np.packbits(np.frombuffer(mask, np.uint8), bitorder="little").tobytes()
    return bits.ljust(_mask_nbytes(len(mask)), b"\0")


def _inputs(collective: Collective, given: dict[int, bytes]) -> list[bytes]:
    """Every member's input, with zeros where it sent none. Raises ProtocolError for one of a wrong size."""
    inputs = [b""] * len(collective.ranks)
    for place, data in sorted(given.items()):
        nbytes = _input_nbytes(collective, place)
        if data and len(data) != nbytes:
            what = f"{len(data)} bytes of input for {collective.describe()}, expected {nbytes}"
            raise ProtocolError(collective.ranks[place], what)
        inputs[place] = data
    for place in _givers(collective):
        inputs[place] = inputs[place] or bytes(_input_nbytes(collective, place))
    return inputs


def _givers(collective: Collective) -> Sequence[int]:
    """The places that may have an input. It may be a single one of many: an all-gather can be made of as many
    broadcasts.
    """
    if collective.op in (NcclKind.BROADCAST, NcclKind.SCATTER):
        return (collective.root,)
    return (0,) if collective.op == NcclKind.SEND else range(len(collective.ranks))


def _scales(collective: Collective, pending: _Pending) -> Sequence[float]:
    """The scales by place; none if the collective has no use for them."""
    if collective.redop != PREMULSUM:
        return ()
    return [pending.scales.get(place, 1.0) for place in range(len(collective.ranks))]


def _input_nbytes(collective: Collective, place: int) -> int:
    """The bytes that a member's send buffer holds."""
    op, nbytes = collective.op, collective.nbytes
    if op in (NcclKind.BROADCAST, NcclKind.SCATTER, NcclKind.SEND) and place not in _givers(collective):
        return 0
    if op in (NcclKind.REDUCE_SCATTER, NcclKind.ALL_TO_ALL, NcclKind.SCATTER):
        return nbytes * len(collective.ranks)
    return nbytes


def _outputs(
    collective: Collective, inputs: Sequence[bytes], scales: Sequence[float], places: Iterable[int]
) -> list[bytes]:
    """The bytes that the real call would have written at each of the places. Reductions add in the order of ranks."""
    op, nbytes = collective.op, collective.nbytes

    def part(data: bytes, place: int) -> bytes:
        return data[place * nbytes : (place + 1) * nbytes]

    if op == NcclKind.ALL_TO_ALL:
        return [b"".join(part(data, place) for data in inputs) for place in places]
    if op in (NcclKind.ALL_REDUCE, NcclKind.REDUCE, NcclKind.REDUCE_SCATTER):
        whole = reduced(inputs, collective.dtype, collective.redop, scales)
    elif op in (NcclKind.ALL_GATHER, NcclKind.GATHER):
        whole = b"".join(inputs)
    else:
        whole = inputs[collective.root if op in (NcclKind.BROADCAST, NcclKind.SCATTER) else 0]
    if op in (NcclKind.REDUCE_SCATTER, NcclKind.SCATTER):
        return [part(whole, place) for place in places]
    return [whole for _ in places]


def reduced(inputs: Sequence[bytes], dtype: int, redop: int, scales: Sequence[float]) -> bytes:
    """Reduces buffers of equal size element by element. NCCL's average divides the sum; integers round towards zero."""
    if redop == PREMULSUM:
        scaled = [_load(data, dtype) * np.asarray(scale) for data, scale in zip(inputs, scales, strict=True)]
        arrays = [array.astype(_load(inputs[0], dtype).dtype) for array in scaled]
    else:
        arrays = [_load(data, dtype) for data in inputs]
    with np.errstate(all="ignore"):
        total = arrays[0].copy()
        for array in arrays[1:]:
            if redop in (SUM, AVG, PREMULSUM):
                total += array
            elif redop == PROD:
                total *= array
            elif redop == MAX:
                total = np.maximum(total, array)
            elif redop == MIN:
                total = np.minimum(total, array)
            else:
                raise ValueError(f"unknown reduction {redop}")
        if redop == AVG:
            total = _divided(total, len(arrays))
    return _store(total, dtype)


def _divided(total: Array, by: int) -> Array:
    if total.dtype.kind == "f":
        quotient: Array = total / total.dtype.type(by)
    elif total.dtype.kind == "u":
        quotient = total // total.dtype.type(by)
    else:
        quotient = np.sign(total) * (np.abs(total) // total.dtype.type(by))
    return quotient.astype(total.dtype)


def _load(data: bytes, dtype: int) -> Array:
    if dtype < len(_NATIVE):
        array: Array = np.frombuffer(data, _NATIVE[dtype])
        # Sums are kept in single precision and rounded once. NCCL rounds at every hop, in its algorithm's order.
        return array.astype("<f4") if _NATIVE[dtype] == "<f2" else array
    return small_floats.load(data, dtype)


def _store(array: Array, dtype: int) -> bytes:
    if dtype < len(_NATIVE):
        return array.astype(_NATIVE[dtype]).tobytes()
    return small_floats.store(array, dtype)


assert len(_NATIVE) + 3 == len(DTYPE_NBYTES)
