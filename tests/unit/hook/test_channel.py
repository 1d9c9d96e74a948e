"""The channel: batches, back-pressure, sleeping ranks, forks, ends."""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import termios
import threading
import time

import pytest

from emu.contract import records

from .coordinator import VanishError

MARKERS = 2


def until(condition):
    while not condition():
        time.sleep(0.002)


def is_connection(fd):
    """Tells whether the descriptor is the rank's socket to the coordinator."""
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            return str(found.getpeername()).endswith("/socket")
    except OSError:
        return False


def state_of(pid):
    """Returns the state of the process's first thread: R, S and so on; Z also if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def unread_nbytes(connection):
    return struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))[0]


def test_a_rank_that_sleeps_tells_its_open_segments_when_it_is_asked(running):
    """It does not tell them before: where segments end must not depend on how long it sleeps, or on how busy the
    machine is.
    """
    (launched, launches), (read, write) = os.pipe(), os.pipe()

    def program(rank):
        kernel = rank.kernel("k")
        rank.launch(kernel)
        time.sleep(0.5)
        rank.launch(kernel)
        rank.c.phantora_marker(MARKERS, b"launched")
        rank.launch(kernel)
        os.write(launches, b"x")
        os.read(read, 1)
        rank.launch(kernel)

    def watch(coordinator, child):
        os.read(launched, 1)
        coordinator.tell(records.Flush.encode(0))
        until(lambda: coordinator.of(records.FLUSHED))
        coordinator.tell(records.Flush.encode(0))  # nothing is open
        until(lambda: len(coordinator.of(records.FLUSHED)) == 2)
        os.write(write, b"x")

    told = running(program, watch=watch).of(records.SEGMENT, records.FLUSHED)
    assert [r.launches if r.kind == records.SEGMENT else r.host_ns for r in told] == [2, 1, 0, 0, 1]


def test_a_rank_that_may_have_been_passed_over_asks_for_the_time(running):
    (asleep, sleeps), (wake, wakes) = os.pipe(), os.pipe()

    def program(rank):
        assert rank.c.phantora_clock_read_ns() == 1_000
        os.write(sleeps, b"x")
        os.read(wake, 1)
        assert rank.c.phantora_clock_read_ns() == 7_000

    def watch(coordinator, child):
        os.read(asleep, 1)
        coordinator.tell(records.Flush.encode(0))
        until(lambda: coordinator.of(records.FLUSHED))
        os.write(wakes, b"x")

    answers = iter((1_000, 7_000))
    running(program, watch=watch, alone=True, answer=lambda record: (next(answers), 1))


def test_what_the_socket_does_not_take_at_once_leaves_later(running):
    """Less than a batch leaves on the reader, which must come again: the rank's other threads sleep."""
    (begin, begins), (end, ends) = os.pipe(), os.pipe()

    def program(rank):
        own = next(fd for fd in map(int, os.listdir("/proc/self/fd")) if is_connection(fd))
        with socket.socket(fileno=os.dup(own)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        os.read(begin, 1)
        rank.c.phantora_unused_gpu(b"x" * 30_000)
        os.read(end, 1)

    def watch(coordinator, child):
        until(lambda: coordinator.connection)
        coordinator.paused.clear()
        os.write(begins, b"x")
        time.sleep(0.2)
        coordinator.paused.set()
        until(lambda: coordinator.of(records.UNUSED_GPU))
        os.write(ends, b"x")

    assert len(running(program, watch=watch).of(records.UNUSED_GPU)) == 1


def test_records_of_many_threads_arrive_whole(running):
    def program(rank):
        def emit(number):
            for i in range(2_000):
                rank.c.phantora_marker(MARKERS, f"{number}:{i}:{'x' * (i % 50)}".encode())

        threads = [threading.Thread(target=emit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    told = running(program).of(records.MARKER)
    for number in range(4):
        own = [r.payload for r in told if r.payload.startswith(b"%d:" % number)]
        assert [int(p.split(b":")[1]) for p in own] == list(range(2_000))


def test_a_slow_coordinator_holds_the_rank_back_and_loses_nothing(running):
    (begin, begins), states = os.pipe(), []

    def program(rank):
        os.read(begin, 1)
        for _ in range(60_000):
            rank.c.phantora_marker(MARKERS, b"x" * 64)

    def watch(coordinator, child):
        until(lambda: coordinator.connection)
        coordinator.paused.clear()
        os.write(begins, b"x")
        until(lambda: unread_nbytes(coordinator.connection))  # it is under way
        until(lambda: state_of(child) in ("S", "Z"))
        states.append(state_of(child))
        coordinator.paused.set()

    told = running(program, watch=watch)
    assert states == ["S"], "it cannot have finished: the socket and the batch are bounded"
    assert len(told.of(records.MARKER)) == 60_000


def test_a_vanished_coordinator_ends_the_rank(running):
    def program(rank):
        time.sleep(60)

    def watch(coordinator, child):
        until(lambda: coordinator.records)
        coordinator.connection.shutdown(2)

    running(program, watch=watch, status=records.ExitKind.DISCONNECTED)


def test_a_vanished_coordinator_ends_a_rank_that_asks(running):
    def answer(record):
        raise VanishError

    running(lambda rank: rank.c.phantora_clock_ns(), status=records.ExitKind.DISCONNECTED, answer=answer)


def test_a_child_of_a_rank_cannot_use_the_device_nor_the_channel(running):
    def program(rank):
        kernel = rank.kernel("k")
        rank.launch(kernel)
        child = os.fork()
        if child == 0:
            out, code = ctypes.c_void_p(), 0
            code |= rank.c.cudaMalloc(ctypes.byref(out), 1024) != 3
            code |= rank.launch(kernel) != 3
            code |= rank.c.cudaStreamSynchronize(None) != 3
            rank.c.phantora_marker(MARKERS, b"never")
            rank.c.phantora_finish(5, b"never")
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert rank.launch(kernel) == 0

    told = running(program)
    assert not told.of(records.MARKER)
    assert sum(r.launches for r in told.of(records.SEGMENT)) == 2  # in one segment or, on a busy machine, in two


def test_children_die_with_their_rank(running):
    read, write = os.pipe()

    def program(rank):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        os.write(write, str(child).encode())
        time.sleep(60)

    orphans = []

    def watch(coordinator, child):
        orphans.append(int(os.read(read, 20)))
        os.kill(child, signal.SIGKILL)

    running(program, watch=watch, status=-signal.SIGKILL)

    until(lambda: state_of(orphans[0]) == "Z")


def test_the_coordinator_sees_a_killed_rank_although_its_children_live(running):
    read, write = os.pipe()

    def program(rank):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # a child that refuses to die with its parent
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    running(program, status=-signal.SIGKILL)  # returns when the coordinator has seen the end of the rank
    os.write(write, b"x")


@pytest.mark.parametrize("on_first_thread", [True, False])
def test_c_s_exit_ends_a_rank_before_anything_that_is_registered_for_it(on_first_thread, running, tmp_path):
    """Destructors of libraries' objects are registered when the objects are made: at any time before."""
    log = tmp_path / "log"
    libc = ctypes.CDLL(None)

    def says(text, *, kind):
        return kind(lambda _: log.write_text(log.read_text() + text))

    def program(rank):
        log.write_text("")
        handlers = [says(text, kind=ctypes.CFUNCTYPE(None, ctypes.c_int)) for text in ("end of the rank", ", object")]
        waiting = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: threading.Event().wait())
        rank.c.phantora_at_exit(handlers[0])
        libc.on_exit(handlers[1], None)

        def leave():
            rank.c.cudaLaunchHostFunc(None, ctypes.cast(waiting, ctypes.c_void_p), None)  # is pending for good
            libc.exit(3)

        if on_first_thread:
            leave()
        else:
            threading.Thread(target=leave).start()
            threading.Event().wait()

    told = running(program, status=3)
    assert log.read_text() == "end of the rank, object"
    assert [bye.exit_code for bye in told.of(records.BYE)] == [3]


def test_work_of_before_the_start_is_not_told(library, tmp_path, running):
    def program(rank):
        assert rank.event() != 0

    told = running(program)
    assert not told.of(records.SEGMENT, records.EVENT_RECORD)


def test_host_functions_run_in_order_and_synchronising_waits_for_them(running):
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def program(rank):
        seen = []

        @called
        def slow(number):
            time.sleep(0.02)
            seen.append((number, threading.get_native_id() != os.getpid()))

        for number in range(1, 4):
            assert rank.c.cudaLaunchHostFunc(None, ctypes.cast(slow, ctypes.c_void_p), number) == 0
        rank.c.cudaStreamSynchronize(None)
        assert seen == [(1, True), (2, True), (3, True)]

    running(program)


def test_warnings_come_once_and_close_no_segment(running):
    def program(rank):
        kernel = rank.kernel("k")
        rank.launch(kernel)
        for _ in range(3):
            assert rank.c.cudaGraphDebugDotPrint(None, None, 0) == 801
        rank.launch(kernel)

    told = running(program)
    assert [r.launches for r in told.of(records.SEGMENT)] == [2]
    assert len(told.of(records.WARNING)) == 1
    assert b"cudaGraphDebugDotPrint" in told.of(records.WARNING)[0].payload
    assert told.of(records.COUNTERS)[-1].refused_calls == 3
