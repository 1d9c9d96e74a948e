"""Transformer Engine's routers: what they write follows the policy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from emu.contract.policies import routing_policy
from emu.control.routing import expert_choice
from emu.control.routing.fused_routers import FUNCTIONS, choosing

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOKENS, EXPERTS, CHOSEN = 12, 16, 2
ROUTER = "fused_topk_with_score_function_fwd"


class Routing:
    """The routing of a process, without the memory of an emulated GPU."""

    def __init__(self, text: str) -> None:
        self.policy = routing_policy.parse(text)

    def fill(
        self,
        written: Any,
        candidates: int,
        count: int,
        excluded: None,
        dim: int,
        arriving: bool,
        verb: str,
        form: Callable[[Any], Any] | None,
        groups: tuple[int, int] | None,
    ) -> None:
        assert (excluded, dim, arriving, verb) == (None, -1, False, ROUTER.removesuffix("_fwd"))
        rows = written.numel() // written.size(-1)
        outside = expert_choice.outside(self.policy, rows, candidates, *groups, 0) if groups else None
        chosen = expert_choice.choose(self.policy, rows, candidates, count, 0, None if outside is None else ~outside)
        written.copy_((form(chosen) if form else chosen).view(written.shape))


def route(text: str, *, in_bits: int = 0, numbers: Any = None, groups: int | None = None) -> Any:
    """Returns what the router writes: its map, or the experts' numbers."""
    width = -(-EXPERTS // 8) if in_bits else EXPERTS
    written = torch.zeros(TOKENS, width, dtype=torch.uint8 if in_bits else torch.bool)

    def function(*args: Any) -> tuple[Any, Any, Any]:
        assert args[1] == CHOSEN
        return None, written, None

    routing: Any = Routing(text)
    router = choosing(routing, function, ROUTER.removesuffix("_fwd"), FUNCTIONS[ROUTER])
    scores = SimpleNamespace(size=lambda _: EXPERTS)
    result = router(scores, CHOSEN, False, groups, 1 if groups else None, None, "softmax", None, in_bits, numbers)
    assert result[1] is written
    return written if numbers is None else numbers


def test_each_token_has_its_experts_in_the_map() -> None:
    found = route("balanced")
    assert found.sum(1).tolist() == [CHOSEN] * TOKENS
    assert set(found.sum(0).tolist()) <= {1, 2}  # 24 choices among 16 experts


def test_a_map_of_bits_has_the_lowest_first() -> None:
    bits = route("balanced", in_bits=1)
    experts = [
        [8 * at + bit for at, byte in enumerate(row) for bit in range(8) if byte >> bit & 1] for row in bits.tolist()
    ]
    assert experts == [row.nonzero().flatten().tolist() for row in route("balanced")]


def test_numbers_of_experts_are_those_of_the_map() -> None:
    numbers = route("zipf:1", numbers=torch.zeros(TOKENS, CHOSEN, dtype=torch.int32))
    assert [sorted(row) for row in numbers.tolist()] == [row.nonzero().flatten().tolist() for row in route("zipf:1")]


def test_experts_are_of_the_groups_that_were_chosen_first() -> None:
    """Of four groups of four experts each token chooses one, then two experts in it."""
    found = route("balanced", groups=4)
    assert found.view(TOKENS, 4, 4).any(-1).sum(1).tolist() == [1] * TOKENS
    assert found.sum(1).tolist() == [CHOSEN] * TOKENS
