"""The command line of the emulated nvidia-smi."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from . import PROGRAM, queries, tables
from .gpus import Gpu, NvmlError, System, read

EMULATED = "without options, with -L, --query-gpu=... --format=csv[,noheader][,nounits], topo -m, each with -i ID"
NOT_EMULATED, NOT_FOUND, FAILED = 2, 6, 9
"""Exit codes, those that NVIDIA's program has for an argument that is not valid, for a GPU that was not found, and
without a driver.
"""
_SHORT = {"-i": "--id", "-L": "--list-gpus", "-h": "--help", "-m": "--matrix"}
_WITH_VALUE = ("--id", "--query-gpu", "--format")


class Refused(Exception):
    """Raised for what cannot be answered: the text, and the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line, understood."""

    lists: bool = False
    topology: bool = False
    helps: bool = False
    version: bool = False
    fields: tuple[str, ...] = ()
    form: queries.Form | None = None
    ids: tuple[str, ...] = ()
    """The GPUs that are meant, by index, UUID or PCI address; empty: all."""


def parse(arguments: Sequence[str]) -> Asked:
    """Raises Refused for what is not emulated."""
    asked, rest = Asked(), list(arguments)
    if rest[:1] == ["topo"]:
        rest.pop(0)
        if not {"-m", "--matrix"} & set(rest):
            raise Refused(NOT_EMULATED, "topo is emulated with -m only")
        asked = replace(asked, topology=True)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        name = _SHORT.get(word, word)
        if name in _WITH_VALUE:
            if not equals:
                if not rest:
                    raise Refused(NOT_EMULATED, f"{word} needs a value")
                value = rest.pop(0)
            given = tuple(part.strip() for part in value.split(",") if part.strip())
            if name == "--id":
                asked = replace(asked, ids=given)
            elif name == "--query-gpu":
                asked = replace(asked, fields=given)
            else:
                asked = replace(asked, form=_form(given))
        elif name == "--list-gpus":
            asked = replace(asked, lists=True)
        elif name == "--help":
            asked = replace(asked, helps=True)
        elif name == "--version":
            asked = replace(asked, version=True)
        elif not (name == "--matrix" and asked.topology):
            raise Refused(NOT_EMULATED, f"{word} is not emulated; emulated is {PROGRAM} {EMULATED}")
    if asked.form is not None and not asked.fields:
        raise Refused(NOT_EMULATED, "--format needs --query-gpu")
    if asked.fields and asked.form is None:
        raise Refused(NOT_EMULATED, "--query-gpu needs --format=csv")
    if asked.fields and (unknown := queries.unknown(asked.fields)):
        raise Refused(NOT_EMULATED, f'Field "{unknown[0]}" is not a field to query that is emulated')
    return asked


def _form(words: Sequence[str]) -> queries.Form:
    if words[:1] != ("csv",) or not set(words[1:]) <= {"noheader", "nounits"}:
        raise Refused(NOT_EMULATED, f"--format={','.join(words)} is not emulated: csv[,noheader][,nounits] is")
    return queries.Form(header="noheader" not in words, units="nounits" not in words)


def answer(asked: Asked, system: System) -> Iterator[str]:
    """Yields the lines of the answer. Raises Refused for a GPU that does not exist."""
    gpus = [_meant(system, one) for one in asked.ids] or list(system.gpus)
    if asked.helps:
        yield f"{PROGRAM} of an emulated server (phantora-async)"
        yield f"Emulated: {EMULATED}."
    elif asked.version:
        yield f"NVIDIA-SMI version  : {system.driver}"
        yield f"DRIVER version      : {system.driver}"
        yield f"CUDA Version        : {system.cuda}"
    elif asked.topology:
        yield from tables.matrix(gpus)
    elif asked.fields and asked.form is not None:
        yield from queries.answer(system, gpus, asked.fields, asked.form)
    elif asked.lists:
        yield from tables.listed(gpus)
    else:
        yield from tables.overview(system, gpus)


def _meant(system: System, one: str) -> Gpu:
    for gpu in system.gpus:
        if one in (str(gpu.index), gpu.uuid) or (":" in one and gpu.pci.casefold().endswith(one.casefold())):
            return gpu
    raise Refused(NOT_FOUND, f"No devices were found: this server has {len(system.gpus)} GPUs, and none is {one}")


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as any program ends whose reader has seen enough
    try:
        for line in answer(parse(sys.argv[1:]), read()):
            print(line)
    except Refused as error:
        print(f"{PROGRAM} (emulated by phantora-async): {error}", file=sys.stderr)
        return error.code
    except (NvmlError, OSError) as error:
        print(f"{PROGRAM} (emulated by phantora-async): {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
