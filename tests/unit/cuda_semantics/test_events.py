"""Events: recording, recording again, waits, queries, elapsed times, destruction, devices."""

from __future__ import annotations

from .harness import (
    DISABLE_TIMING,
    EXTERNAL,
    ILLEGAL_STATE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    OK,
)


def test_a_wait_orders_what_follows_behind_the_event(simulate):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        gpu.run(1000, a)
        event = gpu.record(a)
        gpu.run(9000, a)
        gpu.run(300, b)
        before = gpu.record(b)
        gpu.cudaStreamWaitEvent(b, event, 0)
        gpu.run(20, b)
        return gpu.at(before), gpu.at(gpu.record(b))

    assert simulate(program) == (300, 1020)


def test_a_wait_is_for_the_latest_record_before_it(simulate):
    def program(gpu):
        a, early, late = gpu.stream(), gpu.stream(), gpu.stream()
        gpu.run(1000, a)
        event = gpu.record(a)
        gpu.cudaStreamWaitEvent(early, event, 0)
        gpu.run(20, early)
        gpu.run(500, a)
        gpu.cudaEventRecord(event, a)
        gpu.cudaStreamWaitEvent(late, event, 0)
        gpu.run(20, late)
        return gpu.at(gpu.record(early)), gpu.at(gpu.record(late)), gpu.at(event)

    assert simulate(program) == (1020, 1520, 1500)


def test_recording_again_makes_a_complete_event_pending(simulate):
    def program(gpu):
        event = gpu.record()
        first = gpu.cudaEventQuery(event)
        gpu.run(1000)
        gpu.cudaEventRecord(event, 0)
        return first, gpu.cudaEventQuery(event), gpu.at(event)

    assert simulate(program) == (OK, NOT_READY, 1000)


def test_an_event_never_recorded_is_complete_and_holds_nobody(simulate):
    def program(gpu):
        event, stream = gpu.event(), gpu.stream()
        gpu.run(1000)
        statuses = gpu.cudaEventQuery(event), gpu.cudaEventSynchronize(event), gpu.cudaStreamWaitEvent(stream, event, 0)
        gpu.run(20, stream)
        return statuses, gpu.now(), gpu.at(gpu.record(stream))

    assert simulate(program) == ((OK, OK, OK), 0, 20)


def test_a_record_after_the_wait_does_not_hold_it(simulate):
    def program(gpu):
        event, a, b = gpu.event(), gpu.stream(), gpu.stream()
        gpu.cudaStreamWaitEvent(b, event, 0)
        gpu.run(1000, a)
        gpu.cudaEventRecord(event, a)
        gpu.run(20, b)
        return gpu.at(gpu.record(b))

    assert simulate(program) == 20


def test_a_query_says_whether_the_event_is_complete_at_that_instant(simulate):
    def program(gpu):
        gpu.run(1000)
        event, answers = gpu.record(), []
        for instant in (0, 999, 1000):
            gpu.work(instant - gpu.now())
            answers.append(gpu.cudaEventQuery(event))
        return answers

    assert simulate(program) == [NOT_READY, NOT_READY, OK]


def test_asking_until_it_is_complete_ends_when_it_is(simulate):
    def program(gpu):
        gpu.run(1_000_000)
        event, asked = gpu.record(), 0
        while gpu.cudaEventQuery(event) == NOT_READY:
            asked += 1
        return asked, gpu.now()

    # Every question takes the call's 2,500 ns: the 400th is asked, and answered, at the end.
    assert simulate(program, host_ns__query=2_500) == (399, 1_000_000)


def test_the_host_waits_for_an_event_and_not_for_what_follows_it(simulate):
    def program(gpu):
        gpu.run(1000)
        event = gpu.record()
        gpu.run(500)
        gpu.cudaEventSynchronize(event)
        return gpu.now(), gpu.cudaStreamQuery(0)

    assert simulate(program) == (1000, NOT_READY)


def test_elapsed_time_runs_between_completions_in_any_two_streams(simulate):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        gpu.run(1000, a)
        gpu.run(3500, b)
        first, last = gpu.record(a), gpu.record(b)
        gpu.cudaDeviceSynchronize()
        return gpu.elapsed(first, last), gpu.elapsed(last, first)

    assert simulate(program) == ((OK, 2500), (OK, -2500))


def test_an_event_is_complete_when_its_stream_reaches_it_and_not_when_it_was_recorded(simulate):
    def program(gpu):
        first = gpu.record()
        gpu.run(1000)
        gpu.work(200)
        behind = gpu.record()
        gpu.cudaStreamSynchronize(0)
        gpu.work(300)
        idle = gpu.record()
        return gpu.elapsed(first, behind), gpu.elapsed(first, idle)

    assert simulate(program) == ((OK, 1000), (OK, 1300))


def test_elapsed_time_of_pending_events_is_not_ready(simulate):
    def program(gpu):
        first = gpu.record()
        gpu.run(1000)
        last = gpu.record()
        before = gpu.elapsed(first, last)[0]
        gpu.cudaEventSynchronize(last)
        return before, gpu.elapsed(first, last)

    assert simulate(program) == (NOT_READY, (OK, 1000))


def test_elapsed_time_needs_two_recorded_events_with_timing_of_one_device(simulate):
    def program(gpu):
        recorded, never, untimed = gpu.record(), gpu.event(), gpu.record(0, DISABLE_TIMING)
        gpu.cudaSetDevice(1)
        elsewhere = gpu.record()
        gpu.cudaDeviceSynchronize()
        others = (never, untimed, elsewhere)
        return [gpu.elapsed(*pair)[0] for other in others for pair in ((recorded, other), (other, recorded))]

    assert simulate(program) == [INVALID_HANDLE] * 6


def test_destroying_a_pending_event_neither_waits_nor_frees_who_waits(simulate):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        gpu.run(1000, a)
        event = gpu.record(a)
        gpu.cudaStreamWaitEvent(b, event, 0)
        gpu.run(20, b)
        destroyed = gpu.takes(lambda: gpu.cudaEventDestroy(event))
        return destroyed, gpu.cudaEventQuery(event), gpu.at(gpu.record(b))

    assert simulate(program) == (0, INVALID_HANDLE, 1020)


def test_events_and_devices(simulate):
    def program(gpu):
        here, stream = gpu.event(), gpu.stream()
        gpu.run(1000, stream)
        gpu.cudaEventRecord(here, stream)
        gpu.cudaSetDevice(1)
        recorded = gpu.cudaEventRecord(here, gpu.stream())
        query, elsewhere = gpu.cudaEventQuery(here), gpu.stream()
        waited = gpu.cudaStreamWaitEvent(elsewhere, here, 0)
        gpu.run(20, elsewhere)
        gpu.cudaStreamSynchronize(elsewhere)
        return recorded, query, waited, gpu.now()

    assert simulate(program) == (INVALID_HANDLE, NOT_READY, OK, 1020)


def test_flags_are_checked(simulate):
    def program(gpu):
        event = gpu.record()
        return (
            [gpu.cudaEventRecordWithFlags(event, 0, flags) for flags in (EXTERNAL, 4)],
            [gpu.cudaStreamWaitEvent(0, event, flags) for flags in (EXTERNAL, 4)],
        )

    assert simulate(program) == ([ILLEGAL_STATE, INVALID_VALUE], [ILLEGAL_STATE, INVALID_VALUE])
