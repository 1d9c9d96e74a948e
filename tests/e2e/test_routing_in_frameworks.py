"""Mixtures of experts in real frameworks: loads follow `--moe`, and what ranks send is what others receive.

PHANTORA_EXPENSIVE=1 runs all rows of docs/routing.md; without it, one of each framework.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import pytest

from emu.contract.policies.routing_policy import parse

from .conftest import Finished, Run, needs

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]  # compiling on a busy machine
expensive = pytest.mark.skipif("PHANTORA_EXPENSIVE" not in os.environ, reason="set PHANTORA_EXPENSIVE=1")
POLICY = "zipf:1.2"
Told = dict[str, list[list[int]]]


def told_by(done: Finished, ranks: int) -> list[Told]:
    assert done.exit_code == 0, done.output
    lines = [done.log(rank).splitlines() for rank in range(ranks)]
    return [json.loads(next(line for line in of_rank if line.startswith('{"routed"'))) for of_rank in lines]


def loads_of(experts: int, layer: int, tokens: int, chosen: int) -> list[float]:
    """Returns the loads under POLICY: proportional to the weights, but no expert gets a token twice."""
    weights = parse(POLICY).weights(experts, layer)
    assert weights is not None
    loads, full = [0.0] * experts, set[int]()
    while True:
        rest = sum(weight for n, weight in enumerate(weights) if n not in full)
        for n, weight in enumerate(weights):
            loads[n] = tokens if n in full else weight / rest * tokens * (chosen - len(full))
        over = {n for n, load in enumerate(loads) if load >= tokens} - full
        if not over:
            return loads
        full |= over


def check_loads(
    done: Finished, all_told: Sequence[Told], tokens: int, chosen: int, layers: int, decides: Sequence[str] = ()
) -> None:
    """Every call of every rank routed its tokens as POLICY says, and the report says the same. `decides`: what the
    framework decides by values that nobody computed, as patterns; nothing else warns.
    """
    experts = len(all_told[0]["routed"][0])
    expected = [loads_of(experts, layer, tokens, chosen) for layer in range(layers)]
    for told in all_told:
        for loads in told["routed"]:
            assert sum(loads) == tokens * chosen
            assert any(loads == pytest.approx(of_layer, abs=max(2.5, tokens / 20)) for of_layer in expected)
    places = done.simulated["routing"]["places"]
    (place,) = (place for place in places if (place["chosen"], place["candidates"]) == (chosen, experts))
    assert place["ranks"] == len(all_told)
    assert len(place["layers"]) == layers
    for layer, of_layer in zip(place["layers"], expected, strict=True):
        calls = layer["calls"]
        routed = sum(layer["loads"])
        assert routed % (calls * chosen) == 0, "every call counts"
        assert [load / routed for load in layer["loads"]] == pytest.approx(
            [load / (tokens * chosen) for load in of_layer], abs=0.02
        )
    assert f"policy {POLICY} (--moe)" in done.output
    texts = [warning["text"] for warning in done.simulated["warnings"]]
    verbs = (" reads ", " decides by ", " makes a tensor ", " compares tensors ")
    texts = [text for text in texts if any(verb in text for verb in verbs)]
    assert len(texts) == len(decides)
    for text, pattern in zip(texts, decides, strict=True):
        assert re.search(pattern, text)


def check_exchange(all_told: Sequence[Told], groups: Sequence[Sequence[int]]) -> None:
    """Checks that each rank of a group that exchanges tokens receives what the others send to it."""
    for group in groups:
        for place, rank in enumerate(group):
            received = all_told[rank]["received"]
            assert received
            sent_to_it = [[all_told[other]["sent"][call][place] for other in group] for call in range(len(received))]
            # A call and the one that brings tokens back are told one after the other: both ways agree.
            assert received == sent_to_it


def titan(run: Run, model: str, experts: str, *flags: str) -> tuple[Finished, list[Told]]:
    needs("torchtitan")
    done = run("frameworks/torchtitan_moe.py", model, experts, *flags, n=4, options=("--moe", POLICY))
    return done, told_by(done, 4)


EP, TP, ETP = (f"--parallelism.{name}_parallel_degree" for name in ("expert", "tensor", "expert_tensor"))


@pytest.mark.parametrize(
    ("model", "experts", "flags", "chosen", "layers"),
    [
        ("qwen3", "grouped", [EP, "4"], 8, 3),
        pytest.param("qwen3", "grouped", [EP, "4", "--compile.enable"], 8, 3, marks=expensive),
        pytest.param("deepseek_v3", "loop", [EP, "4"], 3, 2, marks=expensive),
        pytest.param("deepseek_v3", "grouped", [EP, "2"], 3, 2, marks=expensive),
        pytest.param("deepseek_v3", "grouped", [EP, "4", "--compile.enable"], 3, 2, marks=expensive),
        pytest.param("gpt_oss", "grouped", [EP, "2"], 4, 3, marks=expensive),
    ],
)
def test_torchtitan_s_experts_on_several_ranks(
    run: Run, model: str, experts: str, flags: list[str], chosen: int, layers: int
) -> None:
    done, all_told = titan(run, model, experts, *flags)
    check_loads(done, all_told, 512, chosen, layers)
    spread = int(flags[1])
    check_exchange(all_told, [range(first, first + spread) for first in range(0, 4, spread)])


@expensive
@pytest.mark.parametrize(
    ("model", "experts", "flags", "chosen", "layers"),
    [
        ("deepseek_v3", "grouped", [], 3, 2),
        ("deepseek_v3", "grouped", ["--compile.enable"], 3, 2),
        ("qwen3", "loop", [], 8, 3),
        ("llama4", "loop", [], 1, 1),
        ("llama4", "grouped", [TP, "2"], 1, 1),
    ],
)
def test_torchtitan_s_experts_on_each_rank(
    run: Run, model: str, experts: str, flags: list[str], chosen: int, layers: int
) -> None:
    done, all_told = titan(run, model, experts, *flags)
    check_loads(done, all_told, 512, chosen, layers)


@expensive
def test_torchtitan_s_sequence_parallel_experts(run: Run) -> None:
    """Each of two tensor-parallel ranks dispatches half of the tokens."""
    done, all_told = titan(run, "deepseek_v3", "grouped", EP, "4", TP, "2", ETP, "1")
    assert all(sum(loads) == 256 * 3 for told in all_told for loads in told["routed"])
    check_exchange(all_told, [range(4)])
    assert done.simulated["routing"]["places"][0]["ranks"] == 4


MEGATRON_DECIDES = (
    r"clip_grads\.py:\d+ decides by a value that is not computed: clip_coeff < 1\.0\. "
    r"It is read at \S+clip_grads\.py:\d+ .* --value megatron/core/optimizer/clip_grads\.py:\d+=EXPRESSION",
)
"""Megatron-core scales the gradients, by kernels of its own, only if their norm is larger than the limit. (PyTorch's
`clip_grad_norm_` scales them by a factor of at most 1 in any case, and decides nothing.)
"""


def megatron(run: Run, *options: str, config: dict[str, Any]) -> tuple[Finished, list[Told]]:
    needs("megatron.core")
    arguments = (*options, "--config", json.dumps(config))
    done = run("frameworks/megatron_moe.py", *arguments, n=4, options=("--moe", POLICY))
    return done, told_by(done, 4)


@pytest.mark.parametrize(
    ("options", "config", "tokens", "groups"),
    [
        (["--ep", "2", "--tp", "2"], {}, 128, [(0, 2), (1, 3)]),
        pytest.param(["--ep", "4"], {}, 256, [range(4)], marks=expensive),
        pytest.param(["--ep", "2", "--pp", "2"], {}, 256, [(0, 1), (2, 3)], marks=expensive),
        pytest.param(["--ep", "4", "--tp", "2", "--etp", "1"], {}, 128, [range(4)], marks=expensive),
        pytest.param(["--ep", "4"], {"moe_token_dispatcher_type": "allgather"}, 256, [], marks=expensive),
        pytest.param(["--ep", "2", "--tp", "2"], {"moe_token_dispatcher_type": "allgather"}, 128, [], marks=expensive),
        pytest.param(
            ["--ep", "2"],
            {"moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True},
            256,
            [(0, 1), (2, 3)],
            marks=expensive,
        ),
    ],
)
def test_megatron_core(
    run: Run, options: list[str], config: dict[str, Any], tokens: int, groups: list[Sequence[int]]
) -> None:
    done, all_told = megatron(run, *options, config=config)
    check_loads(done, all_told, tokens, 2, 2, MEGATRON_DECIDES)
    check_exchange(all_told, groups)


@expensive
@pytest.mark.parametrize("pads", [False, True])
def test_megatron_core_with_a_capacity(run: Run, pads: bool) -> None:
    config = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": pads}
    _, all_told = megatron(run, "--ep", "2", "--tp", "2", config=config)
    for told in all_told:
        for loads in told["routed"]:
            assert max(loads) == 32, "128 tokens, two experts each, eight experts"
            assert (min(loads) == 32) == pads


@pytest.mark.parametrize(
    ("model", "experts", "parallel", "chosen"),
    [
        ("qwen3_moe", "grouped_mm", "fsdp2", 4),
        pytest.param("mixtral", "grouped_mm", "ddp", 2, marks=expensive),
        pytest.param("mixtral", "eager", "fsdp2", 2, marks=expensive),
        pytest.param("qwen2_moe", "eager", "fsdp2", 4, marks=expensive),
        pytest.param("olmoe", "batched_mm", "ddp", 4, marks=expensive),
        pytest.param("gpt_oss", "grouped_mm", "ddp", 2, marks=expensive),
    ],
)
def test_hugging_face(run: Run, model: str, experts: str, parallel: str, chosen: int) -> None:
    needs("transformers")
    done = run("frameworks/hf_moe.py", model, experts, parallel, n=2, options=("--moe", POLICY))
    check_loads(done, told_by(done, 2), 256, chosen, 2)


@expensive
@pytest.mark.parametrize("model", ["deepseek_v2", "deepseek_v3"])
def test_hugging_face_with_groups_of_experts(run: Run, model: str) -> None:
    """Each token goes to four experts of two of four groups: the policy chooses groups, then among their experts."""
    needs("transformers")
    done = run("frameworks/hf_moe.py", model, "grouped_mm", "ddp", n=2, options=("--moe", POLICY))
    all_told = told_by(done, 2)
    assert all_told[0] == all_told[1]
    for loads in all_told[0]["routed"]:
        assert sum(loads) == 256 * 4
        groups = [sum(loads[first : first + 4]) for first in range(0, 16, 4)]
        assert max(groups) > 2 * min(groups)
        assert max(loads) == 256


@pytest.mark.parametrize(
    ("k", "over", "spread"),
    [(2, "keep", 2), pytest.param(1, "drop", 2, marks=expensive), pytest.param(2, "drop", 1, marks=expensive)],
)
def test_deepspeed(run: Run, k: int, over: str, spread: int) -> None:
    needs("deepspeed")
    done = run("frameworks/deepspeed_moe.py", str(k), over, str(spread), n=2, options=("--moe", POLICY))
    all_told = told_by(done, 2)
    assert all_told[0] == all_told[1]
    (first, second) = all_told[0]["routed"][:2]
    assert sum(first) == 512 * k
    expected = [loads_of(8, layer, 512, 1) for layer in (0, 1)]
    if k == 1:
        assert [first, second] == [pytest.approx(loads, abs=2) for loads in expected]
    for loads, (ranks, _, capacity) in zip(all_told[0]["routed"], all_told[0]["processed"], strict=True):
        assert ranks == spread
        assert capacity == (max(loads) if over == "keep" else 512 * k // 8)
