"""The messages between the command and the process that uses Ray: JSON, one message a line.

=========== ==================================================== ======================================================
the command fields                                               the process
=========== ==================================================== ======================================================
``plan``    ``cluster``, ``servers``, ``machines``,              ``planned``: ``host``, an address of this machine that
            ``environment``                                      nodes can reach, and ``servers`` of each machine
``place``   ``address``, ``token``, ``python``                   ``placed``: ``nodes``, the address of each machine
=========== ==================================================== ======================================================

The process says ``failed`` (``message``, ``hint``) at any time, and ``lost`` (``machine``, ``why``) once for an actor
that has ended before the run. It ends when its standard input does.
"""

from __future__ import annotations

import json
from typing import Any


def encode(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, **fields}).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    assert isinstance(found, dict), line
    return found
