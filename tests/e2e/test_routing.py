"""Mixture of experts: what nobody computed is chosen by `--moe`, alike on all ranks, and all that follows is true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Finished, Run, needs

pytestmark = pytest.mark.torch
PAIRS = 2048


def told(done: Finished, rank: int) -> dict[str, Any]:
    line = next(line for line in done.log(rank).splitlines() if line.startswith("{"))
    return json.loads(line)  # type: ignore[no-any-return]


def check(done: Finished) -> list[dict[str, Any]]:
    """Checks what holds under every policy."""
    assert done.exit_code == 0, done.output
    both = [told(done, rank) for rank in (0, 1)]
    assert both[0]["sent"] == both[1]["sent"]
    for rank, one in enumerate(both):
        assert len(one["sent"]) == 8, "two steps, two layers, each computed again for the backward pass"
        assert {sum(sent) for sent in one["sent"]} == {PAIRS}
        mine = slice(8 * rank, 8 * rank + 8)
        assert one["received"] == [sent[mine] * 2 for sent in one["sent"]]
        ((same, _),) = one["second"]
        assert same == 0, "no token has an expert twice"
        ((inside, _),) = one["groups"]
        assert inside
    script = (Path(__file__).parent / "scripts" / "experts.py").read_text().splitlines()
    for warning in done.simulated["warnings"]:  # functions that choose outside of modules, as metrics do
        line = script[int(warning["text"].split("experts.py:")[1].split()[0]) - 1]
        assert 'told["' in line, warning
    return both


def test_loads_change_from_step_to_step(run: Run) -> None:
    done = run("experts.py", n=2)
    one, _ = check(done)
    assert one["sent"][:4] == [[128] * 16] * 4, "the first step"
    first, second = one["sent"][4:6]
    assert len({*map(tuple, (first, second))}) == 2
    assert one["sent"][6:] == [second, first], "computed again, the last layer first"
    for loads in (first, second):
        assert loads[:8] == loads[8:], "both ranks have as much to do"
        assert all(76 <= load <= 180 for load in loads)
        assert len(set(loads)) > 4
    assert "policy changing (--moe)" in done.output


def test_balanced(run: Run) -> None:
    done = run("experts.py", n=2, options=("--moe", "balanced"))
    one, _ = check(done)
    assert one["sent"] == [[128] * 16] * 8
    assert one["kept"] == [[96] * 16, [12] * 16]
    assert one["second"][0][1] == pytest.approx([64] * 16, abs=4)
    assert one["groups"][0][1] == [128] * 16
    assert "policy balanced (--moe)" in done.output
    routing = done.simulated["routing"]
    (router,) = (place for place in routing["places"] if place["module"] == "Router")
    assert {place["module"] for place in routing["places"] if place["operation"] == "argmax"} == {""}
    (accuracy,) = (place for place in routing["places"] if place["operation"] == "max")
    assert (accuracy["module"], accuracy["candidates"]) == ("", 16), "classes, although a module chooses them"
    script = (Path(__file__).parent / "scripts" / "experts.py").read_text().splitlines()
    read_at = next(number for number, line in enumerate(script, 1) if 'told["accuracy"]' in line)
    assert any(f"experts.py:{read_at} reads a choice" in warning["text"] for warning in done.simulated["warnings"])
    assert "choices of the script itself" in done.output
    assert (router["operation"], router["chosen"], router["candidates"]) == ("topk", 2, 16)
    assert [layer["loads"] for layer in router["layers"]] == [[128 * 8] * 16] * 2, "four calls on each of two ranks"


def test_uneven_loads(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "loads.txt"
    trace.write_text("8 8 " + "4 " * 14 + "\n" + "1 " * 15 + "17\n")
    done = run("experts.py", n=2, options=("--moe", f"trace:{trace}"))
    one, _ = check(done)
    first, second = one["sent"][:2]
    assert first == pytest.approx([PAIRS * 8 / 72] * 2 + [PAIRS * 4 / 72] * 14, abs=1)
    assert second == pytest.approx([1024 / 15] * 15 + [1024], abs=1)
    assert one["sent"][2:4] == [second, first], "computed again, the last layer first"
    assert one["kept"][0] == [min(96, load) for load in first]
    assert one["kept"][1] == pytest.approx([min(12, load / 8) for load in first], abs=1)


def test_compiled_routers(run: Run) -> None:
    """Inductor keeps `topk` an operation; other integers of compiled kernels are computed. A choice inside a kernel of
    Triton's is made where its indices are counted.
    """
    needs("triton")
    done = run("compiled_routers.py", n=2, options=("--moe", "zipf:1.2"))
    assert done.exit_code == 0, done.output
    both = [told(done, rank) for rank in (0, 1)]
    for rank, one in enumerate(both):
        assert one["wrong"] == []
        assert sum(one["compiled"]) == 1024
        assert one["sends"] == [sum(one["compiled"][:8]), sum(one["compiled"][8:])]
        assert one["receives"] == [other["sends"][rank] for other in both]
        assert one["triton"] == one["triton, sorted"] == one["compiled"]
        assert sum(one["argmax"]) == 512
        assert max(one["argmax"]) > 3 * 512 / 16
    places = done.simulated["routing"]["places"]
    assert sorted(place["operation"] for place in places) == ["bincount", "histc", "topk"]
    assert all(place["ranks"] == 2 for place in places)
    assert "counts what a compiled kernel chose of 16" in done.output
