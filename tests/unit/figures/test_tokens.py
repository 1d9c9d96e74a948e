"""The tokens of a step: by sizes where these tell them, else as logged."""

from __future__ import annotations

from typing import Any

import pytest

from phantora_async.figures import Tokens, times_the_tokens, tokens_of_step

SIZES = "counted by the sizes of its loss and embedding"


def loss(rows: int, launches: int) -> dict[str, Any]:
    return of("aten::nll_loss_forward", f"[[{rows}, 32000], [{rows}], [], [], []]", launches)


def embedding(indices: list[int], launches: int) -> dict[str, Any]:
    return of("aten::embedding_dense_backward", f"[{[*indices, 256]}, {indices}, [], [], []]", launches)


def of(op: str, sizes: str, launches: int) -> dict[str, Any]:
    return {"signature": f"kernel;k;1,1,1;32,1,1;0;{op};{sizes}", "launches": launches}


def simulated(
    signatures: list[dict[str, Any]],
    world: int = 1,
    groups: tuple[str, ...] = (),
    module: str = "GPT",
    log: tuple[float, str] | None = None,
) -> dict[str, Any]:
    """Three steps of 100 ms that count, on each rank."""
    return {
        "world_size": world,
        "step": {"median_ns": 100_000_000, "counted": 3},
        "ranks": [{"rank": rank, "counted_steps": [4, 6]} for rank in range(world)],
        "kernels": {"window": "steps", "signatures": signatures},
        "calls": {"collectives": [{"on": group} for group in groups], "left_out": 0},
        "modules": {"parts": [{"class": "Linear", "path": [module, "head"]}]},
        "logged": [] if log is None else [{"rate": "tokens/s", "value": log[0], "text": log[1]}],
    }


def test_a_language_model_on_one_gpu() -> None:
    """Two micro batches of 8 x 1024 in each of three steps; the positions are embedded, too."""
    found = [loss(8192, 6), embedding([8, 1024], 6), embedding([8, 1024], 6), embedding([1024], 6)]
    assert tokens_of_step(simulated(found)) == Tokens(16_384, SIZES)


def test_sizes_come_before_a_rounded_log() -> None:
    found = [loss(1024, 3), embedding([16, 64], 3)]
    assert tokens_of_step(simulated(found, log=(10_400, "1.04e+04 tokens/s"))) == Tokens(1024, SIZES)


def test_the_last_token_of_a_sequence_predicts_nothing() -> None:
    assert tokens_of_step(simulated([loss(8 * 1023, 3), embedding([8, 1024], 3)])) == Tokens(8192, SIZES)


def test_embeddings_of_words_and_segments_are_of_the_same_tokens() -> None:
    assert tokens_of_step(simulated([loss(4096, 3), embedding([8, 512], 6)])) == Tokens(4096, SIZES)


@pytest.mark.parametrize(
    "found",
    [
        [loss(256, 3)],  # images
        [loss(32, 3), embedding([32, 128], 3)],  # a label for each sequence
        [loss(8 * 128, 3), embedding([8, 512], 3)],  # a fourth of the tokens is predicted
    ],
)
def test_what_is_not_known(found: list[dict[str, Any]]) -> None:
    assert tokens_of_step(simulated(found)) is None
    logged = tokens_of_step(simulated(found, log=(50_000, "50,000 tokens/s")))
    assert logged == Tokens(pytest.approx(5000), "the script's log: 50,000 tokens/s")


@pytest.mark.parametrize("module", ["DistributedDataParallel", "FullyShardedDataParallel", "FSDPLlama"])
def test_ranks_of_data_parallelism_have_tokens_of_their_own(module: str) -> None:
    """Four ranks with 1,024 tokens in each of three steps."""
    found = [loss(1024, 12), embedding([2, 512], 12)]
    assert tokens_of_step(simulated(found, 4, ("4 ranks",), module)) == Tokens(4096, f"{SIZES} on 4 GPUs")


@pytest.mark.parametrize(
    ("groups", "module"), [(("4 ranks",), "GPT"), (("4 ranks", "2 ranks"), "DistributedDataParallel")]
)
def test_other_ranks_share_tokens_as_the_log_says(groups: tuple[str, ...], module: str) -> None:
    """Two of four ranks have the same 1,024 tokens: the log is 1.3 % off, and says a rate of one GPU."""
    found = [loss(1024, 12), embedding([2, 512], 12)]
    assert tokens_of_step(simulated(found, 4, groups, module)) is None
    told = tokens_of_step(simulated(found, 4, groups, module, (5187, "tps: 5,187")))
    assert told == Tokens(
        2048, f"{SIZES} on 4 GPUs, of which 2 have the same tokens as the script's log: tps: 5,187 tells"
    )
    other = tokens_of_step(simulated(found, 4, groups, module, (30_000, "30,000 tokens/s")))
    assert other == Tokens(3000, "the script's log: 30,000 tokens/s")


def test_the_whole_run_is_no_step() -> None:
    report = simulated([loss(1024, 3), embedding([16, 64], 3)])
    report["kernels"]["window"] = "run"
    assert tokens_of_step(report) is None


def test_two_runs_compare_by_loss_or_embedding() -> None:
    """Chunks of a loss count together, and one operation suffices if both runs have it."""
    before = simulated([loss(1024, 12), embedding([8, 1024], 3)])
    after = simulated([embedding([16, 1024], 3)])
    assert times_the_tokens(before, simulated([loss(1024, 6)])) == pytest.approx(0.5)
    assert times_the_tokens(before, after) == pytest.approx(2.0)
    assert times_the_tokens(simulated([]), after) is None
