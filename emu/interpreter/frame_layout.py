"""Finds out where CPython keeps the frames of a thread: byte offsets, by which the hook library reads them.

Calls of NCCL and CUDA come without Python's lock, and taking it there could deadlock: torch holds locks of its own. A
thread that has released the lock does not change its own frames, so it may read them. Their layout differs between
versions of CPython (`Include/internal/pycore_frame.h`). So it is searched for here, in frames whose contents Python
tells; where it cannot be found, no frames are read.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import types
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import TypeVar

_T = TypeVar("_T")
_OBJECT_FRAME = 24
"""The offset, in a frame object, of the pointer to the interpreter's internal frame: behind the object's head and
f_back.
"""
_TAG = 7
"""The low bits of a pointer, which CPython may use as flags."""
_THREAD_NBYTES, _FRAME_NBYTES, _CODE_NBYTES = 1024, 80, 256
_MOST_BEFORE_LOCALS = 128
"""The most bytes of a frame that are before its local variables."""


class UnknownLayout(Exception):
    """Raised if this interpreter's frames cannot be read: it differs from those that this module was written for."""


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Offsets in bytes, in the order in which the hook library takes them."""

    thread_link: int
    """Offset, in a thread's state, of the pointer to its newest frame, or (3.11 and 3.12) to a structure that has this
    pointer.
    """
    link_frame: int
    """Offset, in that structure, of the pointer to the newest frame; -1 if there is no such structure."""
    frame_previous: int
    frame_code: int
    frame_instruction: int
    code_start: int
    """Offset, in a code object, of its instructions: a frame's instruction minus this address is its f_lasti."""
    code_filename: int
    code_function: int
    frame_locals: int = -1
    """Offset of a frame's first local variable; -1 if it is not known."""

    def offsets(self) -> tuple[int, ...]:
        """Returns the offsets in the order in which the hook library takes them."""
        return astuple(self)


def find_layout() -> FrameLayout:
    """Returns the layout of this interpreter. Raises UnknownLayout; OSError if the process cannot read its own
    memory.
    """
    memory = os.open("/proc/self/mem", os.O_RDONLY)  # a wrong address is an error there, not the process's end
    try:
        return _Finder(memory).outer()
    finally:
        os.close(memory)


class _Finder:
    """Compares the memory of two known frames with what Python tells of them."""

    def __init__(self, memory: int) -> None:
        self._memory = memory

    def outer(self) -> FrameLayout:
        """Calls ``_find`` with the frame of this call, which cannot change meanwhile."""
        return self._find(sys._getframe())

    def _find(self, caller: types.FrameType) -> FrameLayout:
        here = sys._getframe()
        thread_state = ctypes.pythonapi.PyThreadState_Get
        thread_state.restype = ctypes.c_void_p
        # This frame is the newest one only while no other Python function runs: read first, compare later.
        thread = int(thread_state())
        state = struct.unpack(f"{_THREAD_NBYTES // 8}Q", os.pread(self._memory, _THREAD_NBYTES, thread))
        links = {}
        for place, word in enumerate(state):
            if word and not word & _TAG:
                try:
                    links[8 * place] = struct.unpack("2Q", os.pread(self._memory, 16, word))
                except (OSError, OverflowError, struct.error):
                    continue
        newest, older = self._word(id(here) + _OBJECT_FRAME), self._word(id(caller) + _OBJECT_FRAME)
        direct = [(8 * place, -1) for place, word in enumerate(state) if word == newest]
        through = [(at, 8 * place) for at, words in links.items() for place, word in enumerate(words) if word == newest]
        # Where the word is the frame itself, a frame's first word may happen to lead to it as well.
        thread_link, link_frame = _only(direct or through, "the newest frame")
        code, frame = caller.f_code, self._words(older, _FRAME_NBYTES)
        frame_code = _only((at for at, word in frame.items() if word & ~_TAG == id(code)), "a frame's code")
        words = self._words(newest, _FRAME_NBYTES)
        previous = _only((at for at, word in words.items() if word == older), "the frame before")
        instruction, start = _only(
            (
                (at, word - id(code) - caller.f_lasti)
                for at, word in frame.items()
                if 0 < word - id(code) - caller.f_lasti < _CODE_NBYTES
            ),
            "a frame's instruction",
        )
        parts = self._words(id(code), _CODE_NBYTES)
        layout = FrameLayout(
            thread_link=thread_link,
            link_frame=link_frame,
            frame_previous=previous,
            frame_code=frame_code,
            frame_instruction=instruction,
            code_start=start,
            code_filename=_only((at for at, word in parts.items() if word == id(code.co_filename)), "a code's file"),
            code_function=min((at for at, word in parts.items() if word == id(code.co_qualname)), default=-1),
            frame_locals=self._locals(older, newest),
        )
        self._check(layout, older, caller)
        return layout

    def _locals(self, *frames: int) -> int:
        """The offset of the first local variable, which is this object in each of these frames."""
        at = [
            [at for at, word in self._words(frame, _MOST_BEFORE_LOCALS).items() if word & ~_TAG == id(self)]
            for frame in frames
        ]
        return min(set(at[0]).intersection(*at[1:]), default=-1)

    def _check(self, layout: FrameLayout, address: int, frame: types.FrameType | None) -> None:
        """Reads all frames from `address` outwards. Raises UnknownLayout unless they are what Python tells."""
        while frame is not None:
            code = self._word(address + layout.frame_code) & ~_TAG
            if code == id(frame.f_code):
                at = self._word(address + layout.frame_instruction) - code - layout.code_start
                names = [self._word(code + place) for place in (layout.code_filename, layout.code_function)]
                if at != frame.f_lasti or names != [id(frame.f_code.co_filename), id(frame.f_code.co_qualname)]:
                    raise UnknownLayout("frames read from memory differ from those that Python tells")
                frame = frame.f_back
            # Else it is the frame of a call from C, which Python does not show.
            address = self._word(address + layout.frame_previous)
            if not address and frame is not None:
                raise UnknownLayout("fewer frames are in memory than Python tells")

    def _word(self, address: int) -> int:
        try:
            return int(struct.unpack("Q", os.pread(self._memory, 8, address))[0])
        except (OSError, OverflowError, struct.error):
            raise UnknownLayout(f"no memory at {address:#x}") from None

    def _words(self, address: int, nbytes: int) -> dict[int, int]:
        return {offset: self._word(address + offset) for offset in range(0, nbytes, 8)}


def _only(found: Iterable[_T], what: str) -> _T:
    values = list(found)
    if len(values) != 1:
        raise UnknownLayout(f"{what} is found at {len(values)} places instead of one")
    return values[0]
