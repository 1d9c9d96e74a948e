"""The values that `--value` accepts, and what an expression yields."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from emu.contract.stated_values import StatedValue, ValueProblem, fits, parse
from phantora_async.config.values import stated_value_of
from phantora_async.errors import UsageError


@pytest.mark.parametrize(
    ("text", "file", "line", "value"),
    [
        ("train.py:42=0.9**step", "train.py", 42, 0.9**2),
        ("42=2.5*exp(-step/100)", "", 42, 2.5 * math.exp(-0.02)),
        ("a b/c:1.py:7 = n < 5", "a b/c:1.py", 7, True),
        ("1=n if n else 3", "", 1, 3.0),
        ("1=1 == 1 and n >= 0 or 2", "", 1, True),
        ("1=0 or rank", "", 1, 1),
        ("1=1 < n < 4", "", 1, True),
        ("1=max(n, 7) // 2 % 2 - -1", "", 1, 2),
        ("1=not rank", "", 1, False),
        ("1=2**5000/2**4999", "", 1, None),
    ],
)
def test_expressions(text: str, file: str, line: int, value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueProblem, match=r"out of range|too large"):
            parse(text)
        return
    found = parse(text)
    assert (found.file, found.line) == (file, line)
    assert found.evaluate(n=3, step=2, rank=1) == value
    assert parse(found.for_script("/s.py").resolved).evaluate(n=3, step=2, rank=1) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1=",
        "=3",
        "x.py=3",
        "0=3",
        "x.py:-1=3",
        "1=(n",
        "1='a'",
        "1=[1][0]",
        "1=1j",
        "1=n.real",
        "1=f'{n}'",
        "1=__import__('os')",
        "1=(lambda: 1)()",
        "1=x",
        "1=exp",
        "1=exp(x=1)",
        "1=random(1)",
        "1=1/n",
        "1=log(n)",
        "1=9**9**9",
        "1=(0-8)**0.5",
        "1=abs()",
        "1=int(nan)",
        "1=" + "(" * 300 + "1" + ")" * 300,
        "1=" + "1+" * 600 + "1",
        "1=n := 3",
        "1=a:b:c",
        "1=print(n)",
        "1=[n for n in (1,)]",
        "1=n if n",
    ],
)
def test_wrong_ones_are_rejected(text: str) -> None:
    with pytest.raises(ValueProblem):
        parse(text)


def test_random_numbers_are_the_same_on_all_ranks() -> None:
    value = parse("train.py:42=random()")
    drawn = [value.evaluate(n, step=0, rank=0) for n in range(100)]
    assert drawn == [value.evaluate(n, step=n, rank=7) for n in range(100)]
    assert len(set(drawn)) == 100
    assert all(0 <= number < 1 for number in drawn)


def test_an_expression_may_fail_later() -> None:
    value = parse("1=1/(5-n)")
    with pytest.raises(ValueProblem, match="division by zero at n=5, step=1, rank=0"):
        value.evaluate(n=5, step=1, rank=0)


@pytest.mark.parametrize("text", ["3=curves:loss", "3=my.curves:loss"])
def test_functions(text: str) -> None:
    assert parse(text).is_function


@pytest.mark.parametrize(
    ("stated", "path", "same"),
    [
        ("train.py", "/home/u/train.py", True),
        ("./train.py", "/home/u/train.py", True),
        ("u/train.py", "/home/u/train.py", True),
        ("/home/u/train.py", "/home/u/train.py", True),
        ("train.py", "/home/u/pretrain.py", False),
        ("/train.py", "/home/u/train.py", False),
    ],
)
def test_files(stated: str, path: str, same: bool) -> None:
    assert fits(stated, path) is same


def test_a_line_without_a_file_is_the_script_s(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n" * 9)
    assert stated_value_of("7=n", str(script)) == StatedValue("7=n", str(script), 7, "n")
    with pytest.raises(UsageError, match=r"train\.py has 10 lines"):
        stated_value_of("11=n", str(script))
    with pytest.raises(UsageError, match="which file"):
        stated_value_of("7=n", "")
    with pytest.raises(UsageError, match="unknown name 'x'"):
        stated_value_of("7=x", str(script))
