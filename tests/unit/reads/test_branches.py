"""Comparisons and what they decide: work, or only what the program says."""

from __future__ import annotations

import ast
import textwrap

import pytest

from emu.reads.branches import only_checks, only_tells, takes_as_infinite
from emu.reads.frames import Position


def parse(text: str) -> tuple[list[ast.stmt], Position]:
    """Returns a function's body, and where its first comparison is."""
    body = ast.parse(textwrap.dedent(text).strip()).body
    found = next(node for one in body for node in ast.walk(one) if isinstance(node, ast.Compare))
    return body, Position.of(found)


TELLS = (
    "if v < 3: print('low')",
    "if v < 3: print('low')\nelse: log.info('high %s', round(v, 3))",
    "if v < 1: print('a')\nelif v < best: print('b')\nelse: pass",
    "if rank == 0 and v < 3: writer.add_scalar('loss', float(v), step)",
    "print(v > 2)",
    "print('good' if v < 1 else 'bad')",
    "for i in x:\n  if v < best:\n    best = v\n    print(best)\nprint(f'{best:.3f}')",
    "with a:\n  try:\n    if v > 2: print('x')\n  finally:\n    pass",
)
DECIDES = (
    "if v < 3: step()",
    "if v < 3: print(model(x))",
    "if v < 3: print('low')\nelse: step()",
    "if v < 3: pass\nelif evaluate(): pass",
    "if v < 3 and evaluate(): pass",
    "if v < 3: break",
    "if v < 3: return",
    "if v < 3: raise ValueError",
    "if v < best:\n  best = v\nif best > 2: step()",
    "if v < best:\n  best = v\nreturn best",
    "global best\nif v < best:\n  best = v",
    "if v < best:\n  self.best = v",
    "if v < best:\n  best = v\n  wait = 0",
    "if v < best: wait += 1",
    "if v < best: best = lower",
    "x = v > 2",
    "use(v > 2)",
    "while v > 2: print(v)",
    "assert v > 2",
    "print(f(v > 2))",
)


@pytest.mark.parametrize("text", TELLS)
def test_only_tells(text: str) -> None:
    assert only_tells(*parse(text))


@pytest.mark.parametrize("text", DECIDES)
def test_decides(text: str) -> None:
    assert not only_tells(*parse(text))


def test_checks_of_arguments() -> None:
    assert only_checks(*parse("if not 0.0 <= lr:\n  raise ValueError(lr)"))
    assert not only_checks(*parse("if lr < 0:\n  raise ValueError(lr)\nelse:\n  step()"))
    assert not only_checks(*parse("if weight_decay != 0:\n  grad = grad.add(param)"))


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("perplexity = float('inf')", True),
        ("perplexity = 1e9\n  print('large')", True),
        ("pass", True),
        ("perplexity = evaluate()", False),
        ("raise", False),
        ("sys.exit(1)", False),
    ],
)
def test_what_stands_for_a_number_that_is_too_large(handler: str, expected: bool) -> None:
    (statement,) = ast.parse(f"try:\n  p = math.exp(v)\nexcept OverflowError:\n  {handler}").body
    assert isinstance(statement, ast.Try)
    assert takes_as_infinite(statement.handlers[0]) == expected
