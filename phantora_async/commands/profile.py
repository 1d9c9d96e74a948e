"""Measure this machine: its host, or what its GPU takes for the kernels of a training script."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from types import ModuleType

from phantora_async.errors import UsageError


@dataclass(frozen=True, slots=True)
class Form:
    """One thing that this command can measure. `commands.profiling.<module>` has its options and runs it."""

    name: str
    """The option that asks for it; SCRIPT asks for the form of that name."""
    arguments: str
    """The arguments that follow the option in the usage line."""
    module: str

    def load(self) -> ModuleType:
        return importlib.import_module(f"phantora_async.commands.profiling.{self.module}")


SCRIPT = "SCRIPT"
FORMS = (
    Form("--host", "[options]", "host"),
    Form("--sweep", "[options]", "sweep"),
    Form("--missing", "REPORT [options]", "missing"),
    Form(SCRIPT, "[arguments]", "script"),
)
"""Each module has `add_arguments(group)`, which adds the option that asks for it, and `run(arguments) -> exit code`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    prog = "phantora-async profile"
    parser.usage = "\n       ".join(
        f"{prog} [options] {form.name} {form.arguments}"
        if form.name == SCRIPT
        else f"{prog} {form.name} {form.arguments}"
        for form in FORMS
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write what was measured")
    parser.add_argument("--python", metavar="PATH", help="interpreter of the environment that has PyTorch")
    own: dict[str, dict[str, tuple[str, object]]] = {}
    for form in FORMS:
        before = set(parser._actions)
        form.load().add_arguments(parser.add_argument_group(f"profile {form.name}"))
        own[form.name] = {
            action.dest: (action.option_strings[-1], action.default)
            for action in parser._actions
            if action not in before
        }
    parser.add_argument("script", nargs="?", metavar="SCRIPT", default="", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(options_of_forms=own)


def run(given: argparse.Namespace) -> int:
    form = _chosen(given)
    for other, options in given.options_of_forms.items():
        for dest, (option, default) in options.items():
            if other != form.name and getattr(given, dest) != default:
                raise UsageError(f"{option} is no option of profile {form.name}", f"it is an option of profile {other}")
    return int(form.load().run(given))


def _chosen(given: argparse.Namespace) -> Form:
    asked = [form for form in FORMS if form.name != SCRIPT and getattr(given, form.name.removeprefix("--"))]
    if given.script and not asked:
        asked = [form for form in FORMS if form.name == SCRIPT]
    if not asked:
        names = ", ".join(form.name for form in FORMS)
        raise UsageError(f"say what to measure: {names}", "phantora-async profile --help")
    if given.script and asked[0].name != SCRIPT:
        raise UsageError(f"profile {asked[0].name} takes no script, found {given.script}")
    if len(asked) > 1:
        raise UsageError(f"{asked[0].name} and {asked[1].name} exclude each other: choose one")
    return asked[0]
