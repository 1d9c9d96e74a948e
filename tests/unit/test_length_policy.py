"""The policy of `--lengths`: what it parses, and how long it says that a response is."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from emu.contract.policies.length_policy import LengthPolicy, parse, prompt_key

PROMPTS = [prompt_key([1, number, 3]) for number in range(4000)]


def lengths(policy: LengthPolicy, response: int = 0, replica: int = 0) -> list[int]:
    return [policy.length(prompt, response, replica) for prompt in PROMPTS]


def test_fixed() -> None:
    assert set(lengths(parse("fixed:17"))) == {17}


def test_the_mean_of_lognormal_is_that_of_lengths_and_sigma_that_of_their_logarithms() -> None:
    found = lengths(parse("lognormal:1000,0.5"))
    # The standard error of the mean is 1000 * sqrt(exp(0.25) - 1) / sqrt(4000) = 8.4.
    assert fmean(found) == pytest.approx(1000, abs=26)
    assert pstdev(map(math.log, found)) == pytest.approx(0.5, abs=0.02)
    assert parse("lognormal:1000,0").length(PROMPTS[0], 0, 0) == 1000


def test_draws_are_the_same_on_every_machine() -> None:
    policy = parse("lognormal:400,1.0")
    prompt = prompt_key([128000, 9906, 1917])
    assert [policy.length(prompt, response, 0) for response in range(4)] == [186, 126, 544, 242]


def test_prompts_responses_replicas_and_seeds_have_draws_of_their_own() -> None:
    policy = parse("lognormal:1000,1.0")
    one = lengths(policy)
    assert one == lengths(policy)
    for other in (lengths(policy, response=1), lengths(policy, replica=1), lengths(parse("lognormal:1000,1.0,7"))):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 40


def test_no_response_is_empty() -> None:
    assert min(lengths(parse("lognormal:1,5"))) == 1


def test_a_prompt_has_a_line_of_the_trace_and_its_responses_lengths_of_it(tmp_path: Path) -> None:
    file = tmp_path / "lengths"
    file.write_text("# tokens\n10 11, 12\n\n200\n")
    policy = parse(f"trace:{file}")
    for prompt in PROMPTS[:50]:
        drawn = {policy.length(prompt, response, 0) for response in range(40)}
        assert drawn in ({10, 11, 12}, {200})
    assert sum(length == 200 for length in lengths(policy)) == pytest.approx(2000, abs=130)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "expected fixed:N"),
        ("fixed", "expected fixed:N"),
        ("fixed:0", "is not a whole number of tokens"),
        ("fixed:1.5", "is not a whole number of tokens"),
        ("fixed:٣", "is not a whole number of tokens"),
        ("lognormal:400", "expected lognormal:MEAN,SIGMA"),
        ("lognormal:0.5,1", "the mean '0.5'"),
        ("lognormal:nan,1", "the mean 'nan'"),
        ("lognormal:400,-1", "the logarithm's deviation"),
        ("lognormal:400,6", "the logarithm's deviation"),
        ("lognormal:400,1,x", "the seed 'x'"),
    ],
)
def test_other_texts_are_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse(text)


@pytest.mark.parametrize(
    ("content", "what"), [("# none\n", "has no lengths"), ("12\n3 x\n", "lengths:2: the length 'x'")]
)
def test_traces_without_lengths_are_refused(tmp_path: Path, content: str, what: str) -> None:
    file = tmp_path / "lengths"
    file.write_text(content)
    with pytest.raises(ValueError, match=what):
        parse(f"trace:{file}")
