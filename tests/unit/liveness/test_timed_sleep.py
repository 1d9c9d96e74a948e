"""Until when threads sleep that wake up by themselves: with real processes."""

from __future__ import annotations

import time

import pytest

from phantora_async.liveness.timed_sleep import sleeps_until_s

from .test_bystanders import asleep, start

LONG_S = 1000.0
SLEEPS = f"threading.Thread(target=time.sleep, args=({LONG_S},), daemon=True).start()\n"


@pytest.mark.parametrize(
    ("code", "sleeps"),
    [
        (f"import time\nready(); time.sleep({LONG_S})", True),
        (f"import time\n{SLEEPS}ready(); threading.Event().wait()", True),
        ("ready(); threading.Event().wait()", False),
        (f"import time\ndef watch():\n    name(b'pt_tcpstore_uv')\n    time.sleep({LONG_S})\n"
         "threading.Thread(target=watch, daemon=True).start(); ready(); one.recv(1)", False),
    ],
    ids=["the first thread", "another thread", "none", "a thread that serves"],
)  # fmt: skip
def test_the_end_of_a_thread_s_sleep_is_read(code: str, sleeps: bool) -> None:
    before_s = time.monotonic()
    child = start(code)
    try:
        asleep(child.pid)
        until_s = sleeps_until_s(child.pid)
        if sleeps:
            assert before_s + LONG_S <= until_s <= time.monotonic() + LONG_S
        else:
            assert until_s == 0.0
    finally:
        child.kill()
        child.wait()
    assert sleeps_until_s(child.pid) == 0.0
