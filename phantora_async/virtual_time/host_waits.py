"""What a host waits for at a HOST_WAIT, or in a loop of QUERYs: an event, a stream, or all streams of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from emu.contract import records
from emu.contract.records import ScopeKind
from phantora_async.errors import ProtocolError
from phantora_async.virtual_time.entities import Device, EventRecording, Host, HostState, Stream
from phantora_async.virtual_time.rollback_log import RollbackLog

if TYPE_CHECKING:
    from phantora_async.virtual_time.streams import Streams


class Awaited(NamedTuple):
    state: HostState
    what: EventRecording | Stream | Device
    device: Device
    """On which that is."""


def awaited(host: Host, record: records.HostWait | records.Query) -> Awaited | None:
    """None if it is done. Raises ProtocolError."""
    if record.scope == ScopeKind.EVENT:
        recording = host.recording(record.recording)
        if recording.done_ns >= 0:
            return None
        return Awaited(HostState.WAITS_EVENT, recording, recording.stream.device)
    if record.scope == ScopeKind.STREAM:
        stream = host.stream(record.stream)
        return Awaited(HostState.WAITS_STREAM, stream, stream.device) if stream.state else None
    if record.scope != ScopeKind.DEVICE:
        raise ProtocolError(host.rank, f"HOST_WAIT with scope {record.scope}")
    device = host.devices.get(record.stream)
    if device is None or not device.busy_streams:
        return None
    return Awaited(HostState.WAITS_DEVICE, device, device)


def begin(host: Host, what: EventRecording | Stream | Device, streams: Streams) -> None:
    """The host is woken when that is done."""
    if isinstance(what, EventRecording):
        streams.await_recording(what, host)
    else:
        what.host_waits = True


def end(host: Host, log: RollbackLog) -> None:
    """The host is not to be woken."""
    match host.waits_for:
        case EventRecording() as recording:
            if log.undo is not None:
                log.undo.append((_wait_again, (recording, tuple(recording.waiters))))
            recording.waiters.remove(host)
        case Stream() | Device() as what:
            what.host_waits = False


# ---- undo entries --------------------------------------------------------------------------------------------------


def _wait_again(recording: EventRecording, waiters: tuple[Stream | Host, ...]) -> None:
    recording.waiters[:] = waiters
