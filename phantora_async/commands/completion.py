"""Print what a shell needs to complete commands, options and names.

In ~/.bashrc: eval "$(phantora-async completion bash)"
"""

from __future__ import annotations

import argparse

from phantora_async.cli import Parser, whole_parser
from phantora_async.errors import EnvironmentUnusable

SHELLS = ("bash", "zsh", "tcsh")
FILES = ("FILE", "DIR", "PATH", "FOLDER", "SCRIPT")
"""The words in a value's name which mean that file names complete it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="whose completion to print")


def run(given: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise EnvironmentUnusable(
            "completion needs shtab, which is not installed", "pip install 'phantora-async[completion]'"
        ) from None
    parser = whole_parser()
    _say_what_completes(parser, shtab.FILE)
    print(shtab.complete(parser, given.shell))
    return 0


def _say_what_completes(parser: Parser, files: object) -> None:
    """Tells shtab how to complete each value of the parser and its commands: by names of descriptions, or by files."""
    from profiles import cluster_names, gpu_names

    names = {"gpu": gpu_names, "cluster": cluster_names}
    for action in parser.actions:
        if not action.option_strings and action.help == argparse.SUPPRESS:
            action.help = None  # shtab completes nothing that has no help
        commands = action.choices.values() if isinstance(action.choices, dict) else ()
        if inner := [one for one in commands if isinstance(one, Parser)]:
            for one in inner:
                _say_what_completes(one, files)
        elif action.dest in names:
            action.choices = names[action.dest]()
        elif any(word in f"{action.metavar}" for word in FILES):
            action.complete = files  # type: ignore[attr-defined]
