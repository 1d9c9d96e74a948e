"""Small data that collectives really exchange: members' input bytes in, the bytes that NCCL would have written out.

Independent of virtual time: an output leaves as soon as all inputs are there. A member whose input nothing modelled
wrote says so by sending none; it counts as zeros, and if that is so for all, the outputs are empty and nobody's memory
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.coordinator import small_floats
from phantora_async.failures import ProtocolError
from phantora_async.virtual_time.facts import DTYPE_NBYTES, Collective

FOLLOWS = (1 << 64) - 1
"""data_nbytes of an input that comes later, in an NCCL_DATA record."""
SUM, PROD, MAX, MIN, AVG, PREMULSUM = range(6)
_NATIVE = ("i1", "u1", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
"""numpy's types of the first ncclDataType_t; those after them numpy lacks."""
Array = NDArray[Any]


class _Pending:
    """One meeting's inputs, scales and tokens by place; a place without an input sent no bytes."""

    __slots__ = ("inputs", "missing", "scales", "tokens")

    def __init__(self) -> None:
        self.inputs: dict[int, bytes] = {}
        self.missing = 0
        """Inputs that were announced and have not come."""
        self.scales: dict[int, float] = {}
        self.tokens: dict[int, int] = {}


class DataExchange:
    """Collects inputs per meeting. Places are ranks in the communicator, for SEND 0 the sender and 1 the receiver."""

    def __init__(self) -> None:
        self._pending: dict[Collective, _Pending] = {}
        self._late: dict[tuple[int, int, int, int, int], tuple[Collective, int]] = {}

    def join(self, rank: int, collective: Collective, op: records.NcclOp, data: bytes) -> list[tuple[int, bytes]]:
        """The part of a member that has just joined.

        Returns (rank, encoded DATA) for those that wait for outputs, once nothing is missing. Members of large
        collectives send neither bytes nor tokens, and nothing is kept for those.
        """
        pending = self._pending.get(collective)
        if pending is None:
            if not op.token and not op.data_nbytes:
                return []
            pending = self._pending[collective] = _Pending()
        place = int(op.op == NcclKind.RECV) if collective.op == NcclKind.SEND else collective.comm.place[rank]
        if op.data_nbytes == FOLLOWS:
            pending.missing += 1
            self._late[rank, op.comm, op.seq, op.op, op.peer] = collective, place
        elif data:
            pending.inputs[place] = data
        pending.scales[place] = op.scale
        if op.token:
            pending.tokens[place] = op.token
        return self._finish(collective, pending)

    def late(self, rank: int, record: records.NcclData) -> list[tuple[int, bytes]]:
        """The bytes that a member had announced. Raises ProtocolError if it had not."""
        found = self._late.pop((rank, record.comm, record.seq, record.op, record.peer), None)
        if found is None:
            raise ProtocolError(rank, f"NCCL_DATA for call {record.seq} of {record.comm:#x} was not announced")
        collective, place = found
        pending = self._pending[collective]
        pending.missing -= 1
        if record.payload:
            # The record's length counts padding; how long the input is is known.
            pending.inputs[place] = record.payload[: _input_nbytes(collective, place)]
        return self._finish(collective, pending)

    def _finish(self, collective: Collective, pending: _Pending) -> list[tuple[int, bytes]]:
        if len(collective.joined) < len(collective.ranks) or pending.missing:
            return []
        del self._pending[collective]
        outputs: Callable[[int], bytes] = _nothing
        if pending.inputs and pending.tokens:
            inputs = []
            for place, rank in enumerate(collective.ranks):
                nbytes = _input_nbytes(collective, place)
                data = pending.inputs.get(place, b"")
                if data and len(data) != nbytes:
                    raise ProtocolError(
                        rank, f"{len(data)} bytes of input for {collective.describe()}, expected {nbytes}"
                    )
                inputs.append(data or bytes(nbytes))
            outputs = _outputs(collective, inputs, [pending.scales.get(place, 1.0) for place in range(len(inputs))])
        return [
            (collective.ranks[place], records.Data.encode(0, token, payload=outputs(place)))
            for place, token in sorted(pending.tokens.items())
        ]


def _nothing(place: int) -> bytes:
    return b""


def _input_nbytes(collective: Collective, place: int) -> int:
    """Bytes that a member's send buffer holds."""
    op, nbytes = collective.op, collective.nbytes
    if op in (NcclKind.BROADCAST, NcclKind.SCATTER) and place != collective.root:
        return 0
    if op == NcclKind.SEND:
        return nbytes if place == 0 else 0
    if op in (NcclKind.REDUCE_SCATTER, NcclKind.ALL_TO_ALL, NcclKind.SCATTER):
        return nbytes * len(collective.ranks)
    return nbytes


def _outputs(collective: Collective, inputs: list[bytes], scales: list[float]) -> Callable[[int], bytes]:
    """What the real call would have written, by place. Reductions go in the order of ranks, as one thread would add."""
    op, nbytes, root = collective.op, collective.nbytes, collective.root
    if op in (NcclKind.ALL_REDUCE, NcclKind.REDUCE):
        whole = reduced(inputs, collective.dtype, collective.redop, scales)
        return lambda place: whole
    if op == NcclKind.REDUCE_SCATTER:
        whole = reduced(inputs, collective.dtype, collective.redop, scales)
        return lambda place: whole[place * nbytes : (place + 1) * nbytes]
    if op in (NcclKind.ALL_GATHER, NcclKind.GATHER):
        waiting_in_creation = b"".join(inputs)
        return lambda place: waiting_in_creation
    if op == NcclKind.BROADCAST:
        return lambda place: inputs[root]
    if op == NcclKind.SCATTER:
        return lambda place: inputs[root][place * nbytes : (place + 1) * nbytes]
    if op == NcclKind.ALL_TO_ALL:
        return lambda place: b"".join(data[place * nbytes : (place + 1) * nbytes] for data in inputs)
    return lambda place: inputs[0]


def reduced(inputs: list[bytes], dtype: int, redop: int, scales: list[float]) -> bytes:
    """Element-wise reduction of equal buffers. NCCL's average divides the sum, integers towards zero."""
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
        # Added in single precision and rounded once; NCCL rounds at every hop, in its algorithm's order.
        return array.astype("<f4") if _NATIVE[dtype] == "<f2" else array
    return small_floats.load(data, dtype)


def _store(array: Array, dtype: int) -> bytes:
    if dtype < len(_NATIVE):
        return array.astype(_NATIVE[dtype]).tobytes()
    return small_floats.store(array, dtype)


assert len(_NATIVE) + 3 == len(DTYPE_NBYTES)
