"""The command line: which subcommand, and the one place that prints errors.

Subcommands live in phantora_async/commands, one module each, with `add_arguments(parser)` and `run(arguments) -> exit
code`. Only the chosen one is imported.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from phantora_async.errors import EXIT_CODES_HELP, ExitCode, PhantoraError, UsageError

DESCRIPTION = "What distributed PyTorch training costs: unmodified scripts on emulated GPUs."


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    summary: str

    @property
    def module(self) -> str:
        return f"phantora_async.commands.{self.name}"


COMMANDS = (
    Command("run", "run a training script on emulated GPUs"),
    Command("report", "show a run's report again"),
    Command("validate", "compare emulated jobs with what real GPUs did"),
    Command("profiles", "list, show or copy GPU, cluster and host descriptions"),
    Command("net", "simulate a network alone"),
)


class Parser(argparse.ArgumentParser):
    """argparse, with errors as exceptions and no guessing of abbreviated options."""

    def __init__(self, *arguments: object, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"try: {self.prog} --help")


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""What a disk says that takes no more."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Runs one command line, prints what went wrong, returns the exit code."""
    try:
        return _run(arguments)
    except PhantoraError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `... | head`
        sys.stderr.close()
        return 128 + 13
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(f"error: {error.strerror}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        return ExitCode.NOT_WRITTEN


def _run(arguments: list[str]) -> int:
    parser = Parser(prog="phantora-async", description=DESCRIPTION, epilog=_epilog())
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    available = [command for command in COMMANDS if importlib.util.find_spec(command.module) is not None]
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="one of those below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.version:
        from importlib.metadata import version

        print(f"phantora-async {version('phantora-async')}")
        return 0
    if given.command is None:
        parser.print_help()
        return 0
    chosen = next((command for command in available if command.name == given.command), None)
    if chosen is None:
        known = ", ".join(command.name for command in available)
        raise UsageError(f"unknown command {given.command!r}", f"known commands: {known}")
    module = importlib.import_module(chosen.module)
    sub = Parser(prog=f"phantora-async {chosen.name}", description=module.__doc__)
    module.add_arguments(sub)
    return int(module.run(sub.parse_args(given.arguments)))


def _epilog() -> str:
    lines = [f"  {command.name:<10} {command.summary}" for command in COMMANDS]
    example = "  phantora-async run -n 8 train.py --lr 3e-4"
    return "\n".join(["commands:", *lines, "", "example:", example, "", EXIT_CODES_HELP])
