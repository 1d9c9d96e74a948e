"""Requests and rollouts in virtual time, from what ranks tell to the report's text."""

from __future__ import annotations

import pytest

from emu.contract.records import BATCH, KV_BLOCKS, MARKER, RESPONSE, TRAINING, ResponseEventKind
from phantora_async.report.rollouts import rollouts_document, rollouts_notes
from phantora_async.report.serving import serving_document, serving_notes
from phantora_async.virtual_time import GenerationNote

ARRIVED, FIRST, ENDED, DROPPED = ResponseEventKind
MS = 1_000_000


def note(at_ms: int, kind: int, *values: int) -> GenerationNote:
    first, second, third = (*values, 0, 0, 0)[:3]
    return GenerationNote(at_ms * MS, kind, first, second, third)


# Two requests at once; the place of the shorter one is taken by a third, and a fourth is dropped.
SERVED = (
    note(0, RESPONSE, ARRIVED, 0, 7),
    note(1, RESPONSE, ARRIVED, 1, 3),
    note(2, BATCH, 2),
    note(2, KV_BLOCKS, 2, 100),
    note(10, RESPONSE, FIRST, 0, 1),
    note(10, RESPONSE, FIRST, 1, 1),
    note(14, RESPONSE, ENDED, 1, 3),
    note(14, RESPONSE, ARRIVED, 1, 5),
    note(16, KV_BLOCKS, 6, 100),
    note(20, RESPONSE, FIRST, 1, 1),
    note(22, RESPONSE, ENDED, 0, 7),
    note(22, BATCH, 1),
    note(32, RESPONSE, ENDED, 1, 5),
    note(33, RESPONSE, ARRIVED, 0, 9),
    note(34, RESPONSE, DROPPED, 0, 0),
    note(42, BATCH, 0),
    note(42, KV_BLOCKS, 0, 100),
)


def test_times_of_requests_follow_from_their_instants() -> None:
    document = serving_document({0: SERVED}, 100 * MS)
    figures = [
        (one["prompt_tokens"], one["tokens"], one["first_token_ns"], one["per_token_ns"], one["latency_ns"])
        for one in document["listed"]
    ]
    assert figures == [
        (3, 3, 9 * MS, 2 * MS, 13 * MS),
        (7, 7, 10 * MS, 2 * MS, 22 * MS),
        (5, 5, 6 * MS, 3 * MS, 18 * MS),
    ]
    assert (document["requests"], document["prompt_tokens"], document["tokens"]) == (3, 15, 15)
    assert document["first_token_ns"] == pytest.approx(
        {"mean": 25 * MS / 3, "median": 9 * MS, "p90": 10 * MS, "p99": 10 * MS}
    )
    assert document["latency_ns"]["median"] == 18 * MS
    # It generates for 40 ms: 20 ms two at once, 20 ms one.
    assert document["requests_per_s"] == pytest.approx(3 / 0.040)
    assert document["tokens_per_s"] == pytest.approx(15 / 0.040)
    assert document["batch"] == {"mean": 1.5, "most": 2}
    assert document["kv_blocks"] == {"mean": (14 * 2 + 26 * 6) / 40, "most": 6, "blocks": 100}
    assert document["over_time"] == [
        {
            "rank": 0,
            "batch": [[2 * MS, 2], [22 * MS, 1], [42 * MS, 0]],
            "kv_blocks": [[2 * MS, 2], [16 * MS, 6], [42 * MS, 0]],
        }
    ]


def test_percentiles_are_values_that_so_many_requests_do_not_exceed() -> None:
    notes = [
        told
        for number in range(200)
        for told in (
            note(0, RESPONSE, ARRIVED, number, 1),
            note(number + 1, RESPONSE, FIRST, number, 1),
            note(number + 1, RESPONSE, ENDED, number, 1),
        )
    ]
    document = serving_document({0: notes}, 1000 * MS)
    assert document["latency_ns"] == {"mean": 100.5 * MS, "median": 100.5 * MS, "p90": 180 * MS, "p99": 198 * MS}
    assert document["per_token_ns"] is None
    assert len(document["listed"]) == 200


def test_ranks_that_share_a_timeline_serve_as_much_each() -> None:
    document = serving_document({0: SERVED}, 100 * MS, {0: (0, 1)})
    assert (document["requests"], document["tokens"]) == (6, 30)
    assert document["requests_per_s"] == pytest.approx(6 / 0.040)
    assert document["batch"] == {"mean": 1.5, "most": 2}


def test_the_text_has_throughput_and_percentiles() -> None:
    assert serving_notes(serving_document({0: SERVED}, 100 * MS)) == [
        "serving: 3 requests, 15 tokens; 75.0 requests/s and 375 tokens/s while it generates; batch of 1.5 on average, "
        "2 at most; at most 6 of 100 KV blocks in use",
        "  time to first token: median 9.00 ms, p90 10.00 ms, p99 10.00 ms",
        "  time per output token: median 2.00 ms, p90 3.00 ms, p99 3.00 ms",
        "  latency: median 18.00 ms, p90 22.00 ms, p99 22.00 ms",
    ]


def cycle(at_ms: int, longest_ms: int) -> tuple[GenerationNote, ...]:
    """Generates so long, trains from 60 ms on, and ends two steps at 70 and 80 ms."""
    return (
        note(at_ms, BATCH, 4),
        note(at_ms + longest_ms // 2, BATCH, 1),
        note(at_ms + longest_ms, BATCH, 0),
        note(at_ms + 60, TRAINING),
        note(at_ms + 70, MARKER, 1),
        note(at_ms + 72, TRAINING),
        note(at_ms + 80, MARKER, 1),
    )


def test_what_follows_a_rollout_is_scored_updated_and_the_time_until_the_next_one() -> None:
    notes = {0: (*cycle(10, 20), *cycle(100, 40)), 1: (*cycle(10, 30), *cycle(100, 10))}
    document = rollouts_document(notes, 500 * MS)
    assert document == {
        "cycles": 2,
        "generating_ns": 25 * MS,
        "scoring_ns": 35 * MS,
        "updating_ns": 20 * MS,
        "between_ns": 5 * MS,
        "ranks": [
            {
                "rank": 0,
                "cycles": 2,
                "generating_ns": 30 * MS,
                "scoring_ns": 30 * MS,
                "updating_ns": 20 * MS,
                "between_ns": 5 * MS,
                "early_ns": 5 * MS,
            },
            {
                "rank": 1,
                "cycles": 2,
                "generating_ns": 20 * MS,
                "scoring_ns": 40 * MS,
                "updating_ns": 20 * MS,
                "between_ns": 5 * MS,
                "early_ns": 15 * MS,
            },
        ],
    }
    assert rollouts_notes(document) == [
        "rollouts: 2, each with its training takes 85.00 ms on average: generating 25.00 ms (29%), until the first "
        "backward pass (rewards, reference, forward pass, waits for other ranks) 35.00 ms (41%), update 20.00 ms "
        "(24%), between the last step and the next rollout (weight transfer, data) 5.00 ms (6%)",
        "  ranks wait 10.00 ms on average, in the next collective that they share, until the rank with the longest "
        "rollout ends its own: rank 1 15.00 ms, rank 0 5.00 ms",
    ]


def test_an_engine_that_trains_nothing_has_no_rollouts() -> None:
    assert rollouts_document({0: SERVED}, 100 * MS) is None
