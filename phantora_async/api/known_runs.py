"""Answers a run from what is kept of an earlier one, and keeps its result (`phantora_async.known`)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from formats.files import read_bytes, write_whole
from phantora_async import compile_cache
from phantora_async.config import Config
from phantora_async.errors import NotWritten
from phantora_async.known import kept
from phantora_async.known.inputs import Surroundings, Unknown, inputs_of
from phantora_async.known.key import key_of
from phantora_async.known.notes import Notes
from phantora_async.wording import short

MOST_LOG_NBYTES = 4 << 20
"""The longest output of rank 0 that is kept with a result."""


def answer(config: Config) -> dict[str, Any] | None:
    """The report of an earlier run, after its output was shown and written; None: there is none, or the user wants
    another run.
    """
    found = None if config.options.again else kept.find(key_of(config))
    if found is None:
        return None
    report: dict[str, Any] = json.loads(found.report)
    report["run"]["kept"] = {"began": found.began, "run_dir": found.run_dir}
    if found.log:
        try:
            write_whole(config.log(0), found.log.encode(errors="surrogateescape"))
        except OSError as error:
            raise NotWritten(f"cannot write {short(config.log(0))}: {error.strerror}") from None
    if 0 in config.shown_ranks:
        print(found.log, end="", flush=True)
    print(
        f"phantora-async: nothing changed since {found.began}: kept result of {short(found.run_dir)}, --again runs it",
        file=sys.stderr,
    )
    return report


def keep(config: Config, report: str, notes: Notes | None, began_ns: int, key: str) -> None:
    """Keeps the result of this run, or tells the user why that is impossible. `began_ns`: the instant before it read
    anything, as `time.time_ns` has it. `key`: the run's `key_of` at that instant.
    """
    changed = key_of(config) != key
    why = "a file of an option, the environment or this package changed while it ran" if changed else ""
    if why := why or _why_not_kept(config, report, notes, began_ns):
        print(f"phantora-async: the result is not kept: {why}", file=sys.stderr)


def _why_not_kept(config: Config, report: str, notes: Notes | None, began_ns: int) -> str:
    if notes is None:
        return "nothing was noted of what it reads"
    folders = [compile_cache.default_folder(), *filter(None, [config.compile_cache])]
    folders.append(compile_cache.kernel_locks(config.compile_cache or folders[0]))
    around = Surroundings(
        began_ns=began_ns,
        run_dir=os.path.realpath(config.run_dir),
        own=tuple(str(folder) for folder in folders),
        python=str(config.python),
        private_network=config.network == "private",
    )
    try:
        log = read_bytes(config.log(0), MOST_LOG_NBYTES).decode(errors="surrogateescape")
    except FileNotFoundError:
        log = ""
    except OSError as error:
        return f"the log of rank 0 {error.strerror}"
    try:
        inputs = inputs_of(notes, around)
    except Unknown as reason:
        return str(reason)
    began = str(json.loads(report)["run"]["started"])
    return kept.keep(key_of(config), kept.Result(began, str(config.run_dir), report, log, inputs))
