"""How long a program's questions in a row take (``polls.def``).

``while not event.query(): pass`` and ``while time.time() < deadline: pass`` end because each turn takes time. Where the
host model says that a turn takes none, virtual time would stand still and the program ask for ever; where it takes
parts of a microsecond, waiting for milliseconds takes thousands of questions. So, of questions in a row that come
closer than CLOSE_NS after each other, the first cost nothing, and later ones the longer, the more there have been: who
waits for a peer that sleeps for minutes learns of its end at most 0.2 % later. A program that reads its clock a few
times at one instant is not disturbed.

A loop that does nothing but ask whether one work is complete is a wait, however a library spells it: the hook library
asks for many of its turns at once (QUERY's `turns`), and virtual time goes to the end of the work, or of the turns. A
turn takes the host time between two questions, but TURN_NS at least, and the wait ends with the first turn at which
the work is complete: where it ends does not depend on how many turns were asked for at once.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from emu.contract import records
from formats.c_lists import read_list
from phantora_async.virtual_time.entities import Host, Turns
from phantora_async.virtual_time.event_queue import EventQueue

_FILE = Path(__file__).with_suffix(".def")
CLOSE_NS = next(int(value) for _, (value,) in read_list(_FILE, "CLOSE"))
TURN_NS = next(int(value) for _, (value,) in read_list(_FILE, "TURN"))
_TABLE = [(int(first), int(each_ns)) for _, (first, each_ns) in read_list(_FILE, "POLL")]
_FROM = [first for first, _ in _TABLE]


def polls_by(host: Host, at_ns: int) -> int:
    """How many questions in a row the host has asked, with one that it asks at this instant."""
    return 1 if at_ns - host.polled_ns > CLOSE_NS else host.polls + 1


def poll_ns(polls: int) -> int:
    """How long the question takes that is the row's number `polls`, counted from 1."""
    place = bisect_right(_FROM, polls)
    return _TABLE[place - 1][1] if place else 0


def delay_poll(host: Host, event_queue: EventQueue) -> bool:
    """Counts a question of the host. True if it takes time: the host asks it again when that has passed."""
    now_ns = event_queue.now_ns
    if host.poll_delayed:
        host.poll_delayed = False
        host.polled_ns = now_ns
        return False
    host.polls = polls_by(host, now_ns)
    host.polled_ns = now_ns
    for_ns = poll_ns(host.polls)
    if not for_ns:
        return False
    host.poll_delayed = host.retry = True
    host.clock_ns = now_ns + for_ns
    event_queue.push(host.clock_ns, host)
    return True


def turns_of(record: records.Query, now_ns: int) -> Turns:
    """`now_ns`: its instant. It has `turns`."""
    each_ns = max(record.host_ns, TURN_NS)
    return Turns(now_ns + each_ns - record.host_ns, each_ns, record.turns)
