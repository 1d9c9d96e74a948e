"""Decisions that a function makes by an ordinary number that C code has made of one that nobody computed."""

from __future__ import annotations

import ast

import pytest

from emu.reads.flow import Flow
from emu.reads.frames import Position

DECIDES = [
    "if READ < best: pass",
    "for i, x in enumerate([READ]):\n    if x > 2: pass",
    "epoch, loss = 1, READ\nassert loss < 2",
    "losses = [READ]\nfor loss in losses:\n    if loss: pass",
    "x = READ or fallback",
    "READ and lower()",
    "done = not READ",
    "operator.gt(READ, best)",
    "np.count_nonzero([READ])",
    "random.choices(items, weights=[READ, 1])",
    "names.get(int(READ), 'none')",
    "[1] * int(READ)",
    "step % READ",
    "best = float('inf')\nREAD < best",
    "READ != other",
    "torch.zeros(int(READ))",
]
TELLS = [
    "for key, value in state.items():\n    if key != 'step':\n        state[key] = READ",
    "epoch, loss = 1, READ\nassert epoch < 2",
    "losses = [READ]\nif losses == [] or losses != None: pass",
    "if not math.isfinite(READ): sys.exit(1)",
    "bad = not math.isfinite(READ)",
    "losses = [READ]\nempty = not losses\nfirst = losses or None",
    "logger and logger.log(READ)",
    "text = name or str(READ)",
    "v = READ\nif v == float('inf') or v == -float('inf') or v != v: print(v)",
    "v = READ\nif v < math.inf and np.nan != v: print(v)",
    "v = READ\nprint('loss %.4f' % v, '%d: %.4f' % (3, v), f'{3}: %s' % v)",
    "v = READ\nform = '%(loss)s'\nprint(form % {'loss': v})\nline = '%.2f' % v\nif line: print(line)",
    "config.get('loss', READ)",
]


def flow(text: str) -> Flow:
    body = ast.parse(text).body
    read = next(node for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Name) and node.id == "READ")
    return Flow(body, Position.of(read))


@pytest.mark.parametrize("text", DECIDES)
def test_decides(text: str) -> None:
    assert list(flow(text).decisions())


@pytest.mark.parametrize("text", TELLS)
def test_only_tells(text: str) -> None:
    assert [ast.unparse(node) for node in flow(text).decisions()] == []


def test_the_decision_behind_the_read_is_told() -> None:
    decided = flow("[v for v in known if v > 1]\n[v for v in [READ] if v > 2]\nif v > 3: pass").decision()
    assert decided is not None
    assert ast.unparse(decided) == "v > 2"
    decided = flow("while True:\n    if v > 1: break\n    v = READ").decision()
    assert decided is not None


def test_an_item_that_is_written_makes_the_whole_container_unknown() -> None:
    text = "losses[k] = value\nif losses.mean() < best: pass"
    body = ast.parse(text).body
    item = next(node for node in ast.walk(body[0]) if isinstance(node, ast.Subscript))
    decided = Flow(body, Position.of(item)).decision()
    assert decided is not None
    assert ast.unparse(decided) == "losses.mean() < best"
