"""The policy of `--data-shapes`: what it parses, and how large it says that a tensor is."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.contract.policies.shape_policy import parse

LINES = ("/lib/site-packages/torchvision/ops/boxes.py:151", "/home/me/train.py:7")


@pytest.mark.parametrize("text", ["most", "fraction:0", "fraction:0.1", "fraction:1"])
def test_a_policy_keeps_its_text(text: str) -> None:
    assert parse(text).text == text


@pytest.mark.parametrize(
    "text", ["", "least", "most:1", "fraction", "fraction:", "fraction:-1", "fraction:1.1", "fraction:nan", "trace:"]
)
def test_a_wrong_policy_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|number"):
        parse(text)


def test_most_is_all_but_half_of_a_comparison_of_integers() -> None:
    policy = parse("most")
    assert policy.size(LINES, "nonzero", 0, 101) == 101
    assert policy.size(LINES, "nonzero", 0, 101, of_classes=True) == 51
    assert parse("fraction:1").size(LINES, "nonzero", 0, 101, of_classes=True) == 101
    assert parse("fraction:0.25").size(LINES, "nonzero", 0, 100, of_classes=True) == 25


def test_a_trace_states_sizes_by_line_then_by_operation_then_for_all(tmp_path: Path) -> None:
    trace = tmp_path / "sizes.txt"
    trace.write_text("# sizes\nops/boxes.py:151 10, 50% 400\ntrain.py:7 1\nunique 3\n* 7\n")
    policy = parse(f"trace:{trace}")
    assert [policy.size(LINES, "nonzero", call, 300) for call in range(4)] == [10, 150, 300, 10]
    assert policy.size(LINES[1:], "unique", 0, 300) == 1
    assert policy.size(("/other/mytrain.py:7",), "unique", 0, 300) == 3
    assert policy.size((), "nonzero", 0, 300) == 7


def test_what_a_trace_leaves_out_is_as_most(tmp_path: Path) -> None:
    trace = tmp_path / "sizes.txt"
    trace.write_text("unique 3\n")
    policy = parse(f"trace:{trace}")
    assert policy.size(LINES, "nonzero", 0, 300) == 300
    assert policy.size(LINES, "nonzero", 0, 300, of_classes=True) == 150


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# nothing\n",
        "nonzero\n",
        "a.py:1 x\n",
        "a.py:1 -1\n",
        "a.py:1 101%\n",
        "a.py:1 1.5\n",
        "a.py:1 2\na.py:1 3\n",
        "a.py:1 %\n",
    ],
)
def test_a_wrong_trace_is_rejected(tmp_path: Path, content: str) -> None:
    trace = tmp_path / "sizes.txt"
    trace.write_text(content)
    with pytest.raises(ValueError, match=r"size"):
        parse(f"trace:{trace}")
