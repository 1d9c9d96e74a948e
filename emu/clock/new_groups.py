"""`torch.distributed.new_group` takes each rank the same host time: what a member's call takes. A measured host's calls
take what they take; one that is left out takes as long as the latest other one.

All ranks call it for each group, and its members run a third more Python functions than the others. These wait for them
in the next call, if NCCL splits its communicators there. In a folded run, members of most groups have no process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

MEMBERS_FUNCTIONS, CODE_UNITS = 84, 47
"""Python functions of a member's call, and how long they are. Measured with PyTorch 2.15 and NCCL, by
`phantora_host_counts` before and after the call; with gloo 71 of 45, others 61 of 38 and 43 of 35.
"""


class HostTime(Protocol):
    """The functions of the hook library that count host time."""

    def measures_host(self) -> bool: ...
    def host_clock_ns(self) -> int: ...
    def host_works_ns(self, ns: int, /) -> None: ...
    def python_work(self, functions: int, units: int, /) -> None: ...


def install(
    hook: HostTime,
    leaves_out: Callable[[Sequence[int] | None], bool] | None,
    made: Callable[[Any], None] | None = None,
) -> None:
    """Replaces `new_group`, so that each call takes the same host time on every rank. Called once, in the forker.

    `leaves_out`: says of a group's ranks (None: all ranks) whether no process makes that group; None if all groups are
    made. `made`: is told what each call returns.
    """
    import torch.distributed

    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    real: Any = distributed_c10d.new_group
    taken_ns = 0
    """Host time, in ns, of the latest call whose group was made."""

    @functools.wraps(real)
    def new_group(*arguments: Any, **options: Any) -> Any:
        nonlocal taken_ns
        if leaves_out is not None and leaves_out(options.get("ranks", arguments[0] if arguments else None)):
            # A call that is left out takes as long as the latest one whose group was made: members are no slower than
            # others.
            if taken_ns:
                hook.host_works_ns(taken_ns)
            else:
                hook.python_work(MEMBERS_FUNCTIONS, CODE_UNITS)
            return torch.distributed.GroupMember.NON_GROUP_MEMBER
        began_ns = hook.host_clock_ns()
        if hook.measures_host():
            group = real(*arguments, **options)
        else:
            hook.python_work(MEMBERS_FUNCTIONS, CODE_UNITS)
            group = aside(real, *arguments, **options)
        taken_ns = hook.host_clock_ns() - began_ns
        if made is not None:
            aside(made, group)
        return group

    # Modules that were imported before have the function under its name, too.
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("new_group") is real:
            module.__dict__["new_group"] = new_group


def aside(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Calls `function`, whose Python functions take no host time (``frame_counter``)."""
    return function(*arguments, **options)
