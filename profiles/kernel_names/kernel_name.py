"""Reads a kernel's name: its function, its template arguments, the types of its operands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from profiles.kernel_names.demangle import demangle

_DTYPES = (
    (r"BFloat16|bfloat16|__half|c10::Half|\bHalf\b|half_t|short", 2.0),
    (r"Float8|float_e[45]m|\bbool\b|\bchar\b", 1.0),
    (r"complex<double>", 16.0),
    (r"\bdouble\b|\blong\b|complex<float>", 8.0),
    (r"\bfloat\b|\bint\b|complex<c10::Half>", 4.0),
)


@dataclass(frozen=True, slots=True)
class KernelName:
    base: str
    """The function's name without scopes: `vectorized_elementwise_kernel`."""
    arguments: tuple[str, ...]
    """Its template arguments, as text."""
    text: str
    """The whole readable name."""

    @property
    def function(self) -> str:
        """The function's name with scopes and template arguments, and without the parameters that follow them in some
        spellings.
        """
        depth = 0
        for at, letter in enumerate(self.text):
            if letter == "(" and depth == 0:
                return self.text[:at]
            if letter in "<({[":
                depth += 1
            elif letter in ">)}]" and self.text[at - 1 : at + 1] != "->":
                depth -= 1
                if letter == ">" and depth == 0:
                    return self.text[: at + 1]
        return self.text


@lru_cache(maxsize=4096)
def read_name(name: str) -> KernelName:
    """Reads a mangled or an already readable name; never fails."""
    text = demangle(name).removeprefix("void ").replace("(anonymous namespace)::", "")
    if text.startswith("_Z"):
        return KernelName(_spelled(text), (), text)
    end = next((at for at, letter in enumerate(text) if letter in "<("), len(text))
    base = text[:end].rsplit("::", 1)[-1]
    arguments = split_arguments(text[end:]) if text[end : end + 1] == "<" else ()
    return KernelName(base.strip(), arguments, text)


def _spelled(mangled: str) -> str:
    """The last identifier of a mangled name that could not be read as a whole: `_ZN2at6native12gather_kernelI...` ->
    gather_kernel.
    """
    at, found = re.match(r"_ZN?K?", mangled).end(), mangled  # type: ignore[union-attr]
    while number := re.compile(r"L?(\d{1,9})").match(mangled, at):
        at = number.end() + int(number[1])
        found = mangled[number.end() : at]
    return found


def split_arguments(text: str) -> tuple[str, ...]:
    """`<a, b<c, d>, e>...` -> ("a", "b<c, d>", "e"): the first bracket's arguments at the top level."""
    found: list[str] = []
    depth, start = 0, 1
    for at, letter in enumerate(text):
        if letter in "<({[":
            depth += 1
        elif letter in ">)}]" and text[at - 1 : at + 1] != "->":
            depth -= 1
            if depth == 0:
                found.append(text[start:at].strip())
                break
        elif letter == "," and depth == 1:
            found.append(text[start:at].strip())
            start = at + 1
    return tuple(one for one in found if one)


def item_nbytes(type_name: str, default: float = 4.0) -> float:
    """The bytes of one element of a C++ type named in a template argument; OpaqueType<2> and similar state their
    size.
    """
    if found := re.search(r"OpaqueType<(\d+)", type_name):
        return float(found[1])
    for pattern, nbytes in _DTYPES:
        if re.search(pattern, type_name):
            return nbytes
    return default


def integer(argument: str, default: int) -> int:
    found = re.match(r"-?\d+", argument)
    return int(found[0]) if found else default
