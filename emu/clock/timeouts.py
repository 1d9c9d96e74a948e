"""Timeouts of torch.distributed and of data loaders do not run out because the emulation is slow.

On a cluster a timeout says that something is broken. Here a step of a second may take minutes, and who waits for whom
is known: a program that is stuck is found and ended by name (docs/virtual-time.md). So every timeout that enters
c10d's C++ code, which counts real time, is lengthened by days; what comes out again is what the script gave. Waits
for a GPU with a timeout of their own, `work.wait(timeout)` on NCCL's, can be exact: theirs is virtual time.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

_MORE = timedelta(days=20)
"""A store waits in poll(2), whose milliseconds are an int: at most 24.8 days."""
_LONGEST = timedelta(days=4)
"""Longer ones are left as they are; they could not be told from those that were lengthened."""
_SHORTEST = timedelta(milliseconds=1)
_LOOKS_EVERY_S = 0.001
"""How often nccl2's own wait looks; ours does less often when it has waited long."""
_STORE_DEFAULT = timedelta(seconds=300)
_TCP_STORE_TIMEOUT = 4
"""Default and position of TCPStore's `timeout`."""


def lengthened(value: Any) -> Any:
    """A timeout as C++ gets it; anything else as it is. Zero and below mean "none" or "not set" there."""
    if isinstance(value, timedelta) and timedelta() < value < _LONGEST:
        return value + _MORE
    return value


def as_given(value: Any) -> Any:
    """The reverse."""
    if isinstance(value, timedelta) and _MORE < value < _MORE + _LONGEST:
        return value - _MORE
    return value


def install() -> None:
    """In the forker, once."""
    import torch.distributed
    import torch.utils.data.dataloader

    if torch.distributed.is_available():
        from torch._C import _distributed_c10d as c10d

        wait = c10d.Work.wait
        for owner in dict.fromkeys(_classes_in(c10d)):
            _lengthen_what_enters(owner)
        c10d.Work.wait = _waiting_in_virtual_time(wait, c10d.Work.wait)
        _lengthen_defaults_of_stores(c10d)
        _lengthen_python_watchdog()
    _wait_for_loader_workers(torch.utils.data.dataloader)


def _classes_in(owner: Any) -> Iterator[type]:
    """Classes of a module, and the classes in them."""
    for member in list(vars(owner).values()):
        if inspect.isclass(member) and member.__module__.startswith("torch."):
            yield member
            yield from _classes_in(member)


def _lengthen_what_enters(owner: type) -> None:
    """Every function and property of a C++ class whose signature, as pybind11 writes it, names a timedelta."""
    for name, member in list(vars(owner).items()):
        if isinstance(member, property):
            if member.fget is not None and "datetime.timedelta" in (member.fget.__doc__ or ""):
                setattr(owner, name, _property(member))
        elif callable(member) and "datetime.timedelta" in (member.__doc__ or ""):
            setattr(owner, name, _function(getattr(owner, name)))


def _function(enter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(enter)
    def patient(*arguments: Any, **options: Any) -> Any:
        return enter(*map(lengthened, arguments), **{name: lengthened(value) for name, value in options.items()})

    return patient


def _property(plain: property) -> property:
    get, put = plain.fget, plain.fset
    assert get is not None
    return property(
        lambda self: as_given(get(self)),
        None if put is None else lambda self, value: put(self, lengthened(value)),
        doc=plain.__doc__,
    )


def _waiting_in_virtual_time(plain: Callable[..., bool], patient: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(plain)
    def wait(work: Any, timeout: timedelta = timedelta()) -> bool:
        if timeout <= timedelta() and _blocks_always():
            timeout = as_given(getattr(work, "timeout", _LONGEST))  # older versions do not tell
        if timeout <= timedelta() or not _runs_on_gpu(work):
            return patient(work, timeout)
        began = now = time.monotonic()
        while not work.is_completed():
            if now - began >= timeout.total_seconds():
                return plain(work, _SHORTEST)  # fails as it would on a cluster
            time.sleep(max(_LOOKS_EVERY_S, (now - began) / 100))
            now = time.monotonic()
        return plain(work)

    return wait


def _blocks_always() -> bool:
    value = os.environ.get("TORCH_NCCL_BLOCKING_WAIT") or os.environ.get("NCCL_BLOCKING_WAIT") or "0"
    return value.lower() in ("1", "y", "yes", "t", "true")


def _runs_on_gpu(work: Any) -> bool:
    """NCCL's works alone can say how they ended."""
    try:
        work.get_future_result()
    except RuntimeError:
        return False
    return True


def _lengthen_defaults_of_stores(c10d: Any) -> None:
    """Stores that are made without a timeout have one of minutes."""
    for store in (c10d.FileStore, c10d.HashStore, c10d.TCPStore):
        store.__init__ = _store_maker(store.__init__, waits=store is c10d.TCPStore)


def _store_maker(make: Callable[..., None], waits: bool) -> Callable[..., None]:
    """`waits`: for the others, while it is made, so it must be told before."""

    @functools.wraps(make)
    def patient(self: Any, *arguments: Any, **options: Any) -> None:
        if waits and len(arguments) < _TCP_STORE_TIMEOUT and "timeout" not in options:
            options["timeout"] = _STORE_DEFAULT
        make(self, *arguments, **options)
        self.set_timeout(self.timeout)

    return patient


def _lengthen_python_watchdog() -> None:
    """The watchdog that newer versions have in Python aborts the process. It counts seconds as floats, too."""
    try:
        from torch.distributed._watchdog import _Watchdog
    except ImportError:
        return
    for name in ("stream_timeout", "cpu_timeout"):
        setattr(_Watchdog, name, _watch(getattr(_Watchdog, name)))


def _watch(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def patient(self: Any, timeout: float | timedelta, *arguments: Any) -> Any:
        if not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=timeout)
        return start(self, lengthened(timeout), *arguments)

    return patient


def _wait_for_loader_workers(dataloader: Any) -> None:
    """`DataLoader(timeout=...)`: its iterators wait as if none was given. They look every few seconds whether their
    workers live.
    """
    make = dataloader._MultiProcessingDataLoaderIter.__init__

    @functools.wraps(make)
    def patient(self: Any, loader: Any) -> None:
        make(self, loader)
        self._timeout = 0

    dataloader._MultiProcessingDataLoaderIter.__init__ = patient
