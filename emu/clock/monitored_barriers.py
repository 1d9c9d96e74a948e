"""A monitored barrier of gloo gives up in virtual time.

The group's first rank looks for the others, for as long as it is told to, and names those that have not come. gloo does
so by messages and real seconds, which say nothing here: a rank that the emulation has not come to yet is not late, and
one that sleeps for an hour is there at once. So each rank says in the group's store that it has come, when virtual time
is there, and the first rank looks there until all have, or its time is over.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

_POLL_S = 0.001
"""The time between two looks of the first rank, in s, at first; it looks less often when it has waited long."""
_AT_ONCE = timedelta(milliseconds=1)


def watching(real: Callable[..., None], lengthening: Callable[..., None]) -> Callable[..., None]:
    """Makes the replacement of `ProcessGroup.monitored_barrier`. `real` takes its timeout as it is; `lengthening` takes
    one that does not run out. `time` is virtual here, as in the script.
    """
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    """The number of barriers of each group so far."""

    @functools.wraps(real)
    def monitored_barrier(group: Any, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        store_of = getattr(group, "get_group_store", None)  # older versions do not tell
        if store_of is None or timeout is None or timeout <= timedelta():
            return lengthening(group, timeout, wait_all_ranks)
        number = numbers[group] = numbers.get(group, -1) + 1
        began_s = time.monotonic()  # nobody can come to an earlier instant any more
        store, rank = store_of(), group.rank()
        if rank != 0:
            store.set(_key(number, rank), "")
            return lengthening(group, timeout, wait_all_ranks)
        absent = list(range(1, group.size()))
        while absent := [one for one in absent if not store.check([_key(number, one)])]:
            waited_s = time.monotonic() - began_s
            left_s = timeout.total_seconds() - waited_s
            if left_s <= 0:
                _give_up(real, group, timeout, absent, wait_all_ranks)
            time.sleep(min(left_s, max(_POLL_S, waited_s / 100)))
        return lengthening(group, timeout, wait_all_ranks)

    return monitored_barrier


def _key(number: int, rank: int) -> str:
    return f"monitored_barrier/{number}/{rank}"


def _give_up(
    real: Callable[..., None], group: Any, timeout: timedelta, absent: list[int], wait_all_ranks: bool
) -> None:
    """Fails as gloo does. Its own call comes first: both sides count their messages on."""
    with contextlib.suppress(RuntimeError):  # with another time in it
        real(group, _AT_ONCE, wait_all_ranks)
    ranks = f"Ranks {', '.join(map(str, absent))}" if wait_all_ranks else f"Rank {absent[0]}"
    limit_ms = round(timeout / timedelta(milliseconds=1))
    raise RuntimeError(f"[Rank 0]: {ranks} failed to pass monitoredBarrier in {limit_ms} ms")
