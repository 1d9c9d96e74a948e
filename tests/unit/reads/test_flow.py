"""Which lines decide by a value: not those that only handle names, counters and other items beside it."""

from __future__ import annotations

import ast

import pytest

from emu.reads.flow import Flow
from emu.reads.frames import Position

DECIDES = [
    "if READ < best: pass",
    "d = {'epoch': 3, 'loss': READ}\nif d['loss'] > 2: pass",
    "d = {}\nd['loss'] = READ\nfor key, value in d.items():\n    if value > 2: pass",
    "for i, x in enumerate([READ]):\n    if x > 2: pass",
    "for y, x in zip(names, [READ]):\n    if x > 2: pass",
    "epoch, loss = 1, READ\nassert loss < 2",
    "d = {}\nd[name] = READ\nmin(d, key=d.get)",
    "d = {}\nd[name] = READ\nmax(d.values())",
    "sorted({'a': READ}.items(), key=lambda item: item[1])",
    "losses = [READ]\nfor loss in losses:\n    if loss: pass",
    "d = {'loss': READ}\nd.update(other)\nif d.get('loss') > 2: pass",
    "x = READ or fallback",
    "READ and lower()",
    "done = not READ",
    "operator.gt(READ, best)",
    "list(filter(lambda loss: loss > 2, [READ]))",
    "(lambda loss, best: loss > best)(READ, 2)",
    "np.count_nonzero([READ])",
    "random.choices(items, weights=[READ, 1])",
    "v = READ\ndef better():\n    return v > 2",
    "v = READ\ndef outer():\n    def inner(): return 1 if v else 0\n    return inner",
    "v = READ\nclass P:\n    def ok(self): return v > 2",
    "def set_it():\n    nonlocal best\n    best = READ\nset_it()\nif best > 2: pass",
    "def work(): out.append(READ)\nwork()\nif out[0] > 2: pass",
    "def get(): return READ\nif get() > 2: pass",
    "get = lambda: READ\nget() > 2",
    "f = functools.partial(operator.gt, READ)",
    "f = functools.partial(check, READ)\nf(2) > 1",
    "functools.reduce(lambda a, b: a if a < b else b, [READ, 2])",
    "list(map(lambda step, loss: loss > 2, steps, [READ]))",
    "names.get(int(READ), 'none')",
    "[1] * int(READ)",
    "step % READ",
    "d = {'count': READ}\nmean = total / d['count']",
    "best = float('inf')\nREAD < best",
    "READ != other",
    "torch.zeros(int(READ))",
    "itertools.groupby([READ], lambda v: v > 2)",
]
TELLS = [
    "for key, value in state.items():\n    if key != 'step':\n        state[key] = READ",
    "d = {}\nd['loss'] = READ\nfor key in d:\n    if key > limit: pass",
    "d = {'epoch': 3, 'loss': READ}\nif d['epoch'] > 2 or d.get('epoch') == 2: pass",
    "d = {}\nd[name] = READ\nduplicates = list(d.keys() & other.keys())\nif duplicates: pass",
    "d = {}\nd[name] = READ\nif name in d and len(d) > 2 and set(d) == names: pass",
    "d = dict(READ)\nrate = samples / d['runtime']",
    "d = dict(loss=READ)\nfor key in sorted(d):\n    print(key, d[key])",
    "for i, x in enumerate([READ]):\n    if i > 2: print(x)",
    "for i, x in zip(numbers, [READ]):\n    if i > 2: print(x)",
    "epoch, loss = 1, READ\nassert epoch < 2",
    "losses = [READ]\nif losses == [] or losses != None: pass",
    "meter.update(READ)\nif meter.count > 2: pass",
    "if not math.isfinite(READ): sys.exit(1)",
    "bad = not math.isfinite(READ)",
    "losses = [READ]\nempty = not losses\nfirst = losses or None",
    "logger and logger.log(READ)",
    "text = name or str(READ)",
    "(lambda loss, step: step > 2)(READ, 3)",
    "v = READ\ndef log(step):\n    if step > 2: print(v)",
    "v = READ\ndef other():\n    v = 2\n    return v > 1",
    "v = READ\ndef other(v): return v > 1",
    "out = [READ]\ndef full():\n    if out: print(out)",
    "def get(): return READ\nprint(get(), f'{get():.2f}')",
    "v = READ\nif v == float('inf') or v == -float('inf') or v != v: print(v)",
    "v = READ\nif v < math.inf and np.nan != v: print(v)",
    "v = READ\nprint('loss %.4f' % v, '%d: %.4f' % (3, v), f'{3}: %s' % v)",
    "v = READ\nform = '%(loss)s'\nprint(form % {'loss': v})\nline = '%.2f' % v\nif line: print(line)",
    "list(map(lambda step, loss: step > 2, steps, [READ]))",
    "[READ] * 3",
    "config.get('loss', READ)",
]


def flow(text: str) -> Flow:
    body = ast.parse(text).body
    read = next(node for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Name) and node.id == "READ")
    return Flow(body, read=Position.of(read))


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


def test_functions_that_get_it_from_threads_pools_and_partial_calls() -> None:
    text = "Thread(target=work, args=(1, READ))\npool.submit(self.check, step, READ)\npartial(module.f, READ)"
    reads = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == "READ"]
    found = [
        (ast.unparse(passed.function), passed.places)
        for read in reads
        for passed in Flow(ast.parse(text).body, read=Position.of(read)).calls()
    ]
    assert ("work", (1,)) in found
    assert ("self.check", (1,)) in found
    assert ("module.f", (0,)) in found
