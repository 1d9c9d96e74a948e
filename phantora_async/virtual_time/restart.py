"""All ranks start again at one instant, because a rank failed and its launcher restarts the job; or one rank goes on
with another process, because its former one has ended well.

The processes of the ranks have ended in real time, some of them earlier, some later than at the instant at which their
launcher ends them in virtual time. What they sent is executed up to that instant, and what would come later is
dropped. A rank whose process ended earlier stays where it was. Streams, events, communicators and waits end with the
processes; bytes that collectives have given to the network still arrive.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from emu.contract import records
from phantora_async.virtual_time.entities import Host, HostState
from phantora_async.virtual_time.events import Restarted

if TYPE_CHECKING:
    from phantora_async.virtual_time.hosts import Hosts
    from phantora_async.virtual_time.timeline import Timeline

TURN = 100_000


def restart(timeline: Timeline, hosts: Hosts, first: int, ranks: Collection[int], not_before_ns: int) -> int:
    """See ``Timeline.restart``."""
    failed = timeline.hosts[first]
    _execute_up_to_the_end_of(timeline, hosts, failed)
    event_queue = timeline.event_queue
    # It may not come to its end: it waits for ranks whose processes have ended.
    at_ns = failed.clock_ns if failed.state == HostState.RUNNING else event_queue.now_ns
    at_ns = max(at_ns, not_before_ns)
    again = [timeline.hosts[rank] for rank in sorted(ranks)]
    steps = max(timeline.output.results.steps_done(host.rank) for host in again)
    timeline.collectives.forget()
    timeline.comm_creations.forget()
    for host in again:
        _end_process(timeline, host)
        for device in host.used:
            device.account(at_ns)
        host.steps = steps
        host.clock_ns = at_ns
        host.state = HostState.RUNNING
        event_queue.push(at_ns, host)
        timeline.announcer.tell(host, Restarted(at_ns))
    return at_ns


def begin_again(timeline: Timeline, host: Host) -> None:
    """See ``Timeline.begin_again``."""
    at_ns = max(timeline.event_queue.now_ns, host.clock_ns)
    _end_process(timeline, host)
    for device in host.used:
        device.account(at_ns)
    host.clock_ns = at_ns
    host.state = HostState.RUNNING
    timeline.event_queue.push(at_ns, host)
    timeline.announcer.tell(host, Restarted(at_ns))


def _execute_up_to_the_end_of(timeline: Timeline, hosts: Hosts, failed: Host) -> None:
    """Executes what all ranks sent for instants up to the end of this one. It holds time back; others that have sent
    nothing more do not.
    """
    while timeline.run(TURN).name not in ("DRAINED", "LIMIT"):
        if timeline.starved == failed.rank:
            return
        if timeline.starved is not None:
            host = timeline.hosts[timeline.starved]
            timeline.event_queue.drop(host)
            hosts.block(host, HostState.ENDED)
            timeline.starved = None


def _end_process(timeline: Timeline, host: Host) -> None:
    """Nothing is left of the rank's process but what has been counted."""
    event_queue = timeline.event_queue
    for stream in (*host.streams.values(), *host.draining):
        event_queue.drop(stream)
    event_queue.drop(host)
    for device in host.used:
        device.account(event_queue.now_ns)
        device.resident = device.transferring = device.busy_streams = 0
        device.running = ()
        device.repetition = None
        device.host_waits = False
        device.busy_until_ns = min(device.busy_until_ns, event_queue.now_ns)
    del host.log[host.cursor :]
    host.answered = host.facts_done
    host.streams.clear()
    host.recordings.clear()
    host.draining = ()
    host.devices = {device.number: device for device in host.used}
    host.waits_for = None
    host.state = HostState.ENDED
    host.turns = None
    host.silent = host.may_pass = host.retry = host.poll_delayed = False
    host.polls = 0
    host.counted = host.counters


def total(before: records.Counters, now: records.Counters) -> records.Counters:
    """What processes of one rank have counted, one after the other."""
    return now._replace(
        launches=before.launches + now.launches,
        flops=before.flops + now.flops,
        host_work_ns=before.host_work_ns + now.host_work_ns,
        api_calls=before.api_calls + now.api_calls,
        ops=before.ops + now.ops,
        unmodelled_reads=before.unmodelled_reads + now.unmodelled_reads,
        refused_calls=before.refused_calls + now.refused_calls,
    )
