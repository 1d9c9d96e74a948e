"""Findings of a process group's watchdog depend on virtual time, not on when it looks."""

import ctypes
import errno
import os
import subprocess
import threading
import time

from emu.contract import records


def until(condition):
    while not condition():
        time.sleep(0.001)


NOT_READY = 600
FOUND_AFTER_NS = 142_857_140
"""The time after which work is found done: a look every 100 ms, by the clock of a host that takes 0.7 of the described
one's time.
"""

# The hook knows a process group by the function that creates the communicator.
PROCESS_GROUP = """
#include <pthread.h>
#include <time.h>
int _ZN4c10d16ProcessGroupNCCL12initNCCLCommEv(int (*create)(void)) { return create() + 0 * __LINE__; }

/* Sleeps for 100 ms, as a watchdog does between its looks; returns what the wait returned. */
int nap(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&lock);
    int status = pthread_cond_timedwait(&never, &lock, &until);
    pthread_mutex_unlock(&lock);
    return status;
}
"""


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Watchdog(threading.Thread):
    """Queries events as ProcessGroupNCCL does, without a pause between its looks. Its name comes when the program's
    thread has slept so often.
    """

    def __init__(self, c, named_after):
        super().__init__(daemon=True)
        self.c, self.events, self.found, self.done = c, [], [], False
        self.named_after = named_after
        self.looks, self.goes_on = 0, threading.Event()
        self.goes_on.set()

    def wait_to_be_named(self):
        began = sleeps_of_program()
        while sleeps_of_program() < began + self.named_after:
            time.sleep(0.001)

    def run(self):
        self.wait_to_be_named()
        ctypes.CDLL(None).prctl(15, b"pt_nccl_watchdg", 0, 0, 0)
        while not self.done:
            self.goes_on.wait()
            self.looks += 1
            for event in list(self.events):
                if self.c.cudaEventQuery(event) == 0:
                    self.events.remove(event)
                    self.found.append(event)
                self.c.cudaThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(1)))
            time.sleep(0.001)


def sleeps_of_program():
    """Returns how often the first thread has given up its processor by itself."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))


class ProcessGroup:
    def __init__(self, rank, helper, named_after=0):
        self.c = rank.c
        self.stream = rank.stream()
        self.watchdog = Watchdog(rank.c, named_after)
        self.watchdog.start()
        self.comm = ctypes.c_void_p()

        @ctypes.CFUNCTYPE(ctypes.c_int)
        def create():
            return self.c.ncclCommInitRank(ctypes.byref(self.comm), 8, UniqueId(b"x"), 3)

        assert ctypes.CDLL(str(helper))._ZN4c10d16ProcessGroupNCCL12initNCCLCommEv(create) == 0
        self.new_event = rank.event
        self.buffer = rank.malloc(4096)

    def all_reduce(self):
        at = ctypes.c_void_p(self.buffer)
        assert self.c.ncclAllReduce(at, at, ctypes.c_size_t(1), 7, 0, self.comm, ctypes.c_void_p(self.stream)) == 0
        event = self.new_event(2)
        assert self.c.cudaEventRecord(ctypes.c_void_p(event), ctypes.c_void_p(self.stream)) == 0
        self.watchdog.events.append(event)
        return event


def helper_in(folder):
    source, library = folder / "group.c", folder / "group.so"
    source.write_text(PROCESS_GROUP)
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", library, source], check=True)
    return library


def answers(ended_for_ns):
    """Answers that every collective ended so long ago when the rank asks."""

    def answer(record):
        if record.kind == records.CLOCK_READ:  # how much memory is free is known at an instant
            return (0,)
        return (1, 3, 8) if record.kind == records.COMM_INIT else (int(record.since_ns <= ended_for_ns), 0)

    return answer


def test_a_launch_lets_the_watchdog_finish_with_what_ended_long_ago(running, tmp_path):
    helper = helper_in(tmp_path)

    def program(rank):
        group = ProcessGroup(rank, helper)
        first = group.all_reduce()
        time.sleep(0.2)
        assert group.watchdog.found == [], "the watchdog has looked often, but virtual time stands still"
        rank.c.phantora_advance_ns(FOUND_AFTER_NS)
        assert group.watchdog.found == [], "only a launch lets it see"
        second = group.all_reduce()
        assert group.watchdog.found == [first], "the launch waited for it"
        assert second in group.watchdog.events

    told = running(program, answer=answers(FOUND_AFTER_NS))
    assert [record.since_ns for record in told.of(records.QUERY)] == [FOUND_AFTER_NS]


def test_a_watchdog_that_gets_no_processor_for_long_is_one(running, tmp_path):
    """The library looks for it every millisecond."""
    helper = helper_in(tmp_path)

    def program(rank):
        group = ProcessGroup(rank, helper, named_after=2_000)
        first = group.all_reduce()
        rank.c.phantora_advance_ns(FOUND_AFTER_NS)
        group.all_reduce()
        assert group.watchdog.found == [first]

    assert len(running(program, answer=answers(FOUND_AFTER_NS)).of(records.QUERY)) == 1


def test_what_ended_a_short_time_ago_is_not_found(running, tmp_path):
    helper = helper_in(tmp_path)

    def program(rank):
        group = ProcessGroup(rank, helper)
        for _ in range(4):
            group.all_reduce()
            rank.c.phantora_advance_ns(FOUND_AFTER_NS)
        assert group.watchdog.found == []

    told = running(program, answer=answers(FOUND_AFTER_NS - 1))
    assert 3 <= len(told.of(records.QUERY)) <= 6, "it looks for the last one found by bisection"


def test_a_launch_does_not_ask_about_collectives_whose_end_the_program_waits_for(running, tmp_path):
    helper = helper_in(tmp_path)

    def program(rank):
        group = ProcessGroup(rank, helper)
        event = group.all_reduce()
        assert rank.c.cudaStreamWaitEvent(ctypes.c_void_p(rank.stream()), ctypes.c_void_p(event), 0) == 0
        rank.c.phantora_advance_ns(4 * FOUND_AFTER_NS)
        group.all_reduce()
        until = time.monotonic() + 60
        while event not in group.watchdog.found and time.monotonic() < until:
            time.sleep(0.001)
        assert group.watchdog.found == [event]

    assert not running(program, answer=answers(0)).of(records.QUERY)


def test_work_of_a_finalized_communicator_counts_as_done(running, tmp_path):
    helper = helper_in(tmp_path)

    def program(rank):
        group = ProcessGroup(rank, helper)
        event = group.all_reduce()
        assert rank.c.cudaEventQuery(ctypes.c_void_p(event)) == NOT_READY, "the program asks"
        assert rank.c.ncclCommFinalize(group.comm) == 0
        until = time.monotonic() + 60
        while not group.watchdog.found and time.monotonic() < until:
            time.sleep(0.001)
        assert group.watchdog.found == [event]

    running(program, answer=answers(-1))


def test_a_watchdog_sleeps_on_while_the_program_makes_calls(running, tmp_path):
    """It wakes when the program is idle, or when work has become visible. Other threads' waits are as they were."""
    helper = helper_in(tmp_path)

    def program(rank):
        group = ProcessGroup(rank, helper)
        library = ctypes.CDLL(str(helper))
        naps = []

        def nap(name):
            ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
            rank.c.cudaThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(1)))
            naps.append(library.nap())

        def napping(name):
            thread = threading.Thread(target=nap, args=(name,), daemon=True)
            thread.start()
            return thread

        def outlasts_calls(name, for_s):
            """Tells whether such a nap lasts at least so long while the program makes calls."""
            thread, until_s = napping(name), time.monotonic() + for_s
            while thread.is_alive() and time.monotonic() < until_s:
                rank.c.cudaMemGetInfo(*(ctypes.byref(ctypes.c_size_t()) for _ in range(2)))
            lasted = thread.is_alive()
            thread.join()
            return lasted

        # A nap of 100 ms that has not ended after a second was made longer, or its thread was held up: not each time.
        assert any(outlasts_calls(b"pt_nccl_watchdg", 1.0) for _ in range(20))
        assert not all(outlasts_calls(b"another", 1.0) for _ in range(20))
        napping(b"pt_nccl_watchdg").join()  # nobody makes calls: it ends
        first = group.all_reduce()
        rank.c.phantora_advance_ns(FOUND_AFTER_NS)
        group.all_reduce()
        assert group.watchdog.found == [first]
        assert set(naps) == {errno.ETIMEDOUT}

    running(program, answer=answers(FOUND_AFTER_NS))


class Rest:
    """A stand-in for the program, which waits until it has been told that all ranks sleep and nothing is left to
    simulate.
    """

    def __init__(self):
        self.asked, self.told = os.pipe(), os.pipe()

    def __call__(self):
        os.write(self.asked[1], b"x")
        os.read(self.told[0], 1)

    def watch(self, coordinator, child):
        os.read(self.asked[0], 1)
        coordinator.tell(records.AtRest.encode(0))
        coordinator.tell(records.Flush.encode(0))  # its answer comes behind
        until(lambda: coordinator.of(records.FLUSHED))
        os.write(self.told[1], b"x")


MANY_LOOKS = 1_500
"""The number of looks of a thread that sleeps for a millisecond between two."""


def test_however_long_the_program_makes_no_calls_the_watchdog_finds_nothing_until_the_run_is_at_rest(running, tmp_path):
    """It may only wait for a processor. What was given before the rest is found before the next launch ends."""
    helper = helper_in(tmp_path)
    rest = Rest()

    def program(rank):
        group = ProcessGroup(rank, helper)
        first = group.all_reduce()
        until(lambda: group.watchdog.looks >= MANY_LOOKS)
        assert group.watchdog.found == []
        group.watchdog.goes_on.clear()
        rest()
        group.watchdog.goes_on.set()
        second = group.all_reduce()
        assert group.watchdog.found == [first], "the launch waited for it"
        looks = group.watchdog.looks
        until(lambda: group.watchdog.looks >= looks + 100)
        assert second in group.watchdog.events, "it was given later"

    running(program, answer=answers(-1), watch=rest.watch)


def test_a_newer_watchdog_finds_work_only_while_the_run_is_at_rest(running):
    """The program's own threads look, too: which of them finds it first must not depend on this machine."""
    rest = Rest()

    def program(rank):
        def look(times):
            """Returns how often such a thread finds the event's work done."""

            def run():
                ctypes.CDLL(None).prctl(15, b"pt_nccl_timeout", 0, 0, 0)
                for _ in range(times):
                    found.append(rank.c.cudaEventQuery(ctypes.c_void_p(event)) == 0)
                    time.sleep(0.001)

            found = []
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            return sum(found)

        event = rank.event(2)
        assert rank.c.cudaEventRecord(ctypes.c_void_p(event), ctypes.c_void_p(rank.stream())) == 0
        rank.c.phantora_advance_ns(10 * FOUND_AFTER_NS)
        assert look(MANY_LOOKS // 5) == 0
        rest()
        assert look(5) == 5
        rank.c.cudaMemGetInfo(*(ctypes.byref(ctypes.c_size_t()) for _ in range(2)))
        assert look(5) == 0

    running(program, answer=answers(-1), watch=rest.watch)
