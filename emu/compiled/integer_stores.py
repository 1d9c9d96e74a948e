"""Decides which Triton programs are worth following: those that store integers which follow from integers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..formats.ttir import Operation, Program, Type, read_types

INTEGERS = frozenset(("i1", "i8", "i16", "i32", "i64"))
STORES_UNSEEN = (
    "tt.atomic_rmw",
    "tt.atomic_cas",
    "tt.descriptor_store",
    "tt.descriptor_reduce",
    "tt.descriptor_scatter",
    "tt.experimental_descriptor_store",
    "tt.call",
)
"""Operations that write to memory and are not evaluated."""


class NotEvaluated(Exception):
    """The program does what is not evaluated here: what it stores is unknown."""


class TooLong(NotEvaluated):
    """The launch is too large to be evaluated."""


def parameters_of(program: Program) -> tuple[tuple[str, Type], ...]:
    """Returns name and type of each parameter. Raises NotEvaluated for other types than numbers and pointers to
    them."""
    found = []
    for parameter in program.parameters:
        types = read_types(parameter.type)
        if len(types) != 1 or types[0].shape or types[0].is_pointer != parameter.is_pointer:
            raise NotEvaluated("a parameter of another type")
        found.append((f"%{parameter.name}", types[0]))
    return tuple(found)


def stores_integers(program: Program, evaluated: frozenset[str]) -> bool:
    """Tells whether the program stores an integer that follows from integers, by operations of `evaluated` alone."""
    return any(_integer_stores(program.body, set(), evaluated))


def _integer_stores(body: Sequence[Operation], unknown: set[str], evaluated: frozenset[str]) -> Iterator[bool]:
    for operation in body:
        name = operation.name
        if name == "tt.store":
            stored = operation.types[0].element if operation.types else ""
            yield stored in INTEGERS and not unknown.intersection(operation.operands)
            continue
        inner = [*operation.regions]
        if name in ("scf.for", "scf.if"):
            for region in inner:
                yield from _integer_stores(region, unknown, evaluated)
                yielded = region[-1].operands if region and region[-1].name == "scf.yield" else ()
                for result, value in zip(operation.results, yielded, strict=False):
                    if value in unknown:
                        unknown.add(result)
            if name == "scf.for" or not unknown.intersection(operation.operands):
                continue
        loads_float = name == "tt.load" and (not operation.types or operation.types[0].element not in INTEGERS)
        if loads_float or name not in evaluated or unknown.intersection(operation.operands):
            unknown.update(operation.results)
