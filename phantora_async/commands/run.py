"""Run an unmodified training script on emulated GPUs, started as torchrun would start it."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from phantora_async.config.torchrun_options import TorchrunOptions
from phantora_async.errors import Interrupted, RunFailure, exit_codes_help
from phantora_async.options import OPTIONS, OUTPUT, Kind, Option, RunOptions
from phantora_async.wording import short

_REMARK = "--torchrun-remark"
"""The hidden option with which ``with_ports`` passes its remarks for the user."""
MOST_NAMED = 4
"""The most files of a trace that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "phantora-async run [-n WORLD | --nnodes N --nproc-per-node GPUS] [options] "
        "(SCRIPT | -m MODULE | --launcher -- COMMAND) [arguments]"
    )
    parser.epilog = exit_codes_help()
    defaults = {one.name: one.default for one in dataclasses.fields(RunOptions)}
    groups = {option.group: parser.add_argument_group(option.group) for option in OPTIONS.values()}
    for name, option in OPTIONS.items():
        groups[option.group].add_argument(*option.flags, dest=name, **_as_argparse_has_it(option, defaults[name]))
    groups[OUTPUT].add_argument("-v", "--verbose", action="store_true", help="print all that the report has to say")
    parser.add_argument(_REMARK, dest="remarks", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("script", nargs="?", metavar="SCRIPT", default="", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _as_argparse_has_it(option: Option, default: object) -> dict[str, Any]:
    arguments: dict[str, Any] = {"help": argparse.SUPPRESS if option.hidden else option.help, "default": default}
    match option.kind:
        case Kind.SWITCH:
            return arguments | {"action": "store_false" if default else "store_true"}
        case Kind.TEXTS:
            return arguments | {"action": "append", "default": [], "metavar": option.metavar}
        case Kind.COUNT:
            arguments["type"] = int
        case Kind.PORT:
            arguments |= {"type": int, "nargs": "?", "const": 0}
        case Kind.SECONDS:
            arguments["type"] = float
    if option.choices:
        return arguments | {"choices": option.choices}
    return arguments | {"metavar": option.metavar}


def with_ports(arguments: list[str]) -> list[str]:
    """Writes `--ui 80` as `--ui=80`, and `--ui SCRIPT` as `--ui=0 SCRIPT`: argparse would take the script for the port.
    torchrun's own options become remarks.
    """
    kinds = {flag: option.kind for option in OPTIONS.values() for flag in option.flags}
    separated: list[str] = []
    left = list(arguments)
    torchrun = TorchrunOptions()
    while left and left[0].startswith("-") and left[0] != "--":
        if torchrun.take(left):
            continue
        flag = left.pop(0)
        kind = kinds.get(flag)
        if kind is Kind.PORT:
            separated.append(f"{flag}={left.pop(0) if left and left[0].isdecimal() else 0}")
        else:
            separated.append(flag)
            if kind is not None and kind is not Kind.SWITCH and left:
                separated.append(left.pop(0))
    return [*separated, *(f"{_REMARK}={remark}" for remark in torchrun.remarks()), *left]


def options_of(given: argparse.Namespace) -> RunOptions:
    """The options that the command line states, as ``phantora_async.run`` takes them."""
    named = {name: getattr(given, name) for name in OPTIONS}
    return RunOptions(given.script, given.arguments, **named)


def run(given: argparse.Namespace) -> int:
    from phantora_async.api.execution import execute
    from phantora_async.report import terminal_report

    for remark in given.remarks:
        print(f"phantora-async: {remark}", file=sys.stderr)
    executed = execute(options_of(given))
    failure, config = executed.failure, executed.config
    ran_to_its_end = not isinstance(failure, RunFailure)
    if ran_to_its_end or isinstance(failure, Interrupted):
        print(terminal_report(executed.report, verbose=given.verbose))
    if ran_to_its_end and config.trace is not None:
        print(f"trace:  {', '.join(short(path) for path in config.trace.files()[:MOST_NAMED])}")
    if failure is not None:
        raise failure
    print(f"report: {executed.files}")
    print(f"more:   phantora-async report {short(config.report)} -v")
    return 0
