"""Comparisons and what they decide: work, or only what the program says."""

from __future__ import annotations

import ast
import textwrap

import pytest

from emu.reads.branches import only_tells, reads_rates, takes_as_infinite
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
    "if v < best:\n  best = v\n  best_epoch = epoch\nelse:\n  bad += 1\nprint(best_epoch, bad)",
    "if v < best: best = lower",
    "if v < best: best, best_epoch = v, 3\nprint(best_epoch)",
    "if v > best:\n  for group in optimizer.param_groups:\n    group['lr'] *= 0.5",
    "if v > best: optimizer.param_groups[0]['lr'] = max(rate * 0.1, 1e-6)",
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
    "if v < best:\n  best = v\n  wait = 0\nelse:\n  wait += 1\nif wait > 3: stop()",
    "if v < best: wait += 1\nreturn wait",
    "if v < best: total = total + scaled",
    "if v < best: best, total = v, total + scaled",
    "if v < best:\n  state['best'] = v",
    "for epoch in epochs:\n  if v < best:\n    best = v\n  else:\n    bad += 1\n    if bad > 3: break",
    "x = v > 2",
    "use(v > 2)",
    "while v > 2: print(v)",
    "assert v > 2",
    "print(f(v > 2))",
)


@pytest.mark.parametrize("text", TELLS)
def test_only_tells(text: str) -> None:
    assert only_tells(*parse(text), lambda: False)


@pytest.mark.parametrize("text", DECIDES)
def test_decides(text: str) -> None:
    assert not only_tells(*parse(text), lambda: False)


def test_a_rate_that_is_read_is_a_decision() -> None:
    assert not only_tells(*parse("if v > best: group['lr'] = 0.1"), lambda: True)
    assert only_tells(*parse("if v > best: best = v"), lambda: True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("print(group['lr'])\nlog.info('lr %f', scheduler.get_last_lr()[0])", 0),
        ("def f():\n  rate = scheduler.get_last_lr()[0]\n  print(rate)", 0),
        ("for group in groups:\n  group['lr'] = 0.1\n  group['lr'] *= 0.5", 0),
        ("x = 1\nif group['lr'] < 1e-6: stop()", 2),
        ("def f():\n  rate = scheduler.get_last_lr()[0]\n  if rate < 1e-6: stop()", 2),
        ("if x:\n  pass\nelse:\n  use(scheduler.get_last_lr())", 4),
        ("class A:\n  def f(self): return self.group['lr']", 2),
    ],
)
def test_where_a_program_reads_learning_rates(text: str, line: int) -> None:
    assert reads_rates(ast.parse(text).body) == line


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
