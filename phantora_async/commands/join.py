"""Have this machine run servers of a run that another machine coordinates: `phantora-async run --listen HOST:PORT`.

The working directory, the script and the Python environment have to be at the same paths on all machines. The command
ends when the run has ended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from phantora_async.config import find_python
from phantora_async.errors import UsageError
from phantora_async.remote import wire

MOST_WAIT_S = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async join HOST:PORT [--token-file FILE] [options]"
    parser.add_argument("address", metavar="HOST:PORT", help="where the coordinator listens")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"file with the run's token (default: the environment variable {wire.TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--python", metavar="PATH", help="Python interpreter of the environment that has PyTorch (default: this one)"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for a coordinator that does not listen yet (default: %(default)g)",
    )
    parser.add_argument("--seat", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    token = wire.read_token(given.token_file)
    if not token:
        raise UsageError("no token", f"--token-file FILE, or set {wire.TOKEN_VARIABLE}")
    wire.address(given.address)
    if not 0 <= given.wait <= MOST_WAIT_S:
        raise UsageError(f"--wait {given.wait:g}: expected seconds, from 0 to {MOST_WAIT_S:,}")
    python = find_python(given.python)
    import uvloop

    from phantora_async.launch.joining import Joined

    uvloop.run(Joined(given.address, token, python, given.wait, given.seat, given.folder).run(_tell))
    return 0


def _tell(remark: str) -> None:
    print(f"phantora-async: {remark}", file=sys.stderr, flush=True)
