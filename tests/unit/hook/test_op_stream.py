"""The op stream that a rank tells: segments, events, waits, order."""

import ctypes
import random
import subprocess
import threading
from itertools import accumulate

import pytest

from emu.contract import records

WORK = (records.SEGMENT, records.EVENT_RECORD, records.STREAM_WAIT, records.HOST_WAIT)


def instants(coordinator):
    """Returns (record, the rank's host instant of it) for every record."""
    return list(zip(coordinator.records, accumulate(record.host_ns for record in coordinator.records), strict=True))


def test_hello_and_bye_frame_what_a_rank_says(running):
    told = running(lambda rank: None).records
    hello, bye = told[0], told[-1]
    assert (hello.kind, hello.version, hello.rank, hello.world_size, hello.server, hello.local_rank) == (
        records.HELLO,
        records.VERSION,
        3,
        8,
        1,
        0,
    )
    assert (bye.kind, bye.exit_code) == (records.BYE, 0)
    assert [r.stream for r in told if r.kind == records.STREAM_CREATE] == [1, 2], "each device's default stream"


def test_launches_fold_into_segments_as_the_definition_says(running):
    """A random program of launches on three streams with host time between them, against the definition's formula."""
    costs = {"a": 5_000, "b": 70_000, "c": 300}
    script = []
    rng = random.Random(7)
    for _ in range(400):
        script.append((rng.choice("abc"), rng.randrange(3), rng.choice([0, 0, 10, 90_000])))

    def program(rank):
        kernels = {name: rank.kernel(name) for name in costs}
        streams = [0, rank.stream(), rank.stream()]
        for name, stream, pause in script:
            if pause:
                rank.c.phantora_advance_ns(pause)
            assert rank.launch(kernels[name], streams[stream]) == 0

    each = {"host_ns__launch": 3_000, "host_ns__hot_launch": 3_000}
    told = running(program, cost=lambda s: (costs[s.split(";")[1]], 2 * costs[s.split(";")[1]]), **each)
    ids = {0: 1, 1: 3, 2: 4}
    now, open_, expected = 0, {}, []

    def close():
        for stream, launches in open_.items():
            first = launches[0][0]
            ends = [at - first + sum(d for _, d in launches[i:]) for i, (at, _) in enumerate(launches)]
            tail = max(ends)
            tail_work = sum(d for _, d in launches[ends.index(tail) :])
            solo = sum(d for _, d in launches)
            expected.append((first, ids[stream], len(launches), solo, 2 * solo, tail, tail_work))
        open_.clear()

    for name, stream, pause in script:
        if pause:
            now += pause
            close()
        now += 3_000
        open_.setdefault(stream, []).append((now, costs[name]))
        if len(open_[stream]) == 256:
            close()
    close()
    segments = [
        (at, r.stream, r.launches, r.solo_ns, r.contended_ns, r.tail_ns, r.tail_work_ns)
        for r, at in instants(told)
        if r.kind == records.SEGMENT
    ]
    assert segments == expected
    assert len(told.signatures) == 3, "a signature is asked once"


def test_what_segments_consist_of_is_told_once(running):
    def program(rank):
        kernels = {name: rank.kernel(name) for name in "ab"}
        for names in ("aab", "b", "aab", "a" * 300, "b"):
            for name in names:
                rank.launch(kernels[name])
            rank.c.cudaDeviceSynchronize()

    told = running(program, segment_contents=1)
    contents, known = [], {}
    for record in told.records:
        if record.kind == records.SEGMENT_CONTENT:
            assert record.content not in known
            costs = records.SegmentCost.decode_all(record.payload, 0, record.entries)
            known[record.content] = sorted(cost.launches for cost in costs)
        elif record.kind == records.SEGMENT:
            contents.append(known[record.content])  # told before
    assert contents == [[1, 2], [1], [1, 2], [256], [44], [1]]
    assert len(known) == 4


def test_nobody_is_told_what_segments_consist_of_unless_asked(running):
    told = running(lambda rank: rank.launch(rank.kernel("k")))
    assert told.of(records.SEGMENT_CONTENT) == []
    assert [record.content for record in told.of(records.SEGMENT)] == [0]


def test_a_segment_ends_after_256_launches(running):
    def program(rank):
        kernel = rank.kernel("k")
        for _ in range(600):
            rank.launch(kernel)

    assert [r.launches for r in running(program).of(records.SEGMENT)] == [256, 256, 88]


def test_copies_that_leave_the_gpu_have_segments_of_their_own(running):
    """Kernels of another stream that are launched meanwhile end with the copies, so that instants never decrease."""

    def program(rank):
        kernel, side, device = rank.kernel("k"), rank.stream(), rank.malloc(1 << 16)
        host = rank.host(1 << 16)
        rank.launch(kernel)
        rank.launch(kernel, side)
        rank.c.cudaMemcpyAsync(device, host, 1 << 15, 1, None)
        rank.c.cudaMemcpyAsync(device, host, 1 << 15, 1, None)
        rank.c.cudaMemcpyAsync(device + (1 << 15), device, 1 << 15, 3, None)
        rank.launch(kernel)

    found = [(r.stream, r.launches, r.contended_ns > 0) for r in running(program).of(records.SEGMENT)]
    assert found == [(1, 1, True), (3, 1, True), (1, 2, False), (1, 2, True)]


def test_signatures_carry_kernel_grid_block_and_op(running):
    def program(rank):
        rank.launch(rank.kernel("_Z3addPf"), grid=(7, 2, 1))
        rank.c.cudaMemsetAsync(rank.malloc(4096), 0, 4096, None)

    assert running(program).signatures == ["kernel;_Z3addPf;7,2,1;128,1,1;0;;", "memset;4096"]


def test_each_record_of_an_event_is_a_new_recording_and_drops_the_one_before(running):
    def program(rank):
        event, side = rank.event(), rank.stream()
        rank.c.cudaStreamWaitEvent(side, event, 0)  # never recorded: no event
        rank.c.cudaEventRecord(event, None)
        rank.c.cudaEventRecord(event, None)
        rank.c.cudaStreamWaitEvent(side, event, 0)
        rank.c.cudaStreamWaitEvent(None, event, 0)  # its own stream: ordered anyway
        rank.c.cudaEventSynchronize(event)
        rank.c.cudaEventDestroy(event)

    told = running(program)
    assert [(r.stream, r.recording, r.drop) for r in told.of(records.EVENT_RECORD)] == [(1, 1, 0), (1, 2, 1)]
    assert [(r.stream, r.recording) for r in told.of(records.STREAM_WAIT)] == [(3, 2)]
    assert [(r.scope, r.recording) for r in told.of(records.HOST_WAIT)] == [(records.ScopeKind.EVENT, 2)]
    assert [r.recording for r in told.of(records.RECORDING_DROP)] == [2]


def test_synchronising_closes_segments_and_never_waits(running):
    def program(rank):
        kernel, stream = rank.kernel("k"), rank.stream()
        rank.launch(kernel, stream)
        rank.c.cudaStreamSynchronize(stream)
        rank.launch(kernel)
        rank.c.cudaDeviceSynchronize()

    told = running(program)
    kinds = [r.kind for r in told.of(*WORK)]
    assert kinds == [records.SEGMENT, records.HOST_WAIT, records.SEGMENT, records.HOST_WAIT]
    waits = told.of(records.HOST_WAIT)
    assert [(w.scope, w.stream) for w in waits] == [(records.ScopeKind.STREAM, 3), (records.ScopeKind.DEVICE, 0)]


def test_blocking_streams_are_ordered_with_the_legacy_default_stream(running):
    def program(rank):
        kernel, blocking, apart = rank.kernel("k"), rank.stream(0), rank.stream(1)
        for stream in (blocking, apart, 0, 0, blocking):
            rank.launch(kernel, stream)

    told = running(program)
    found = []
    for r in told.of(*WORK):
        names = {records.SEGMENT: "run", records.EVENT_RECORD: "record", records.STREAM_WAIT: "wait"}
        found.append((names[r.kind], r.stream))
    # the legacy stream is 1, the blocking one 3, the one apart 4: two waits, each way once, none for stream 4
    assert found == [
        ("run", 3),
        ("run", 4),
        ("record", 3),
        ("wait", 1),
        ("run", 1),
        ("record", 1),
        ("wait", 3),
        ("run", 3),
    ]


def test_nonblocking_streams_alone_need_no_order(running):
    def program(rank):
        kernel, apart = rank.kernel("k"), rank.stream(1)
        for stream in (apart, 0, apart):
            rank.launch(kernel, stream)

    assert {r.kind for r in running(program).of(*WORK)} == {records.SEGMENT}


def test_the_default_stream_of_a_thread_is_its_own(running):
    def program(rank):
        kernel = rank.kernel("k")
        rank.launch(kernel, 2)
        thread = threading.Thread(target=rank.launch, args=(kernel, 2))
        thread.start()
        thread.join()

    assert sorted({r.stream for r in running(program).of(records.SEGMENT)}) == [3, 4]


def test_queries_and_elapsed_times_are_asked(running):
    def answer(record):
        if record.kind == records.QUERY:
            return (0, 0)
        assert record.kind == records.ELAPSED
        return (2_500_000, 1, 0)

    def program(rank):
        first, last, ms = rank.event(), rank.event(), ctypes.c_float()
        assert rank.c.cudaEventQuery(first) == 0, "never recorded: done"
        rank.c.cudaEventRecord(first, None)
        rank.c.cudaEventRecord(last, None)
        assert rank.c.cudaEventQuery(last) == 600
        assert rank.c.cudaPeekAtLastError() == 600
        assert rank.c.cudaGetLastError() == 600
        assert rank.c.cudaGetLastError() == 0
        assert rank.c.cudaStreamQuery(None) == 600
        assert rank.c.cudaEventElapsedTime(ctypes.byref(ms), first, last) == 0
        assert ms.value == 2.5
        assert rank.c.cudaEventElapsedTime(ctypes.byref(ms), rank.event(), last) == 400, "never recorded"
        assert rank.c.cudaEventElapsedTime(ctypes.byref(ms), rank.event(2), last) == 400, "without timing"

    told = running(program, answer=answer)
    assert [(r.scope, r.recording) for r in told.of(records.QUERY)] == [(2, 2), (1, 0)]
    assert [(r.start_recording, r.end_recording) for r in told.of(records.ELAPSED)] == [(1, 2)]


def test_one_answer_holds_for_all_events_that_are_complete_with_it(running):
    """As PyTorch's allocator of pinned memory asks for its blocks, one after the other."""

    def program(rank):
        kernel, apart = rank.kernel("k"), rank.stream(1)

        def recorded(stream=None):
            event = rank.event()
            rank.c.cudaEventRecord(event, stream)
            return event

        before = recorded()
        rank.launch(kernel)
        first, second, aside = recorded(), recorded(), recorded(apart)
        rank.launch(kernel)
        later = recorded()
        assert [rank.c.cudaEventQuery(one) for one in (first, second, before, later)] == [0, 0, 0, 600]
        assert [rank.c.cudaEventQuery(one) for one in (first, aside, later, later)] == [0, 0, 600, 600]
        assert [rank.c.cudaEventQuery(one) for one in (later, second)] == [0, 0]
        rank.c.cudaEventRecord(second, None)
        assert rank.c.cudaEventQuery(second) == 0, "nothing was given since"
        rank.launch(kernel)
        rank.c.cudaEventRecord(second, None)
        rank.c.cudaEventQuery(second)

    def answer(record):
        assert record.kind == records.QUERY
        asked.append(record.recording)
        return (int(record.recording != 5 or asked.count(5) > 3), 0)

    asked = []
    told = running(program, answer=answer)
    assert [r.recording for r in told.of(records.QUERY)] == [2, 5, 4, 5, 5, 5, 7]


def test_watching_threads_neither_ask_nor_move_the_clock(running):
    def program(rank):
        event = rank.event()
        rank.c.cudaEventRecord(event, None)

        def watch():
            ctypes.CDLL(None).prctl(15, b"pt_nccl_watchdg", 0, 0, 0)
            before = rank.c.phantora_host_clock_ns()
            assert rank.c.cudaEventQuery(event) == 600, "the watchdog finds it at its next look, 100 ms later"
            works = threading.Thread(target=work)
            works.start()
            works.join()
            before += 100_000_000
            assert rank.c.cudaEventQuery(event) == 0
            assert rank.c.cudaEventSynchronize(event) == 0
            seen.append(rank.c.phantora_host_clock_ns() - before)

        def work():
            ctypes.CDLL(None).prctl(15, b"worker", 0, 0, 0)
            rank.c.phantora_advance_ns(100_000_000)

        seen = []
        thread = threading.Thread(target=watch)
        thread.start()
        thread.join()
        assert seen == [0]

    told = running(program, host_ns__query=1_000, host_ns__sync=1_000)
    assert not told.of(records.QUERY, records.HOST_WAIT)


NAMELESS = """
#include <pthread.h>
static void *%(entry)s(void *program) { ((void (*)(void))program)(); return 0; }
void run(void (*program)(void)) {
    pthread_t thread;
    pthread_create(&thread, 0, %(entry)s, (void *)program);
    pthread_join(thread, 0);
}
"""


@pytest.mark.parametrize(
    ("entry", "watches"),
    [("_ZN4c10d5nccl216ProcessGroupNCCL15timeoutWatchdogEv", True), ("_ZN4user6workerEv", False)],
)
def test_a_thread_without_a_name_is_known_by_what_it_runs(running, tmp_path, entry, watches):
    source, helper = tmp_path / "nameless.c", tmp_path / "nameless.so"
    source.write_text((NAMELESS % {"entry": entry}).replace("static ", ""))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-pthread", "-o", helper, source], check=True)

    def program(rank):
        event = rank.event()
        rank.c.cudaEventRecord(event, None)
        seen = []

        @ctypes.CFUNCTYPE(None)
        def query():
            seen.append(rank.c.cudaEventQuery(event))

        ctypes.CDLL(str(helper)).run(query)
        assert seen == [600 if watches else 0]

    told = running(program, answer=lambda record: (1, 0))
    assert bool(told.of(records.QUERY)) is not watches


def test_a_loop_that_only_asks_is_asked_for_in_few_questions(running):
    """The ninth question stands for eight turns, in none of which the work is complete, the next one for eight more, of
    which the fifth finds it complete: the program sees each of these turns, and they take no host time of their own.
    """

    def program(rank):
        event = rank.event()
        rank.c.cudaEventRecord(event, None)
        turns = 1
        while rank.c.cudaEventQuery(event) == 600:
            turns += 1
        assert turns == 8 + 8 + 5
        rank.c.phantora_advance_ns(7_000)

    def answer(record):
        asked.append(record.turns)
        return (1, 5) if len(asked) == 10 else (0, max(record.turns, 1))

    asked: list[int] = []
    told = running(program, answer=answer, host_ns__query=1_000)
    assert asked == [0] * 8 + [8, 8]
    ninth, last = (at for record, at in instants(told) if getattr(record, "turns", 0))
    (end,) = (at for record, at in instants(told) if record.kind == records.HOST_ADVANCE)
    assert (last - ninth, end - last) == (1_000, 7_000)


@pytest.mark.parametrize("between", ["phantora_clock_ns", "launch", "other_event"])
def test_a_loop_that_does_something_else_too_asks_each_time(running, between):
    def program(rank):
        kernel, event, other = rank.kernel("k"), rank.event(), rank.event()
        rank.c.cudaEventRecord(event, None)
        rank.c.cudaEventRecord(other, None)
        for _ in range(30):
            assert rank.c.cudaEventQuery(event) == 600
            if between == "launch":
                rank.launch(kernel)
            elif between == "other_event":
                assert rank.c.cudaEventQuery(other) == 600
            else:
                rank.c.phantora_clock_ns()

    told = running(program, answer=lambda record: (0, 1) if record.kind == records.QUERY else (5,))
    assert {record.turns for record in told.of(records.QUERY)} == {0}


def test_clock_reads_carry_the_host_clock(running):
    def program(rank):
        rank.c.phantora_advance_ns(5_000_000)
        assert rank.c.phantora_clock_ns() == 123_456

    told = running(program, answer=lambda record: (123_456,))
    at = {r.kind: at for r, at in instants(told)}
    assert at[records.HOST_ADVANCE] == at[records.CLOCK_READ] == 5_000_000


def answers_at(*instants_ns, room=1_000):
    """The answers to reads of the clock, one after the other, with so much room in the launch queue."""
    left = iter(instants_ns)
    return lambda record: (next(left), 1 + room)


def test_the_time_is_certain_while_nothing_can_have_stopped_the_host(running):
    def program(rank):
        kernel, event, read = rank.kernel("k"), rank.event(), rank.c.phantora_clock_read_ns
        rank.launch(kernel)  # its cost is asked for
        assert read() == 1_000
        rank.c.phantora_host_works_ns(300)
        assert (read(), read()) == (1_300, 1_300)
        rank.launch(kernel)
        rank.c.cudaEventRecord(event, None)
        rank.c.phantora_host_works_ns(40)
        assert read() == 1_340
        rank.c.cudaEventSynchronize(event)
        assert read() == 9_000

    told = running(program, alone=True, answer=answers_at(1_000, 9_000))
    assert len(told.of(records.CLOCK_READ)) == 2
    assert [record.launches for record in told.of(records.SEGMENT)] == [1, 1], "a read ends a segment, as ever"


def test_the_time_is_asked_for_once_launches_may_wait_for_room(running):
    def program(rank):
        kernel, read = rank.kernel("k"), rank.c.phantora_clock_read_ns
        assert read() == 1_000
        for at_ns in (1_000, 1_000, 5_000):
            rank.launch(kernel)
            assert read() == at_ns

    told = running(program, alone=True, answer=answers_at(1_000, 5_000, room=2))
    assert len(told.of(records.CLOCK_READ)) == 2


@pytest.mark.parametrize(("alone", "room"), [(True, -1), (False, 1_000)], ids=["slow host", "other ranks"])
def test_the_time_is_asked_for_where_the_host_s_clock_or_other_ranks_decide(running, alone, room):
    def program(rank):
        assert (rank.c.phantora_clock_read_ns(), rank.c.phantora_clock_read_ns()) == (1_000, 2_000)

    running(program, alone=alone, answer=answers_at(1_000, 2_000, room=room))


def test_who_reads_the_clock_over_and_over_asks_now_and_then(running):
    def program(rank):
        for _ in range(100):
            rank.c.phantora_clock_read_ns()

    told = running(program, alone=True, answer=answers_at(*range(1, 5)))
    assert len(told.of(records.CLOCK_READ)) == 4


def test_counters_tell_launches_and_of_each_signature_how_many(running):
    def program(rank):
        kernel, other = rank.kernel("k"), rank.kernel("other")
        for _ in range(4):
            rank.launch(kernel)
        rank.launch(other)

    told = running(program)
    counters = told.of(records.COUNTERS)[-1]
    assert sum(r.launches for r in told.of(records.SEGMENT)) == 5
    assert (counters.launches, counters.flops) == (5, 5.0)
    (counts,) = told.of(records.LAUNCH_COUNTS)
    launches = records.LaunchCount.decode_all(counts.payload, 0, counts.entries)
    assert sorted(one.launches for one in launches) == [1, 4]
    assert len({one.key for one in launches}) == 2


def test_what_is_not_counted_takes_no_virtual_time(running):
    """Compilers launch candidates: their cost is told, but they reach no stream and cost the host nothing."""

    def program(rank):
        kernel, other = rank.kernel("k"), rank.kernel("other")
        rank.c.phantora_uncounted.restype = ctypes.c_uint64
        assert rank.launch(kernel, 0) == 0
        before = rank.c.phantora_uncounted(1)
        assert rank.launch(other, 0) == 0
        assert rank.c.phantora_uncounted(1) == before + 700, "the two nest"
        assert rank.launch(kernel, 0) == 0
        assert rank.c.phantora_uncounted(-1) == before + 1_000
        rank.c.phantora_advance_ns(10_000)
        assert rank.c.cudaDeviceSynchronize() == 0
        assert rank.c.phantora_uncounted(-1) == before + 1_000
        assert rank.launch(kernel, 0) == 0

    cost = {"k": (300, 600), "other": (700, 1_400)}
    calls = {"host_ns__launch": 3_000, "host_ns__hot_launch": 3_000, "host_ns__sync": 5_000}
    told = running(program, cost=lambda s: cost[s.split(";")[1]], **calls)
    segments = [(at, r.launches, r.solo_ns) for r, at in instants(told) if r.kind == records.SEGMENT]
    assert segments in ([(3_000, 2, 600)], [(3_000, 1, 300), (6_000, 1, 300)])
    assert not [r for r in told.records if r.kind == records.HOST_WAIT]
