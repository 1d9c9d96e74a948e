"""Sleeps for an hour, and reads every clock before and after."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from typing import NamedTuple


class Clocks(NamedTuple):
    time: float
    perf_counter: float
    monotonic: float
    now: datetime
    local: time.struct_time
    text: str


def read() -> Clocks:
    return Clocks(
        time.time(), time.perf_counter(), time.monotonic(), datetime.now(), time.localtime(), time.strftime("%j %H")
    )


before = read()
time.sleep(3600)
after = read()
for clock in ("time", "perf_counter", "monotonic"):
    assert 3600 <= getattr(after, clock) - getattr(before, clock) < 3600.001, (clock, before, after)
assert timedelta(hours=1) <= after.now - before.now < timedelta(hours=1, milliseconds=1)
assert 3600 <= time.mktime(after.local) - time.mktime(before.local) <= 3601
assert before.text != after.text
assert date.today() == datetime.fromtimestamp(time.time()).date()
assert abs(time.mktime(time.strptime(time.ctime())) - time.time()) < 2
assert abs(time.mktime(time.strptime(time.asctime())) - time.time()) < 2
assert time.process_time() < 3600, "processor time is real"
print("PASSED", flush=True)
