"""`--lengths`: responses have the lengths that are stated, and the report says how long others wait for the longest."""

from __future__ import annotations

import json

import pytest

from emu.contract.policies.length_policy import parse, prompt_key

from .conftest import Run, needs

pytestmark = pytest.mark.torch
POLICY = "lognormal:8,0.7"
FIRST, SECOND = prompt_key([11, 12]), prompt_key([21, 22, 23, 24])


def test_responses_of_transformers(run: Run) -> None:
    needs("transformers")
    done = run("rollout.py", n=1, options=("--lengths", POLICY))
    assert done.exit_code == 0, done.output
    told = json.loads(next(line for line in done.log(0).splitlines() if line.startswith("{")))
    policy = parse(POLICY)
    first = [policy.length(FIRST, response, 0) for response in range(9)]
    second = [policy.length(SECOND, response, 0) for response in range(9)]
    expected = {
        "greedy": [first[0], second[0]],
        "sampled": [second[1], first[1]],
        "several": [*first[2:5], *second[2:5]],
        "ends": [first[5], second[5]],
        "cut": [-3, -3],
        "criteria": [first[7], second[7]],
    }
    assert min(first[6], second[6]) > 3
    assert max(map(max, expected.values())) < 64
    # A step for each token of the longest response of each batch.
    steps = sum(max(max(lengths), -min(lengths)) for lengths in expected.values())
    expected["small"] = [first[8], second[8]]
    assert told == expected | {"steps": [steps]}

    generation = done.simulated["generation"]
    (program,) = generation["programs"]
    lengths = [abs(length) for batch in expected.values() for length in batch]
    places = sum(len(batch) * max(map(abs, batch)) for batch in expected.values())
    assert program == {
        "program": "transformers' generate",
        "ranks": 1,
        "batches": 7,
        "responses": 18,
        "ended": 16,
        "tokens": sum(lengths),
        "longest": max(lengths),
        "places": places,
    }
    assert generation["policy"] == POLICY
    serving = generation["serving"]
    assert (serving["requests"], serving["tokens"]) == (18, sum(lengths))
    assert sorted(one["tokens"] for one in serving["listed"]) == sorted(lengths)
    assert serving["batch"]["most"] == 6
    # Responses of a batch have their first token together, and the longer ones go on.
    first_batch = serving["listed"][:2]
    assert len({(one["arrived_ns"], one["first_token_ns"]) for one in first_batch}) == 1
    assert [one["tokens"] for one in first_batch] == sorted(expected["greedy"])
    latencies = [one["latency_ns"] for one in first_batch]
    assert 0 < first_batch[0]["first_token_ns"] <= latencies[0] < latencies[1] < generation["generating_ns"]
    assert serving["tokens_per_s"] == pytest.approx(sum(lengths) / generation["generating_ns"] * 1e9, rel=1e-3)
    assert "rollouts" not in generation
    assert 0 < generation["partial_ns"] < generation["generating_ns"] < done.simulated["virtual_ns"]
    # Steps take alike times, so the share of time in which a batch waits is nearly that of steps.
    waiting = sum(max(batch) - min(batch) for batch in expected.values())
    steps += max(expected["small"])
    assert generation["partial_ns"] / generation["generating_ns"] == pytest.approx(waiting / steps, abs=0.1)
    assert f"lengths follow the policy {POLICY} (--lengths)" in done.output
    assert "the program cut 2 before the end token" in done.output
    warned = [warning["text"] for warning in done.simulated["warnings"]]
    assert any("beam search of transformers is not followed" in text for text in warned)
