"""Virtual time in the script, in processes of their own: the clock replaces functions of `time` for good."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from emu.clock.callers import REAL_TIME_MODULES, WAIT_MODULES, TimeSource, time_source_of

ROOT = Path(__file__).parents[2]
PRELUDE = """
import gc, os, threading, time
from time import perf_counter as early
import timeit

real_sleeps = []
real_sleep = time.sleep
def sleep(seconds):
    real_sleeps.append(seconds)
    real_sleep(seconds)
time.sleep = sleep

from emu.clock import time_functions
from emu.clock.time_functions import PERF_COUNTER_BASE_NS
from emu.clock.virtual_clock import VirtualClock
from emu.interpreter import real_time

class Host:
    now = 0
    asked = 0
    def clock_ns(self):
        self.asked += 1
        return self.now
    clock_read_ns = clock_ns
    def host_clock_ns(self):
        return self.now
    def activity(self):
        return 0
    def advance_ns(self, for_ns):
        self.now += for_ns
    def is_uncounted(self):
        return False
    def looks_on(self):
        return False

BOUND = time_functions.bindings()
gc.freeze()
from time import monotonic as later

def waits(read=time.time):
    return read()

host = Host()
clock = VirtualClock(host)
time_functions.install(clock, BOUND)
assert real_time.monotonic() <= time.monotonic() <= real_time.monotonic(), 'real until it starts'
clock.start(1_700_000_000)
"""


def check(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_clocks_tell_the_hosts_time() -> None:
    check(
        """
        host.now = 2_500_000_000
        assert time.time() == 1_700_000_002.5
        host.now += 1
        assert time.time_ns() == 1_700_000_002_500_000_001
        host.now += 1
        assert time.perf_counter_ns() == PERF_COUNTER_BASE_NS + 2_500_000_002
        host.now += 1
        assert time.monotonic_ns() == PERF_COUNTER_BASE_NS + 2_500_000_003
        assert time.perf_counter.__name__ == 'perf_counter'
        """
    )


def test_names_bound_before_are_virtual_too() -> None:
    check(
        """
        host.now = 7_000_000_000
        assert early() == PERF_COUNTER_BASE_NS / 1e9 + 7
        assert timeit.default_timer is time.perf_counter
        assert timeit.timeit('host.advance_ns(500)', globals={'host': host}, number=1000) > 499e-6
        """
    )


def test_names_bound_after_the_look_are_virtual_too() -> None:
    check(
        """
        host.now = 7_000_000_000
        assert later() == PERF_COUNTER_BASE_NS / 1e9 + 7
        assert waits() == 1_700_000_007
        assert waits.__defaults__ == (time.time,)
        """
    )


def test_only_the_time_functions_among_default_arguments_are_replaced() -> None:
    check(
        """
        import math
        from emu.clock.rebinding import Bindings
        unhashable = []
        def of_one(a=math.gamma, b=unhashable, c=1):
            return a, b, c
        bound = Bindings()
        bound.note({math.gamma})
        def of_another(a=math.gamma):
            return a
        bound.rebind({math.gamma: math.erf})
        assert of_one() == (math.erf, unhashable, 1) and of_one()[1] is unhashable
        assert of_another() is math.erf
        """
    )


def test_sleep_takes_virtual_time_only() -> None:
    check(
        """
        asked = host.asked
        time.sleep(1000)
        assert real_sleeps == []
        assert host.now == 1000 * 10**9
        assert host.asked == asked + 1, 'it ends when all ranks have come that far'
        for bad, error in ((-1, ValueError), ('x', TypeError)):
            try:
                time.sleep(bad)
            except error:
                pass
            else:
                raise AssertionError(bad)
        """
    )


def test_a_loop_that_waits_for_time_ends() -> None:
    check(
        """
        until = time.monotonic() + 1.0
        reads = 0
        while time.monotonic() < until:
            reads += 1
        assert reads < 20_000
        """
    )


def test_a_loop_whose_turns_take_parts_of_a_microsecond_ends_after_thousands_of_turns() -> None:
    check(
        """
        begin = host.now
        for _ in range(5):
            time.monotonic()
            host.now += 300
        assert host.now - begin == 5 * 300, 'a few reads in a row are left alone'
        end, turns = time.monotonic() + 1, 0
        while time.monotonic() < end:
            host.now += 300
            turns += 1
        assert turns < 10_000, turns
        """
    )


def test_calendar_and_numbered_clocks_agree() -> None:
    check(
        """
        import datetime, pickle
        host.now = 2_500_001_999
        assert datetime.datetime.now().timestamp() == 1_700_000_002.500001
        host.now += 1
        assert datetime.datetime.utcnow() == datetime.datetime(2023, 11, 14, 22, 13, 22, 500002)
        host.now += 1
        assert datetime.datetime.now(datetime.UTC).isoformat() == '2023-11-14T22:13:22.500002+00:00'
        host.now += 1
        assert time.clock_gettime_ns(time.CLOCK_REALTIME) == 1_700_000_002_500_002_002
        host.now += 1
        assert time.clock_gettime_ns(time.CLOCK_MONOTONIC) == PERF_COUNTER_BASE_NS + 2_500_002_003
        assert datetime.date.today() == datetime.datetime.now().date() == datetime.datetime.today().date()
        assert time.process_time() <= time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) <= time.process_time()
        assert time.strftime('%H:%M:%S', time.gmtime()) == '22:13:22'
        assert time.strftime('%M:%S') == '13:22' and time.localtime(None).tm_sec == 22
        assert time.ctime() == time.asctime() == time.ctime(1_700_000_002)
        assert time.gmtime(0).tm_year == 1970

        class Mine(datetime.datetime):
            pass
        assert type(Mine.now()) is Mine
        moment = datetime.datetime.now()
        assert type(moment) is datetime.datetime and pickle.loads(pickle.dumps(moment)) == moment
        """
    )


def test_waits_of_libraries_are_real() -> None:
    check(
        """
        import queue
        began = real_time.monotonic()
        assert not threading.Event().wait(0.02)
        try:
            queue.Queue().get(timeout=0.02)
        except queue.Empty:
            pass
        assert real_time.monotonic() - began >= 0.04
        """
    )


def test_a_wait_of_the_script_that_times_out_lets_time_pass() -> None:
    check(
        """
        woken, never = threading.Event(), threading.Event()
        threading.Timer(0.05, woken.set).start()
        assert woken.wait(1000)
        assert host.now == 0
        assert not never.wait(0.01)
        assert host.now == 10_000_000
        """
    )


def test_waits_that_compute_what_is_left_let_the_whole_timeout_pass() -> None:
    """However long the machine takes between the readings. What the program does meanwhile is a part of the timeout."""
    check(
        """
        import asyncio, queue
        class Slow(queue.Queue):
            def _qsize(self):
                real_sleep(0.004)  # between the two readings
                return super()._qsize()
        def ends(timeout):
            try:
                Slow().get(timeout=timeout)
            except queue.Empty:
                return host.now
        assert ends(0.02) == 20_000_000
        assert ends(0.003) == 23_000_000

        async def together():
            loop = asyncio.get_running_loop()
            began, ended = loop.time(), []
            async def one(for_s):
                await asyncio.sleep(for_s)
                ended.append((for_s, host.now))
            async def works():
                await asyncio.sleep(0)
                real_sleep(0.01)
                host.advance_ns(5_000_000)
            await asyncio.gather(one(0.1), one(0.04), works())
            return ended, loop.time() - began
        ended, taken = asyncio.run(together())
        assert [for_s for for_s, _ in ended] == [0.04, 0.1]
        assert [at - 23_000_000 for _, at in ended] == [40_000_000, 100_000_000], ended
        assert abs(taken - 0.1) < 1e-6
        """
    )


def test_a_loop_of_looks_comes_to_its_timeout() -> None:
    check(
        """
        import asyncio
        async def looks():
            turns = 0
            try:
                async with asyncio.timeout(0.5):
                    while True:
                        turns += 1
                        await asyncio.sleep(0)
            except TimeoutError:
                return turns
        assert 45_000 < asyncio.run(looks()) < 55_000
        assert host.now == 0
        loop = asyncio.new_event_loop()
        end = loop.time() + 1
        while loop.time() < end:
            pass
        """
    )


def test_a_wait_that_something_else_ends_takes_as_long_as_it_did() -> None:
    check(
        """
        import asyncio
        async def woken_again_and_again():
            loop = asyncio.get_running_loop()
            wakes = threading.Event()
            def waker():
                while not wakes.wait(0.01):
                    loop.call_soon_threadsafe(lambda: None)
            thread = threading.Thread(target=waker)
            thread.start()
            try:
                async with asyncio.timeout(0.2):
                    await asyncio.Event().wait()
            except TimeoutError:
                return True
            finally:
                wakes.set()
                thread.join()
        began = real_time.monotonic()
        assert asyncio.run(woken_again_and_again())
        assert real_time.monotonic() - began > 0.1
        """
    )


def test_timing_of_a_statement_ends_though_it_costs_nothing() -> None:
    check(
        """
        loops, taken = timeit.Timer('sum(range(100))').autorange()
        assert loops > 1 and 0.2e9 <= taken * 1e9 <= host.now
        assert timeit.timeit('host.advance_ns(2_000_000_000)', globals={'host': host}, number=1) >= 2
        """
    )


def test_daemon_threads_neither_ask_nor_move_the_clock() -> None:
    check(
        """
        host.now = 5_000_000_000
        time.time()
        asked = host.asked
        seen = []
        def work():
            until = time.monotonic() + 0.05
            while time.monotonic() < until:
                time.sleep(0.01)
            seen.append(time.monotonic())
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
        assert seen and host.now == 5_000_000_000 and host.asked == asked
        assert real_sleeps == [0.01] * 5
        """
    )


def test_a_child_process_goes_on_at_real_pace() -> None:
    out = check(
        """
        host.now = 5_000_000_000
        time.time()
        began = real_time.monotonic()
        pid = os.fork()
        if pid == 0:
            time.sleep(0.1)
            elapsed = time.time() - 1_700_000_005
            os._exit(0 if 0.09 < elapsed < real_time.monotonic() - began else 1)
        print(os.waitpid(pid, 0)[1])
        """
    )
    assert out.strip() == "0"


def test_log_records_carry_the_last_known_time() -> None:
    check(
        """
        import logging
        host.now = 3_000_000_000
        time.time()
        asked = host.asked
        record = logging.LogRecord('x', 20, 'p', 1, 'm', (), None)
        assert record.created == 1_700_000_003 and host.asked == asked
        """
    )


def test_a_progress_bar_asks_only_after_the_rank_has_called_something() -> None:
    """Ranks that prepare a data set in turn, under a file lock, would wait for each other at each file."""
    check(
        """
        calls = 0
        Host.activity = lambda self: calls
        bar = {'__name__': 'tqdm.std', 'time': time}
        exec('def now(): return time.time_ns()', bar)
        host.now = 5
        time.time()
        asked = host.asked
        host.now = 9
        assert [bar['now']() for _ in range(100)] == [1_700_000_000_000_000_005] * 100
        assert host.asked == asked
        calls = 1
        assert bar['now']() == 1_700_000_000_000_000_009
        assert host.asked == asked + 1
        """
    )


def test_a_package_stands_for_all_of_its_modules() -> None:
    assert time_source_of("torch.distributed.elastic.timer") is TimeSource.REAL
    assert time_source_of("torch.utils.benchmark") is TimeSource.VIRTUAL
    assert time_source_of("logging.handlers") is TimeSource.LAST_KNOWN
    assert time_source_of("asyncio.base_events") is TimeSource.WAITS
    assert time_source_of("__main__") is TimeSource.VIRTUAL
    assert time_source_of(None) is TimeSource.VIRTUAL


def test_modules_that_get_real_time_ask_for_it() -> None:
    """Else they need not be listed. Looked at are those that are installed."""
    imports = re.compile(r"^\s*(import (\w+, )*time\b|from time import)", re.MULTILINE)
    silent = []
    for module in REAL_TIME_MODULES | WAIT_MODULES:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            continue
        if found is None or found.origin is None:
            continue
        origin = Path(found.origin)
        files = sorted(origin.parent.rglob("*.py")) if found.submodule_search_locations else [origin]
        if not any(imports.search(file.read_text(errors="replace")) for file in files):
            silent.append(module)
    assert silent == []
