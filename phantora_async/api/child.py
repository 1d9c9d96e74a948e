"""The process of one run that ``phantora_async.run`` has started. It ends with the process that has.

`python -c BOOTSTRAP FOLDER DESCRIPTOR PARENT`: pickled options come on stdin, the pickled ``Ended`` goes to the
descriptor, output to stdout and stderr.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.contract.process_setup import prctl
from phantora_async.errors import PhantoraError, as_phantora_error
from phantora_async.options import RunOptions

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run, as the child process reports it."""

    report: dict[str, Any] | None
    """The report; None if the run has not begun."""
    report_path: str
    run_dir: str
    error: PhantoraError | None


def main(descriptor: int, parent: int, interpreters: Path | None = None) -> None:
    """The main function of the process. `interpreters`: the folder of the interpreters that runs of a session share."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if whoever has started this ignores it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = pickle.loads(sys.stdin.buffer.read())
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as result:  # it has been killed meanwhile
        ended = _ended(options, interpreters)
        sys.stdout.flush()
        sys.stderr.flush()
        pickle.dump(ended, result)


def _ended(options: RunOptions, interpreters: Path | None) -> Ended:
    try:
        from phantora_async.api.execution import execute

        executed = execute(options, interpreters)
    except (Exception, KeyboardInterrupt) as error:
        return Ended(None, "", "", as_phantora_error(error))
    config = executed.config
    return Ended(executed.report, str(config.report), str(config.run_dir), executed.failure)
