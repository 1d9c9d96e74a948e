"""Files that the program writes tensors to: how much of each is values that nobody computed.

`torch.save` and safetensors read a tensor after the other from the device. Each read would be a warning of its own and
say little of the file, so one record tells of the file as a whole. What was copied to the host before is remembered
until the step after the next one ends: a program that saves it later has read it for that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..interpreter.hook_library import Hook
from . import saved
from .elements import Flags
from .host_memory import reference

if TYPE_CHECKING:
    from torch import Tensor

IN_MEMORY = "a buffer in memory"
"""Stands in the place of a path."""


@dataclass(slots=True)
class _Copied:
    """A tensor that was copied to the host, and of which nobody computed some bytes."""

    storage: Any
    """A weak reference to the storage where it is now; None: it is in no tensor of the host's."""
    nbytes: int
    uncomputed: int
    line: str
    step: int
    saved: bool = False
    """True if a record has told it."""


@dataclass(slots=True)
class _Write:
    """One call that writes a file, on the thread that makes it."""

    uncomputed: int = 0


class Checkpoints:
    """The files and reads of one process."""

    def __init__(self) -> None:
        self._hook: Hook | None = None
        self._on_this_thread = threading.local()
        self._lock = threading.Lock()
        self._copied: list[_Copied] = []
        self._at: dict[int, _Copied] = {}
        """The tensors that were copied last, by the address of the storage on the host."""
        self._steps = 0
        self.unknown_elements: saved.Elements = lambda value: False
        """Says what of a number, an array or a small tensor nobody computed."""
        self.mark_loaded: Callable[[Any, Flags | None], Any] = lambda value, flags: value
        """Makes of a number or tensor that the program loads one that nobody computed; flags: these elements of it."""

    def install(self, when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
        """Changes the functions that write and load files. Called in the forker, before torch is imported.
        `when_imported` changes a module as soon as that is there.
        """
        when_imported("torch.serialization", self._change_torch)
        when_imported("safetensors.torch", self._change_safetensors)

    def start(self, hook: Hook) -> None:
        """Begins to send records. Called in the rank, before its script runs."""
        self._hook = hook
        hook.at_step(self._step_ends)

    # ---- reads -----------------------------------------------------------------------------------------------------

    @property
    def writing(self) -> bool:
        """Tells whether this thread writes a file, whose record will tell what it reads for that."""
        return getattr(self._on_this_thread, "write", None) is not None

    def note_written(self, uncomputed: int) -> None:
        """Notes that this thread reads device bytes of which nobody computed so many."""
        self._on_this_thread.write.uncomputed += uncomputed

    def note_read(self, target: Tensor | None, nbytes: int, uncomputed: int) -> None:
        """Notes that the program has read these bytes of a large tensor, into `target` if it is a tensor of the host's.
        The line is told later, unless they are saved.
        """
        if self._hook is None:
            return
        line = self._hook.line()
        storage = None if target is None else reference(target)
        with self._lock:
            self._copied.append(_Copied(storage, nbytes, uncomputed, line, self._steps))
            if target is not None:
                self._at[target.untyped_storage().data_ptr()] = self._copied[-1]

    def _step_ends(self) -> None:
        """Tells of reads that nothing saved in time. A program that saves what it has read does so before the next step
        ends."""
        self._steps += 1
        self._warn(self._steps - 1)

    def report(self) -> None:
        """Tells of all reads, at the rank's end."""
        self._warn(self._steps + 1)

    def _warn(self, before: int) -> None:
        """Warns of what was read before this step and not saved: in one sentence for each line of the script."""
        with self._lock:
            old = [one for one in self._copied if one.step < before]
            self._copied = [one for one in self._copied if one.step >= before]
            self._at = {at: one for at, one in self._at.items() if one.step >= before}
        by_line: dict[str, list[_Copied]] = {}
        for one in old:
            if not one.saved:
                by_line.setdefault(one.line, []).append(one)
        for line, read in by_line.items():
            assert self._hook is not None
            uncomputed, nbytes = sum(one.uncomputed for one in read), sum(one.nbytes for one in read)
            of = f"{len(read)} tensors" if len(read) > 1 else "a tensor"
            self._hook.warn_once(
                f"large read {line}",
                f"{line or 'the script'} reads values that were not computed: kernels that are not executed wrote "
                f"them, an optimizer's for example; {uncomputed:,} bytes of {of} of {nbytes:,} bytes are 0",
            )

    # ---- files -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self, tensors: Any, file: Any) -> Iterator[None]:
        """A context in which `tensors` are written to a file: a path, or a stream."""
        if self._hook is None or self.writing:
            yield  # in the forker, or by a call that another one makes
            return
        write = self._on_this_thread.write = _Write(self._saved(tensors))
        begin = _place(file)
        try:
            yield
        finally:
            self._on_this_thread.write = None
        path = _path(file)
        if write.uncomputed or path != IN_MEMORY:
            end = _place(file) if begin is not None else None
            written = end - begin if end is not None and begin is not None else _size(path)
            uncomputed = min(write.uncomputed, written) if written else write.uncomputed
            self._hook.checkpoint(begin or 0, written or uncomputed, uncomputed, path)

    def _saved(self, value: Any) -> int:
        """Returns how many bytes nobody computed in tensors of the host's that are written now: nobody is told of their
        reads.
        """
        uncomputed = 0
        for at in set(_storages(value)) if self._copied else ():
            with self._lock:
                one = self._at.get(at)
                if one is not None and one.storage is not None and not one.storage.expired():
                    uncomputed += one.uncomputed
                    one.saved = True
        return uncomputed

    def _change_torch(self, serialization: ModuleType) -> None:
        save = serialization.save

        @functools.wraps(save)
        def save_and_tell(obj: Any, f: Any, *arguments: Any, **named: Any) -> Any:
            obj, unknown = saved.for_file(obj, self.unknown_elements)
            with self._writing(obj, f):
                result = save(obj, f, *arguments, **named)
            saved.note(_path(f), unknown)
            return result

        load = serialization.load

        @functools.wraps(load)
        def load_and_mark(f: Any, *arguments: Any, **named: Any) -> Any:
            result, unknown = load(f, *arguments, **named), saved.noted(_path(f))
            return saved.from_file(result, unknown, self.mark_loaded) if unknown else result

        setattr(serialization, "save", save_and_tell)  # noqa: B010, as mypy knows no attributes of the module
        setattr(serialization, "load", load_and_mark)  # noqa: B010

    def _change_safetensors(self, safetensors: ModuleType) -> None:
        save_file = safetensors.save_file

        @functools.wraps(save_file)
        def save_and_tell(tensors: Any, filename: Any, *arguments: Any, **named: Any) -> Any:
            with self._writing(tensors, filename):
                return save_file(tensors, filename, *arguments, **named)

        setattr(safetensors, "save_file", save_and_tell)  # noqa: B010


def _storages(value: Any) -> Iterator[int]:
    """Yields addresses of the host's storages in what is saved: tensors in containers, and modules."""
    import torch

    unseen = [value]
    while unseen:
        one = unseen.pop()
        if isinstance(one, torch.Tensor):
            if one.device.type == "cpu" and one.layout == torch.strided:
                yield one.untyped_storage().data_ptr()
        elif isinstance(one, Mapping):
            unseen.extend(one.values())
        elif isinstance(one, list | tuple | set):
            unseen.extend(one)
        elif isinstance(one, torch.nn.Module):
            unseen.extend([*one.parameters(), *one.buffers()])


def _streams(file: Any) -> Iterator[Any]:
    """Yields the stream, and those that it wraps."""
    for _ in range(4):
        if file is not None:
            yield file
            file = getattr(file, "raw", getattr(file, "stream", None))


def _path(file: Any) -> str:
    """Returns the path, or the path of the file behind a stream; IN_MEMORY if there is none."""
    if isinstance(file, str | os.PathLike):
        return os.path.abspath(os.fspath(file))
    names = (getattr(stream, "name", None) for stream in _streams(file))
    return next((os.path.abspath(os.fspath(name)) for name in names if isinstance(name, str | os.PathLike)), IN_MEMORY)


def _place(file: Any) -> int | None:
    """Returns how far a stream is; None for a path, or for what cannot tell: a pipe, a wrapper."""
    if not isinstance(file, str | os.PathLike):
        for stream in _streams(file):
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                return int(stream.tell())
    return None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
