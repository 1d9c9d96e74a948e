"""Timeouts of torch.distributed and of data loaders do not run out because the emulation is slow.

On a cluster a timeout means that something is broken. Here a step of a second may take minutes, and the coordinator
knows who waits for whom: it finds a program that is stuck and ends it (docs/virtual-time.md). So every timeout that is
passed to c10d's C++ code, which counts real time, is lengthened by days; what the script reads back is what it gave.
Waits for a GPU with a timeout of their own, `work.wait(timeout)` of NCCL's works, end exactly, and so do monitored
barriers: theirs is virtual time.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from ..private.changes import Names, changes
from . import monitored_barriers, rendezvous

_ADDED = timedelta(days=20)
"""The time that is added to a timeout. A store waits in poll(2), whose milliseconds are an int: at most 24.8 days."""
_LONGEST = timedelta(days=4)
"""The longest timeout that is lengthened. Longer ones are left as they are: read back, they could not be told from
lengthened ones.
"""
_SHORTEST = timedelta(milliseconds=1)
_POLL_S = 0.001
"""The time between two looks of NCCL's own wait whether the work is done, in s; ours looks less often when it has
waited long.
"""
_STORE_DEFAULT = timedelta(seconds=300)
_exact: list[str] = []
"""Names of classes, or their beginnings, whose timeouts are not lengthened."""
_TCP_STORE_MASTER_POSITION, _TCP_STORE_TIMEOUT_POSITION = 3, 4
"""The positions of the arguments `is_master` and `timeout` of TCPStore."""


def install() -> None:
    """Lengthens timeouts on their way into torch's C++ code. Called once, in the forker."""
    import torch.distributed

    if torch.distributed.is_available():
        changes.install("timeouts", _lengthen_all)
        changes.install("Python's watchdog", _lengthen_python_watchdog)
    changes.install("timeouts of data loaders", lambda names: names.change("__init__", _ignoring_timeout))


def _lengthen_all(names: Names) -> None:
    """Lengthens the timeouts that c10d's classes take. Their documentation says which of their functions take
    timeouts.
    """
    from torch._C import _distributed_c10d as c10d

    real_wait, real_barrier = names.get("Work.wait"), names.get("ProcessGroup.monitored_barrier")
    for owner in dict.fromkeys(_classes_in(c10d)):
        _lengthen_arguments(owner)
    names.change("Work.wait", lambda lengthening: _waiting_in_virtual_time(real_wait, lengthening))
    names.change(
        "ProcessGroup.monitored_barrier", lambda lengthening: monitored_barriers.watching(real_barrier, lengthening)
    )
    for store in ("FileStore", "HashStore", "TCPStore"):
        waits = store == "TCPStore"
        names.change(f"{store}.__init__", functools.partial(_lengthening_init, waits_in_init=waits))


def exact_for_nccl() -> None:
    """Lets process groups of NCCL get the timeouts that they are given: their watchdogs count virtual time. Called in
    the rank.
    """
    _exact.append("ProcessGroupNCCL")


def _is_exact(owner: Any) -> bool:
    return any(type(owner).__qualname__.startswith(name) for name in _exact)


def _lengthened(value: Any) -> Any:
    """Returns a timeout as C++ gets it; other values are returned as they are. Zero and below mean "none" or "not set"
    in C++.
    """
    if isinstance(value, timedelta) and timedelta() < value < _LONGEST:
        return value + _ADDED
    return value


def _as_given(value: Any) -> Any:
    """Returns the timeout that was given, from the one that C++ has: the reverse of `_lengthened`."""
    if isinstance(value, timedelta) and _ADDED < value < _ADDED + _LONGEST:
        return value - _ADDED
    return value


def _classes_in(owner: Any) -> Iterator[type]:
    """Yields the classes of a module, and the classes in them."""
    for member in list(vars(owner).values()):
        if inspect.isclass(member) and member.__module__.startswith("torch."):
            yield member
            yield from _classes_in(member)


def _lengthen_arguments(owner: type) -> None:
    """Lengthens the arguments of every method and property of a C++ class whose signature, as pybind11 writes it, names
    a timedelta.
    """
    for name, member in list(vars(owner).items()):
        if isinstance(member, property):
            if member.fget is not None and "datetime.timedelta" in (member.fget.__doc__ or ""):
                setattr(owner, name, _lengthening_property(member))
        elif callable(member) and "datetime.timedelta" in (member.__doc__ or ""):
            setattr(owner, name, _lengthening_function(getattr(owner, name)))


def _lengthening_function(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def lengthening(*arguments: Any, **options: Any) -> Any:
        if arguments and _is_exact(arguments[0]):
            return real(*arguments, **options)
        return real(*map(_lengthened, arguments), **{name: _lengthened(value) for name, value in options.items()})

    return lengthening


def _lengthening_property(real: property) -> property:
    """Wraps a property: what one reads of it is the timeout that was given. Some are floats in C++, which cannot tell
    milliseconds beside days, so the given one is kept.
    """
    get, put = real.fget, real.fset
    assert get is not None
    kept: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()
    """For each object: the lengthened timeout as C++ has it, and what C++ makes of the one that was given."""

    def as_given(self: Any) -> Any:
        value = get(self)
        lengthened, given = kept.get(self, (None, None))
        return given if value == lengthened else _as_given(value)

    def lengthen(self: Any, value: Any) -> None:
        assert put is not None
        put(self, value)
        if not _is_exact(self):
            given = get(self)
            put(self, _lengthened(value))
            kept[self] = get(self), given

    return property(as_given, None if put is None else lengthen, doc=real.__doc__)


def _waiting_in_virtual_time(real: Callable[..., bool], lengthening: Callable[..., bool]) -> Callable[..., bool]:
    """Makes the replacement of `Work.wait`: with a timeout, it waits in virtual time for works on a GPU. `time` is
    virtual here, as in the script.
    """

    @functools.wraps(real)
    def wait(work: Any, timeout: timedelta = timedelta()) -> bool:
        if timeout <= timedelta() and _every_wait_blocks():
            timeout = _as_given(getattr(work, "timeout", _LONGEST))  # older versions do not tell
        if timeout <= timedelta() or not _runs_on_gpu(work):
            return lengthening(work, timeout)
        began_s = now_s = time.monotonic()
        while not work.is_completed():
            if now_s - began_s >= timeout.total_seconds():
                return real(work, _SHORTEST)  # fails as it would on a cluster
            time.sleep(max(_POLL_S, (now_s - began_s) / 100))
            now_s = time.monotonic()
        return real(work)

    return wait


def _every_wait_blocks() -> bool:
    """Tells whether NCCL's setting makes every wait block, with the group's timeout."""
    value = os.environ.get("TORCH_NCCL_BLOCKING_WAIT") or os.environ.get("NCCL_BLOCKING_WAIT") or "0"
    return value.lower() in ("1", "y", "yes", "t", "true")


def _runs_on_gpu(work: Any) -> bool:
    """Tells whether the work runs on a GPU: only NCCL's works have a future that tells how they ended."""
    try:
        work.get_future_result()
    except RuntimeError:
        return False
    return True


def _lengthening_init(real: Callable[..., None], waits_in_init: bool) -> Callable[..., None]:
    """Stores that are made without a timeout have a default of minutes. `waits_in_init`: the store waits for others
    while it is made, so it must get its timeout as an argument.
    """

    @functools.wraps(real)
    def lengthening(self: Any, *arguments: Any, **options: Any) -> None:
        if waits_in_init:
            if len(arguments) < _TCP_STORE_TIMEOUT_POSITION and "timeout" not in options:
                options["timeout"] = _STORE_DEFAULT
            rendezvous.wait_for_server(*_address(arguments, options))
        real(self, *arguments, **options)
        self.set_timeout(self.timeout)

    return lengthening


def _address(arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the host and the port to which a TCPStore with these arguments connects; None and None if it serves."""
    masters = arguments[_TCP_STORE_MASTER_POSITION : _TCP_STORE_MASTER_POSITION + 1] or (options.get("is_master"),)
    if masters[0]:
        return None, None
    host = arguments[0] if arguments else options.get("host_name")
    return host, arguments[1] if len(arguments) > 1 else options.get("port")


def _lengthen_python_watchdog(names: Names) -> None:
    """Lengthens the timeouts of the watchdog in Python that newer versions of torch have, which aborts the process. It
    takes seconds as floats, too.
    """
    for name in ("stream_timeout", "cpu_timeout"):
        names.change(name, _lengthening_watch)


def _lengthening_watch(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def lengthening(self: Any, timeout: float | timedelta, *arguments: Any) -> Any:
        if not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=timeout)
        return real(self, _lengthened(timeout), *arguments)

    return lengthening


def _ignoring_timeout(real: Callable[..., None]) -> Callable[..., None]:
    """Makes the replacement of `DataLoader(timeout=...)`: its iterators wait as if none was given. They still notice
    within seconds when a worker process has ended.
    """

    @functools.wraps(real)
    def init(self: Any, loader: Any) -> None:
        real(self, loader)
        self._timeout = 0

    return init
