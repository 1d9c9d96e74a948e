"""The policy of `--moe`: what it parses, and which experts it chooses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emu.contract.policies.routing_policy import parse

if TYPE_CHECKING:
    from torch import Tensor

POLICIES = ("changing", "balanced", "zipf:1.2", "random:7")


@pytest.mark.parametrize("text", ["changing", "changing:0.5", "balanced", "zipf:0", "zipf:1.2", "random:4294967295"])
def test_a_policy_keeps_its_text(text: str) -> None:
    assert parse(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "even",
        "changing:",
        "changing:1",
        "changing:some",
        "balanced:1",
        "zipf",
        "zipf:",
        "zipf:-1",
        "zipf:nan",
        "zipf:11",
        "random:",
        "random:-1",
        "random:1.5",
        "random:4294967296",
        "trace:",
    ],
)
def test_a_wrong_policy_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|number"):
        parse(text)


def test_zipf_gives_the_nth_expert_its_share_in_every_layer() -> None:
    policy = parse("zipf:1")
    first, second = policy.weights(4, 0), policy.weights(4, 1)
    assert first is not None
    assert second is not None
    assert sorted(first, reverse=True) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert sorted(second) == sorted(first)
    assert policy.weights(4, 0) == first


def test_a_trace_has_a_line_for_each_layer(tmp_path: Path) -> None:
    trace = tmp_path / "loads.txt"
    trace.write_text("# two layers\n3, 1, 0, 0\n\n1 1 1 1  # even\n1 2\n")
    policy = parse(f"trace:{trace}")
    assert policy.weights(4, 0) == (3, 1, 0, 0)
    assert policy.weights(4, 1) == (1, 1, 1, 1)
    assert policy.weights(4, 2) == (3, 1, 0, 0)
    assert policy.weights(2, 5) == (1, 2)
    assert policy.weights(8, 0) is None


@pytest.mark.parametrize("content", ["", "# nothing\n", "1 x\n", "1 -1\n", "0 0\n", "1 inf\n", "1 nan\n"])
def test_a_wrong_trace_is_rejected(tmp_path: Path, content: str) -> None:
    trace = tmp_path / "loads.txt"
    trace.write_text(content)
    with pytest.raises(ValueError, match="loads"):
        parse(f"trace:{trace}")


def test_changed_shares_are_other_ones_in_each_layer_and_step_and_the_same_on_each_rank() -> None:
    policy = parse("changing:0.5", ranks=2)
    first = policy.changed(8, 2, 0, 1)
    assert first is not None
    assert first == policy.changed(8, 2, 0, 1)
    assert first[:4] == first[4:]
    assert [one + other for one, other in zip(first[::2], first[1::2], strict=True)] == pytest.approx([2] * 4)
    assert all(0.5 <= share <= 1.5 for share in first)
    assert len(set(first)) == 4
    assert first != policy.changed(8, 2, 1, 1)
    assert first != policy.changed(8, 2, 0, 2)


def test_shares_do_not_change_where_ranks_could_have_an_odd_number_of_experts() -> None:
    policy = parse("changing", ranks=4)
    assert policy.changed(8, 2, 0, 1) is not None
    assert policy.changed(4, 2, 0, 1) is None
    assert policy.changed(12, 2, 0, 1) is None
    assert policy.changed(6, 2, 0, 1) is None


def test_shares_do_not_change_in_the_first_step_and_where_a_token_has_all_experts() -> None:
    policy = parse("changing")
    assert policy.changed(8, 2, 0, 0) is None
    assert policy.changed(8, 8, 0, 1) is None
    assert parse("changing:0").changed(8, 2, 0, 1) is None
    nearly_all = policy.changed(8, 7, 0, 1)
    assert nearly_all is not None
    assert max(nearly_all) <= 8 / 7


def _choose(
    text: str, rows: int, candidates: int, k: int, layer: int = 0, allowed: Tensor | None = None, step: int = 0
) -> Tensor:
    from emu.control.routing.expert_choice import choose

    return choose(parse(text), rows, candidates, k, layer, allowed, step)


def _loads(chosen: Tensor, candidates: int) -> list[int]:
    import torch

    return torch.bincount(chosen.flatten(), minlength=candidates).tolist()  # type: ignore[no-any-return]


@pytest.mark.torch
@pytest.mark.parametrize("text", POLICIES)
@pytest.mark.parametrize(("rows", "candidates", "k"), [(0, 8, 2), (1, 2, 1), (100, 8, 2), (33, 60, 4), (16, 4, 4)])
def test_a_row_chooses_distinct_candidates(text: str, rows: int, candidates: int, k: int) -> None:
    chosen = _choose(text, rows, candidates, k)
    assert chosen.shape == (rows, k)
    assert all(len(set(row)) == k and 0 <= min(row) <= max(row) < candidates for row in chosen.tolist())


@pytest.mark.torch
def test_balanced_loads_differ_by_one_at_most() -> None:
    assert _loads(_choose("balanced", 4096, 8, 2), 8) == [1024] * 8
    assert sorted(_loads(_choose("balanced", 5, 4, 2), 4)) == [2, 2, 3, 3]


@pytest.mark.torch
def test_zipf_loads_follow_the_shares() -> None:
    """Four experts have shares 1, 1/2, 1/3 and 1/4, and are chosen one at a time and two at a time."""
    one = sorted(_loads(_choose("zipf:1", 2500, 4, 1), 4), reverse=True)
    assert one == [1200, 600, 400, 300]
    two = sorted(_loads(_choose("zipf:1", 2500, 4, 2), 4), reverse=True)
    assert two == [2400, 1200, 800, 600]


@pytest.mark.torch
def test_changed_loads_follow_the_shares() -> None:
    shares = parse("changing").changed(8, 2, 3, 5)
    assert shares is not None
    chosen = _choose("changing", 4096, 8, 2, layer=3, step=5)
    assert all(one != other for one, other in chosen.tolist())
    loads = _loads(chosen, 8)
    assert loads == pytest.approx([1024 * share for share in shares], abs=1)
    assert [one + other for one, other in zip(loads[::2], loads[1::2], strict=True)] == [2048] * 4
    assert loads != _loads(_choose("changing", 4096, 8, 2, layer=3, step=6), 8)


@pytest.mark.torch
def test_no_expert_gets_a_token_twice_however_popular_it_is() -> None:
    assert max(_loads(_choose("zipf:5", 1000, 8, 2), 8)) == 1000


@pytest.mark.torch
def test_the_trace_s_loads_are_met(tmp_path: Path) -> None:
    trace = tmp_path / "loads.txt"
    trace.write_text("4 3 2 1\n")
    assert _loads(_choose(f"trace:{trace}", 1000, 4, 1), 4) == [400, 300, 200, 100]


@pytest.mark.torch
@pytest.mark.parametrize("text", POLICIES)
def test_the_choice_is_the_same_each_time_and_another_in_another_layer(text: str) -> None:
    first = _choose(text, 64, 16, 2, layer=3)
    assert first.equal(_choose(text, 64, 16, 2, layer=3))
    assert text in ("changing", "balanced") or not first.equal(_choose(text, 64, 16, 2, layer=4))


@pytest.mark.torch
@pytest.mark.parametrize("text", POLICIES)
def test_what_is_not_allowed_is_not_chosen(text: str) -> None:
    """Each row may go to two of four groups of four experts."""
    groups = _choose(text, 64, 4, 2)
    import torch

    allowed = torch.zeros(64, 4, dtype=torch.bool).scatter_(1, groups, True).repeat_interleave(4, 1)
    chosen = _choose(text, 64, 16, 3, allowed=allowed)
    assert allowed.gather(1, chosen).all()
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    if text in ("changing", "balanced"):
        assert max(_loads(chosen, 16)) - min(_loads(chosen, 16)) <= 2


@pytest.mark.torch
def test_a_row_with_too_few_allowed_candidates_chooses_them_first() -> None:
    import torch

    allowed = torch.tensor([[False, True, False, False], [False, False, False, False]])
    chosen = _choose("balanced", 2, 4, 2, allowed=allowed).tolist()
    assert chosen[0][0] == 1
    assert all(len(set(row)) == 2 for row in chosen)


@pytest.mark.torch
@pytest.mark.parametrize("text", POLICIES)
def test_an_order_has_all_candidates(text: str) -> None:
    from emu.control.routing.expert_choice import order

    ordered = order(parse(text), 96, 8, 0)
    assert all(sorted(row) == list(range(8)) for row in ordered.tolist())
    if text == "balanced":
        assert _loads(ordered[:, :2], 8) == [24] * 8
