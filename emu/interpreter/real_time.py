"""The machine's own clock and sleep, for code of ours that waits for other processes.

They are bound when this module is imported, before `emu.clock` replaces the functions of `time` in the process.
"""

from __future__ import annotations

import time

monotonic = time.monotonic
"""Real seconds, as `time.monotonic` of a plain interpreter."""
monotonic_ns = time.monotonic_ns
"""Real nanoseconds, as `time.monotonic_ns` of a plain interpreter."""
sleep = time.sleep
"""Sleeps for real seconds."""
