"""Programs that ask again and again until time has passed, on a host whose own work costs little or nothing.

``while not event.query(): pass`` and ``while time.time() < deadline: pass`` end because each turn takes time. Where the
host model says that a turn takes none, virtual time would stand still and the program ask for ever; where it takes
parts of a microsecond, waiting for milliseconds takes thousands of questions. So, of questions in
a row that each come less than CLOSE_NS after the one before, the first FREE cost nothing, and every further one takes
SHORT_NS, after MANY of them LONG_NS. A program that reads its clock a few times at one instant is not disturbed.
"""

from __future__ import annotations

from phantora_async.virtual_time.entities import Host
from phantora_async.virtual_time.event_queue import EventQueue

CLOSE_NS = 2_000
FREE = 64
SHORT_NS = 1_000
MANY = 1_000
LONG_NS = 100_000


def is_delayed(host: Host, event_queue: EventQueue) -> bool:
    """Counts a question of the host. If it has to take time, the host will ask it again then."""
    now_ns = event_queue.now_ns
    if host.poll_delayed:
        host.poll_delayed = False
        host.polled_ns = now_ns
        return False
    if now_ns - host.polled_ns > CLOSE_NS:
        host.polls = 0
    host.polls += 1
    host.polled_ns = now_ns
    if host.polls <= FREE:
        return False
    host.poll_delayed = host.retry = True
    host.clock_ns = now_ns + (SHORT_NS if host.polls <= MANY else LONG_NS)
    event_queue.push(host.clock_ns, host)
    return True
