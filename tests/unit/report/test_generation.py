"""Responses with stated lengths, from GENERATION records and snapshots to the report's text."""

from __future__ import annotations

from typing import NamedTuple, cast

from emu.contract import records
from phantora_async.ingest.generated_responses import GeneratedResponses
from phantora_async.report.generation import generation_document, generation_notes
from phantora_async.virtual_time import RankSnapshot


class Times(NamedTuple):
    """The part of a rank's snapshot that is read."""

    generating_ns: int
    partial_ns: int


def record(*values: int, program: bytes = b"vLLM") -> records.Generation:
    (decoded,), _ = records.decode_up(records.Generation.encode(0, *values, payload=program))
    assert isinstance(decoded, records.Generation)
    return decoded


def snapshots(*times: tuple[int, int]) -> list[RankSnapshot]:
    return [cast(RankSnapshot, Times(*one)) for one in times]


def test_totals_replace_those_before_and_ranks_add_up() -> None:
    generated = GeneratedResponses()
    generated.take(0, record(1, 4, 4, 100, 40, 160))
    generated.take(0, record(2, 8, 7, 200, 60, 400))
    generated.take(1, record(2, 8, 8, 300, 50, 400))
    document = generation_document("fixed:9", generated, snapshots((5000, 1000), (7000, 3000), (0, 0)), {}, 9000)
    assert document == {
        "policy": "fixed:9",
        "programs": [
            {
                "program": "vLLM",
                "ranks": 2,
                "batches": 4,
                "responses": 16,
                "ended": 15,
                "tokens": 500,
                "longest": 60,
                "places": 800,
            }
        ],
        "ranks": 2,
        "generating_ns": 6000,
        "partial_ns": 2000,
    }


def test_ranks_that_share_a_timeline_count_each() -> None:
    generated = GeneratedResponses()
    generated.take(0, record(1, 4, 4, 40, 10, 40))
    (program,) = generation_document("fixed:10", generated, snapshots((1, 0)), {}, 9000, {0: (0, 1, 2)})["programs"]
    assert (program["ranks"], program["responses"], program["tokens"], program["longest"]) == (3, 12, 120, 10)


def test_the_text_names_lengths_the_wait_and_another_policy() -> None:
    generated = GeneratedResponses()
    generated.take(0, record(1, 8, 7, 200, 60, 480))
    document = generation_document("lognormal:25,1", generated, snapshots((6_000_000, 1_500_000)), {}, 10_000_000)
    assert generation_notes(document, 10_000_000) == [
        "responses: sampled tokens are not computed; lengths follow the policy lognormal:25,1 (--lengths)",
        "  vLLM: 8 responses of 25.0 tokens on average, the longest has 60; the program cut 1 before the end token; "
        "58.3% of the places in their batches stay empty behind shorter ones",
        "  generating takes 6.00 ms, 60.0% of the run; in 1.50 ms of that, 15.0% of the run, the batch is no longer "
        "full and waits for the longest",
        "  run with --lengths fixed:25, too, and `compare` says what the run would take if all were as long",
    ]


def test_lengths_that_nothing_has_used_are_a_warning() -> None:
    (note,) = generation_notes(generation_document("fixed:9", GeneratedResponses(), [], {}, 1000), 1000)
    assert note.startswith("warning: --lengths fixed:9: no rank has told of a response with a stated length.")
