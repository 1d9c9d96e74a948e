"""The rows of the table: each is a purpose, the private names that it needs, and what is lost without them."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

TRIED = {"torch": ("2.9", "2.11", "2.15"), "triton": ("3.6", "3.9"), "python": ("3.11", "3.12", "3.13")}
"""Versions in which the names were looked for, oldest first."""
PRODUCTS = {
    "torch": "PyTorch",
    "triton": "Triton",
    "python": "Python",
    "jax": "JAX",
    "torchdata": "torchdata",
    "transformer_engine": "Transformer Engine",
    "transformers": "transformers",
    "vllm": "vLLM",
}


class Kind(enum.Enum):
    """The kinds of objects that a name can be, in the words of messages."""

    FUNCTION = "a function"
    CLASS = "a class"
    OBJECT = "an object"


@dataclass(frozen=True, slots=True)
class Name:
    """A name within a module. If it is a function whose code is Python's and its own, more is checked of it."""

    module: str
    path: str
    """Attributes from the module to the object, with dots."""
    kind: Kind = Kind.FUNCTION
    takes: tuple[str, ...] = ()
    """Lists of parameters with which it was seen, separated by blanks; `...`: whatever follows. (): any."""
    mentions: str = ""
    """Attributes of its objects that are used, too; its code must mention them."""
    inherited: bool = False
    """True if its class has it from another one."""
    seen: tuple[str, ...] = ()
    """Versions of TRIED that have it; (): all."""

    @property
    def full(self) -> str:
        """The full name, as messages write it."""
        return f"{self.module}.{self.path}"

    def expected_in(self, package: str, version: str) -> bool:
        """Tells whether the tried versions around this one all have it. An unknown version has what the newest one
        has.
        """
        tried = TRIED.get(package, ())
        if not self.seen or not tried:
            return True
        at = key(version)
        around = [*[one for one in tried if key(one) <= at][-1:], *[one for one in tried if key(one) >= at][:1]]
        return all(one in self.seen for one in around)


@dataclass(frozen=True, slots=True)
class Purpose:
    """A purpose for which names are used together: if one of them is not as expected, all of it is left out."""

    key: str
    use: str
    lost: str
    """The loss for a run without this purpose, as the end of a sentence."""
    files: tuple[str, ...]
    """The files that use the names."""
    names: tuple[Name, ...]
    wrong: str = ""
    """The error that results may then have; "": only speed or a message is lost."""

    @property
    def package(self) -> str:
        """The package whose version counts: that of the first name."""
        return package_of(self.names[0].module)

    @property
    def consequence(self) -> str:
        """The loss without this purpose, and how results may be wrong."""
        return f"{self.lost}; results may be wrong: {self.wrong}" if self.wrong else self.lost


def package_of(module: str) -> str:
    top = module.partition(".")[0]
    return top if top in PRODUCTS else "python"


def key(version: str) -> tuple[int, ...]:
    """Returns a version as numbers that can be compared: 2.11 of 2.11.0+cu130."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
