"""Finds where a script's text gives ranks other tasks by their place: their number, their GPU's number on the server,
the server, or their place in a mesh.

Such a place is a condition (``if local_rank == 0``), or an amount that is computed with it (``sizes[rank % 2]``).
Seeds, devices, texts and what is only handed on do not count. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from phantora_async.folding.script_text import Source, last_name
from phantora_async.folding.script_values import LOCAL_RANK, UNKNOWN, Each, Ranks, ScriptValues

MOST_KINDS = 16
"""The most different sizes of an amount: an amount of more sizes is none that ranks have in common."""
_HARMLESS_WORDS = ("print", "log", "seed", "save", "write", "format", "path", "barrier", "sampler")
_HARMLESS = frozenset(
    (
        "DDP",
        "DistributedDataParallel",
        "FSDP",
        "FullyShardedDataParallel",
        "P2POp",
        "Path",
        "Random",
        "RandomState",
        "SeedSequence",
        "add_argument",
        "append",
        "cuda",
        "debug",
        "default_rng",
        "device",
        "error",
        "fold_in",
        "get",
        "getenv",
        "info",
        "init_process_group",
        "int",
        "irecv",
        "isend",
        "makedirs",
        "mkdir",
        "new_group",
        "open",
        "recv",
        "repr",
        "send",
        "set_device",
        "str",
        "synchronize",
        "to",
        "warning",
    )
)
"""The functions that take a rank to name it, its device, its peers or its random numbers."""
_COUNTING = frozenset(("range", "sleep"))
"""The functions whose argument is an amount even if it is a rank itself."""
_HARMLESS_KEYWORDS = frozenset(("device", "device_id", "device_ids", "dst", "output_device", "rank", "seed", "src"))


_IN_THREADS = frozenset(("async_save",))
"""The functions that use the GPU in a thread which chooses none: it is the first one of the server, which is some
ranks' own.
"""


class Told(NamedTuple):
    """One place of the text."""

    site: str
    """The place of the text, such as ``train.py:12``."""
    kinds: Each | None
    """The task of each rank there; None: the text does not say."""
    depends_on: frozenset[str]


def told_apart(sources: Sequence[Source], arguments: Sequence[str], ranks: Ranks) -> list[Told]:
    """All places, in the order of the text."""
    values = ScriptValues(sources, arguments, ranks)
    plain = [ranks.place(place) for place in ("rank", "local rank", "server")]
    found: dict[tuple[str, Each | None], Told] = {}
    for source in sources:
        for call in ast.walk(source.tree):
            if isinstance(call, ast.Call) and last_name(call.func) in _IN_THREADS:
                first = Each(gpu == 0 for gpu in ranks.place(LOCAL_RANK))
                site = f"{source.name}:{call.lineno}"
                found[site, first] = Told(site, first, frozenset((LOCAL_RANK,)))
        chosen = dict(_chosen(source.tree, values))
        for node, is_condition in (*_places(source.tree, False, values.functions), *chosen.items()):
            if not values.may_depend_on_place(node):
                continue
            value, depends_on = values.of(node, source)
            kinds: Each | None = None
            if not depends_on:
                continue
            if value is UNKNOWN and not is_condition and node not in chosen:
                continue  # most often where the rank's part of the data begins
            if value is not UNKNOWN:
                # One value for all; or the rank itself, or a device, handed on.
                if not isinstance(value, Each) or (is_condition is None and (value in plain or not _is_number(value))):
                    continue
                kinds = Each(map(bool if is_condition else _hashable, value))
                if len({*kinds}) > MOST_KINDS:
                    kinds = None
            site = f"{source.name}:{node.lineno}"
            found.setdefault((site, kinds), Told(site, kinds, depends_on))
    return list(found.values())


def _is_number(value: Each) -> bool:
    return all(isinstance(one, int | float) for one in value)


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, dict | list) else value


def _places(node: ast.AST, harmless: bool, own: frozenset[str]) -> Iterator[tuple[ast.expr, bool | None]]:
    """Yields expressions, and whether each is a condition (True), an amount (False), or handed to a function (None).
    `own`: functions of the script's own, in which an amount counts where it is used.
    """
    if isinstance(node, ast.Assert):
        return  # true on all ranks
    for test in _tests(node):
        if not isinstance(test, ast.BoolOp | ast.Compare) and not _is_not(test):
            yield test, True
    if isinstance(node, ast.Compare):
        yield node, True
        return  # its parts are told with the whole
    if isinstance(node, ast.BinOp) and not harmless:
        yield node, False
        harmless = True  # likewise
    elif isinstance(node, ast.Subscript) and not harmless and not isinstance(node.slice, ast.Slice | ast.Constant):
        yield node.slice, False
    elif isinstance(node, ast.Match):
        yield node.subject, False
    elif isinstance(node, ast.Call):
        yield from _arguments(node, harmless, own)
        return
    within = harmless or isinstance(node, ast.JoinedStr | ast.Slice)
    for child in ast.iter_child_nodes(node):
        # A value that gets a name, or is returned, counts where it is used.
        is_named = isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and isinstance(child, ast.BinOp)
        yield from _places(child, (within and not isinstance(child, ast.stmt)) or is_named, own)


def _arguments(call: ast.Call, harmless: bool, own: frozenset[str]) -> Iterator[tuple[ast.expr, bool | None]]:
    name = last_name(call.func)
    takes_names = harmless or name in _HARMLESS or name in own or any(word in name.lower() for word in _HARMLESS_WORDS)
    for keyword, value in [*((None, one) for one in call.args), *((one.arg, one.value) for one in call.keywords)]:
        is_name = takes_names or keyword in _HARMLESS_KEYWORDS
        if not is_name and not isinstance(value, ast.BinOp | ast.Compare | ast.BoolOp):
            yield value, False if name in _COUNTING else None
        yield from _places(value, is_name, own)
    yield from _places(call.func, harmless, own)


def _chosen(tree: ast.AST, values: ScriptValues) -> Iterator[tuple[ast.expr, bool]]:
    """Yields what ranks take from a table of functions, as in ``{1: work}.get(local_rank, rest)``, each entry by its
    text, and names that they give to ``getattr``. A table of known values counts where one of these is used.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, key, *_]):
                yield key, False
            case ast.Call(func=ast.Attribute(value=written, attr="get"), args=[key, *rest]):
                for table in values.tables(written):
                    if any(isinstance(value, ast.Lambda | ast.Name | ast.Attribute) for value in table.values):
                        texts: list[ast.expr] = [ast.Constant(ast.unparse(value)) for value in table.values]
                        default = ast.Constant(ast.unparse(rest[0]) if rest else "None")
                        of = ast.Attribute(ast.Dict(table.keys, texts), "get", ast.Load())
                        yield ast.copy_location(ast.Call(of, [key, default], []), node), False


def _tests(node: ast.AST) -> Sequence[ast.expr]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.comprehension(ifs=tests):
            return tests
    return []


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
