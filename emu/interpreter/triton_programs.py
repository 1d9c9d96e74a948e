"""Tells the hook library what Triton's kernels do.

A kernel's cost depends on its program, which Triton keeps beside the compiled kernel in its intermediate representation
(TTIR). When a kernel is loaded the hook gets the text, and which integer parameters decide the work: loop bounds, and
what enters comparisons and addresses. Others, such as a random seed, must not: each value would be a new cost.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..formats.ttir import CARRIED, LINE_END, names_of, one_line, parameters_of
from ..private.changes import changes
from .hook_library import Hook

_NAME = re.compile(r"%[\w.]+")
_DECIDE = (
    "tt.addptr",
    "tt.make_tensor_ptr",
    "tt.make_tensor_descriptor",
    "tt.advance",
    "tt.descriptor",
    "arith.cmpi",
    "scf.if",
    "scf.while",
    "scf.condition",
)
"""Names of operations whose operands decide what is loaded and stored, and how often."""
_WIDTHS = {"i32": "4", "i64": "8"}


class Computed(Protocol):
    """Computes integers that kernels store (emu.compiled)."""

    def number(self, text: str) -> int:
        """Returns the number of a program whose launches are computed; 0 for others."""

    def layout(self, number: int) -> str:
        """Returns a character for each parameter of such a program: how many bytes it has."""


def install(hook: Hook, computed: Computed) -> None:
    """Makes Triton and Inductor tell of the kernels that they load. Called once, in the forker. Does nothing without
    Triton.
    """
    told = functools.partial(_telling, hook, computed)
    if changes.install("Triton's programs", lambda names: names.change("_init_handles", told)):
        own = functools.partial(_launcher, hook, computed)
        changes.install("Inductor's programs", lambda names: names.change("torch._C._StaticCudaLauncher", own))


def _telling(hook: Hook, computed: Computed, load: Any) -> Any:
    @functools.wraps(load)
    def load_and_tell(self: Any) -> None:
        was_loaded = self.module is not None
        load(self)
        if not was_loaded and self.function is not None:
            _tell(hook, computed, self.function, self.asm.get("ttir"))

    return load_and_tell


def _launcher(hook: Hook, computed: Computed, launcher: Any) -> Any:
    """Wraps Inductor's class of launchers, which load kernels themselves, from the file in Triton's cache that lies
    beside the program.
    """

    class Launcher:
        @staticmethod
        def _load_kernel(path: str, *rest: Any) -> Any:
            loaded = launcher._load_kernel(path, *rest)
            program = Path(path).with_suffix(".ttir")
            function = loaded[-3]  # before the registers and the spills; torch 2.15 gives the module first
            _tell(hook, computed, function, program.read_text() if program.is_file() else None)
            return loaded

    for name in vars(launcher):
        if not name.startswith("__") and name != "_load_kernel":
            setattr(Launcher, name, staticmethod(getattr(launcher, name)))
    # Cached graphs hold the class: they name it as they name torch's.
    Launcher.__module__, Launcher.__qualname__ = "torch._C", "_StaticCudaLauncher"
    return Launcher


def _tell(hook: Hook, computed: Computed, function: int, program: str | None) -> None:
    if program:
        text, widths, stored = _read(program)
        number = computed.number(text)
        layout = computed.layout(number) if number else ""
        hook.kernel_program(function, text, widths, stored, number, layout)


@functools.lru_cache(maxsize=1024)
def _read(program: str) -> tuple[str, str, str]:
    """Returns what the hook gets of a program, and remembers it: models load one program many times, once for each
    graph that needs it.
    """
    text = one_line(program)
    return text, parameter_widths(text), stored_through(text)


def parameter_widths(text: str) -> str:
    """Returns a character for each parameter of the kernel: the bytes of an integer that decides the work, `c` for a
    pointer to counts in memory that end loops, `b` for a pointer at whose data other data points, or `-`.
    """
    parameters = parameters_of(text)
    lines = [line for line in text.split(LINE_END) if not line.startswith("tt.func public")]
    deciding, counts = set(_deciding(lines, {f"%{one.name}" for one in parameters})), _counting(lines)
    indirect = _indirect(lines, {f"%{one.name}" for one in parameters if one.type.startswith("!tt.ptr")})

    def width(name: str, kind: str) -> str:
        if name in counts and kind.startswith(_COUNTS):
            return "c"
        if name in indirect:
            return "b"
        return _WIDTHS.get(kind, "-") if name in deciding else "-"

    return "".join(width(f"%{one.name}", one.type) for one in parameters)


_COUNTS = "!tt.ptr<i32>"


def _counting(lines: list[str]) -> set[str]:
    """Returns the pointers from which a single i32 is loaded that reaches a loop's bounds: how many blocks a mask
    leaves, where a sequence ends. Values are followed from the bounds to what they come from.
    """
    bounds: set[str] = set()
    addresses: set[str] = set()
    for line in reversed(lines):
        results, is_assignment, operation = line.partition(" = ")
        if not is_assignment or not results.startswith("%"):
            results, operation = "", line
        if operation.startswith("scf.for"):
            bounds.update(_NAME.findall(operation.partition(" iter_args(")[0]))
        elif operation.startswith("tt.load"):
            if bounds.intersection(_NAME.findall(results)) and operation.rstrip().endswith(_COUNTS):
                addresses.update(_NAME.findall(operation)[:1])
        elif operation.startswith("tt.addptr"):
            if addresses.intersection(_NAME.findall(results)):
                addresses.update(_NAME.findall(operation)[:1])
        elif bounds.intersection(_NAME.findall(results)):
            bounds.update(_NAME.findall(operation))
    return addresses


_SINGLE = re.compile(r"!tt\.ptr<i(?:32|64)>$")
_NONE = re.compile(r"(%\S+) = arith\.constant -1 : i(?:32|64)$")
"""A number that stands for "none": a block of no expert."""


def _indirect(lines: list[str], pointers: set[str]) -> set[str]:
    """Returns the pointers at whose data single integers point that the program loads: a permutation's rows. How many
    bytes lie behind them bounds what is moved. Products read blocks again and again, whose spans say enough: of these
    only pointers count to data that is chosen by a number, or not at all where the number is none, as the weights of an
    expert. How many bytes lie behind them says how many there are to choose from.
    """
    multiplies = any("tt.dot" in line for line in lines)
    none = {constant[1] for line in lines if (constant := _NONE.match(line))}
    parameter_of = {name: name for name in pointers}
    single: set[str] = set()
    """Values of single integers that are loaded."""
    chosen: set[str] = set()
    """Values that follow from those that count."""
    found: set[str] = set()
    for line in lines:
        results, is_assignment, operation = line.partition(" = ")
        if not is_assignment or not results.startswith("%"):
            results, operation = "", line
        values = _NAME.findall(operation)
        reached = bool(chosen.intersection(values))
        if operation.startswith(("tt.load", "tt.store")) and values[:1]:
            if values[0] in chosen and values[0] in parameter_of:
                found.add(parameter_of[values[0]])
            if operation.startswith("tt.load") and _SINGLE.search(operation.rstrip()):
                (single if multiplies else chosen).update(names_of(results))
        elif multiplies and operation.startswith("scf.for"):
            for inner, first in CARRIED.findall(operation):
                if first in parameter_of:
                    parameter_of[inner] = parameter_of[first]
                if first in chosen:
                    chosen.add(inner)
        elif operation.startswith("arith.cmpi eq") and none.intersection(re.findall(r"%[\w.-]+", operation)):
            chosen.update(single.intersection(values))
        elif results and not operation.startswith("scf."):
            if reached:
                chosen.update(names_of(results))
            if operation.startswith(("arith.ext", "arith.trunc")) and single.intersection(values):
                single.update(names_of(results))
            if values and values[0] in parameter_of:
                parameter_of.update(dict.fromkeys(names_of(results), parameter_of[values[0]]))
    return found


_STORES = (
    "tt.store",
    "tt.atomic_rmw",
    "tt.atomic_cas",
    "tt.descriptor_store",
    "tt.descriptor_reduce",
    "tt.descriptor_scatter",
    "tt.experimental_descriptor_store",
)
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")


def stored_through(text: str) -> str:
    """A character for each parameter of the kernel: `w` for a pointer that the kernel may store through, `t` for one to
    a table of pointers through which it may store, `r` for another pointer, or `-`.

    Addresses are followed from the stores to the parameters. A program that passes pointers to functions, or stores
    through a pointer whose origin is not followed, may store through all of them.
    """
    parameters = parameters_of(text)
    pointers = {f"%{one.name}" for one in parameters if one.type.startswith("!tt")}
    lines = [line for line in text.split(LINE_END) if not line.startswith("tt.func public")]
    everything = any("tt.call" in line for line in lines)
    made_of, made_pointers, loaded_at, addresses = _made_of(lines)
    stored, tables = _origins(addresses, made_of), set[str]()
    for number in [made_pointers[one] for one in stored if one in made_pointers]:
        loads = [loaded_at[one] for one in _origins([number], made_of) if one in loaded_at]
        tables |= _origins(loads, made_of) & pointers
        everything = everything or not loads
    given = {name for line in lines if line.startswith("^") for name in _GIVEN_POINTER.findall(line)}
    everything = everything or bool(stored & given)

    def how(pointer: str) -> str:
        if pointer not in pointers:
            return "-"
        return "w" if everything or pointer in stored else "t" if pointer in tables else "r"

    return "".join(how(f"%{one.name}") for one in parameters)


def _origins(values: Sequence[str], made_of: dict[str, list[str]]) -> set[str]:
    """Returns the values and all that they are made of. Values of different blocks may have the same name: then it is
    what any of them is made of.
    """
    reached: set[str] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value not in reached:
            reached.add(value)
            pending += made_of.get(value, ())
    return reached


_GIVEN_POINTER = re.compile(r"(%[\w.$-]+): (?:tensor<[^!>]*)?!tt\.ptr")
"""Matches a pointer that a branch gives to a block."""


def _made_of(
    lines: list[str],
) -> tuple[dict[str, list[str]], dict[str, str], dict[str, str], list[str]]:
    """Returns for each value the values that it is made of, as far as that matters for addresses; for each pointer that
    is made of a number, the number; for each loaded value its address; and the addresses that are stored to.
    """
    made_of: dict[str, list[str]] = {}
    made_pointers: dict[str, str] = {}
    loaded_at: dict[str, str] = {}
    addresses: list[str] = []
    regions: list[tuple[Sequence[str], list[str]]] = []
    """For each loop and branch around a line: the values that it gives, and the loop's own names of them."""
    for line in lines:
        results, is_assignment, operation = line.partition(" = ")
        if not is_assignment or not results.startswith("%"):
            results, operation = "", line
        values = _VALUE.findall(operation)
        if operation.startswith(_STORES):
            addresses += values[:1]
        elif operation.startswith(("scf.for", "scf.while", "scf.if")):
            carried = CARRIED.findall(operation.partition("(")[2])
            given = names_of(results)
            for i, (inner, first) in enumerate(carried):
                made_of.setdefault(inner, []).append(first)
                if i < len(given):
                    made_of.setdefault(given[i], []).append(first)
            regions.append((given, [inner for inner, _ in carried]))
        elif operation.startswith(("scf.yield", "scf.condition")):
            for names in regions[-1] if regions else ():
                for name, value in zip(names, values, strict=False):
                    made_of.setdefault(name, []).append(value)
        elif operation.startswith(("tt.load", "tt.int_to_ptr")):
            leads = loaded_at if operation.startswith("tt.load") else made_pointers
            leads.update((name, values[0]) for name in names_of(results) if values)
        elif results:
            for name in names_of(results):
                made_of.setdefault(name, []).extend(values[:1] if operation.startswith("tt.addptr") else values)
        if regions and line.startswith("}") and not line.startswith(("})", "} else", "} do")):
            regions.pop()
    return made_of, made_pointers, loaded_at, addresses


def _deciding(lines: list[str], parameters: set[str]) -> Iterator[str]:
    """Yields the parameters that reach an operation that decides. Values are followed from their use to what they come
    from.
    """
    wanted: set[str] = set()
    for line in reversed(lines):
        results, is_assignment, operation = line.partition(" = ")
        if not is_assignment or not results.startswith("%"):
            results, operation = "", line
        if operation.startswith("scf.yield"):
            values, _, types = operation.partition(" : ")
            wanted.update(_integers(values, types))
        elif operation.startswith("scf.for"):
            bounds, _, carried = operation.partition(" iter_args(")
            values, _, types = carried.partition(") -> (")
            wanted.update(_NAME.findall(bounds))
            wanted.update(_integers(" ".join(re.findall(r"= (%[\w.]+)", values)), types))
        elif operation.startswith(_DECIDE) or wanted.intersection(_NAME.findall(results)):
            wanted.update(_NAME.findall(operation))
    yield from wanted & parameters


def _integers(values: str, types: str) -> Iterator[str]:
    """Yields the names of values that are integers or addresses, among those that one iteration of a loop gives to the
    next.
    """
    kinds = re.findall(r"(?:tensor<(?:\d+x)*)?(!?[\w.]+)(?:<[^,]*>)?(?:[^,]*)(?:,|$)", types)
    for name, kind in zip(_NAME.findall(values), kinds, strict=False):
        if kind.startswith(("i", "!tt")):
            yield name
