"""Sleeps for an hour, and looks at every clock before and after."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta

before = time.time(), time.perf_counter(), time.monotonic(), datetime.now(), time.localtime(), time.strftime("%j %H")
time.sleep(3600)
after = time.time(), time.perf_counter(), time.monotonic(), datetime.now(), time.localtime(), time.strftime("%j %H")
for clock in range(3):
    assert 3600 <= after[clock] - before[clock] < 3600.001, (clock, before, after)
assert timedelta(hours=1) <= after[3] - before[3] < timedelta(hours=1, milliseconds=1)
assert 3600 <= time.mktime(after[4]) - time.mktime(before[4]) <= 3601
assert before[5] != after[5]
assert date.today() == datetime.fromtimestamp(time.time()).date()
assert abs(time.mktime(time.strptime(time.ctime())) - time.time()) < 2
assert abs(time.mktime(time.strptime(time.asctime())) - time.time()) < 2
assert time.process_time() < 600, "processor time is real"
print("PASSED", flush=True)
