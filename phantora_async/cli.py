"""The command line: chooses the subcommand and prints errors, which nothing else does.

Subcommands live in phantora_async/commands, one module each, with `add_arguments(parser)` and `run(arguments) -> exit
code`. Only the chosen module is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

from formats.nearest import meant
from phantora_async import garbage
from phantora_async.child_process import interrupts_held
from phantora_async.errors import PhantoraError, UsageError, as_phantora_error, exit_codes_help
from phantora_async.version import VERSION
from phantora_async.wording import printable, short_lines

DESCRIPTION = "Runs unmodified distributed PyTorch training scripts on emulated GPUs and predicts step time and memory."


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    summary: str

    @property
    def module(self) -> str:
        return f"phantora_async.commands.{self.name}"


COMMANDS = (
    Command("run", "run a training script on emulated GPUs"),
    Command("join", "run servers of a run that another machine coordinates"),
    Command("replay", "execute a recorded run again, for another GPU, network or host"),
    Command("report", "show a run's report again"),
    Command("check", "say whether jobs keep within their budgets of memory and time, for CI"),
    Command("sweep", "try many configurations of a job, and say which are best in time, memory and money"),
    Command("advise", "say what to try with a recorded run, each with its simulated effect"),
    Command("compare", "say what differs between runs, and what that changed"),
    Command("goodput", "say what a long run keeps of its time when GPUs and nodes fail"),
    Command("validate", "compare emulated jobs with what real GPUs did"),
    Command("profile", "measure this machine: its host, or its GPU's kernels"),
    Command("bench", "measure the simulator itself"),
    Command("doctor", "say whether a run can work here, and what is lost with these versions"),
    Command("profiles", "list, show or copy GPU, cluster and host descriptions; merge tables of kernel times"),
    Command("net", "simulate network flows without a training script"),
    Command("warm", "list the interpreters that are kept for later runs, or end them"),
    Command("completion", "print what a shell needs to complete commands and options"),
)


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError and accepts no abbreviated options."""

    def __init__(self, *arguments: object, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)  # type: ignore[arg-type]

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses as argparse does. The error for an unknown option names the known option that was probably meant."""
        given, left = self.parse_known_args(args, namespace)
        if left:
            known = [flag for action in self.actions for flag in action.option_strings]
            likely = [meant(word.partition("=")[0], known) for word in left if word.startswith("-")]
            self.error("; ".join([f"unrecognized arguments: {' '.join(left)}", *filter(None, likely)]))
        return given

    @property
    def actions(self) -> list[argparse.Action]:
        """The actions of this parser for options, values and commands, in the order of --help."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        signed = "; a value that begins with - is given as --OPTION=VALUE" if "expected one argument" in message else ""
        raise UsageError(message, f"try: {self.prog} --help{signed}")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script."""
    _prepare_streams()
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what the command has made is removed
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def _prepare_streams() -> None:
    """Opens /dev/null for standard streams that the caller has closed, so that no other file gets their numbers.
    Characters that a stream's encoding lacks are written as escapes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(arguments: list[str]) -> int:
    """Runs one command line, prints the error if there is one, returns the exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()  # a failure to write shows here, and not while Python ends
        return code
    except BrokenPipeError:  # `... | head`
        return 128 + signal.SIGPIPE
    except (Exception, KeyboardInterrupt) as error:
        return _print(as_phantora_error(error))
    finally:
        for stream in (sys.stdout, sys.stderr):
            _give_up_unwritten(stream)


def _print(error: PhantoraError) -> int:
    with contextlib.suppress(OSError):
        sys.stdout.flush()  # the message comes last
    with contextlib.suppress(OSError):  # nobody reads it, or its disk is full
        print(short_lines(printable(f"error: {error.text}")), file=sys.stderr)
        if error.hint:
            print(short_lines(printable(f"hint: {error.hint}")), file=sys.stderr)
    return int(error.exit_code)


def _give_up_unwritten(stream: TextIO) -> None:
    """Gives up a stream that cannot be written to: Python would complain while it ends, and return an exit code of its
    own.
    """
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            stream.close()


def _run(arguments: list[str]) -> int:
    usage = "phantora-async COMMAND [arguments]"
    parser = Parser(prog="phantora-async", usage=usage, description=DESCRIPTION, epilog=_epilog())
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.version:
        print(f"phantora-async {VERSION}")
        return 0
    if given.command is None:
        parser.print_help()
        return 0
    chosen = next((command for command in COMMANDS if command.name == given.command), None)
    if chosen is None:
        raise UsageError(f"unknown command {given.command!r}", _likely_command(given.command))
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}", "change to another one: cd"
        ) from None
    # C code that imports modules, NumPy's for example, makes an ImportError of an interrupt.
    with interrupts_held(), garbage.importing():
        module = importlib.import_module(chosen.module)
    sub = parser_of(chosen)
    prepared = getattr(module, "with_ports", list)(given.arguments)
    return int(module.run(sub.parse_args(prepared)))


def parser_of(command: Command) -> Parser:
    module = importlib.import_module(command.module)
    parser = Parser(prog=f"phantora-async {command.name}", description=module.__doc__)
    module.add_arguments(parser)
    return parser


def whole_parser() -> Parser:
    """All commands with all their options, for shells that complete them."""
    parser = Parser(prog="phantora-async", description=DESCRIPTION)
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers()
    for command in COMMANDS:
        importlib.import_module(command.module).add_arguments(commands.add_parser(command.name, help=command.summary))
    return parser


def _likely_command(name: str) -> str:
    if name.endswith(".py"):
        return f"to run a script: phantora-async run {name}"
    return meant(name, [command.name for command in COMMANDS]) or "all commands: phantora-async --help"


def _epilog() -> str:
    lines = [f"  {command.name:<10} {command.summary}" for command in COMMANDS]
    example = "  phantora-async run -n 8 train.py --lr 3e-4"
    return "\n".join(["commands:", *lines, "", "example:", example, "", exit_codes_help()])
