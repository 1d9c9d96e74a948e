"""Prints why this machine cannot isolate servers, or nothing: tries the namespaces of a server in this process.

`phantora-async doctor` runs it. A run finds out by itself, with the servers' files, too (`run_namespaces`).
"""

from __future__ import annotations

from ..contract import namespaces
from .run_namespaces import forbidding_setting


def main() -> None:
    try:
        namespaces.unshare(namespaces.USER, "a user namespace")
        namespaces.unshare(namespaces.NET, "a net namespace")
        others = namespaces.MOUNTS | namespaces.UTS | namespaces.PID | namespaces.IPC
        namespaces.unshare(others, "mount, uts, pid and ipc namespaces")
    except OSError as error:
        print((error.strerror or str(error)) + forbidding_setting())
