"""Guesses before a run whether its script compiles: then the forker imports the compiler once for all ranks.

A script that mentions the compiler is taken to use it, unless it has run before with the same arguments and files
and did not: past runs are noted in the compile cache. A wrong guess costs time and memory, nothing else: the compiler
takes 1.6 s of CPU time to import.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..private.changes import changes
from . import graph_cache

COMPILER_MODULES = (
    "torch._inductor.compile_fx",
    "torch._dynamo.backends.distributed",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.choices",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cpp_wrapper_mps",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.mps",
    "torch._inductor.codegen.pallas",
    "torch._inductor.codegen.python_wrapper_mtia",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.codegen.xpu.xpu_combined_scheduling",
    "torch._inductor.hooks",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.fx.experimental.validator",
    "triton.tools.tensor_descriptor",
)
"""The modules that a rank imports when it first compiles."""
_SIGN = re.compile(r"torch[._]compile|flex_attention|\.compile\(\s*\)|from torch import .*\bcompile\b")
_SETTINGS = (".json", ".toml", ".yaml", ".yml")
_IN_SETTINGS = re.compile(r"(?m)^[^#\n]*compile")
_MOST_NBYTES = 1 << 20


def compiles(files: Iterable[str], arguments: Sequence[str]) -> bool:
    """Tells whether the script, an argument or a file with settings mentions the compiler. `files`: the script and its
    own modules. `arguments` may name files with settings. Imports nothing.
    """
    return (
        any("compile" in argument for argument in arguments)
        or any(_SIGN.search(_text(file)) for file in files)
        or any(_IN_SETTINGS.search(_text(argument)) for argument in arguments if argument.endswith(_SETTINGS))
    )


def _text(file: str) -> str:
    """Returns a file's text; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        path = Path(file)
        if path.stat().st_size <= _MOST_NBYTES:
            return path.read_text(errors="replace")
    return ""


class PastRuns:
    """The note on earlier runs of a script with the same files and arguments: whether a rank compiled in them."""

    def __init__(self, note: Path) -> None:
        self._note = note
        """A file that is there once the script has been run, and has text once a rank has compiled."""
        self._compiled = False

    def never_compiled(self) -> bool:
        """Tells whether there were runs in which no rank compiled. From now on, this run is noted too."""
        with contextlib.suppress(OSError):  # a full disk, say: the next run guesses again
            if self._note.exists():
                return self._note.stat().st_size == 0
            self._note.parent.mkdir(parents=True, exist_ok=True)
            self._note.touch()
        return False

    def note_compilation(self, install_callbacks: Any) -> Any:
        """Wraps the method that torch calls when it begins to compile: then the note says that this run compiles."""

        @functools.wraps(install_callbacks)
        @contextlib.contextmanager
        def compiling(self_: Any, *arguments: Any, **options: Any) -> Generator[None]:
            if not self._compiled:
                self._compiled = True
                with contextlib.suppress(OSError):
                    self._note.write_text("compiled\n")
            with install_callbacks(self_, *arguments, **options):
                yield

        return compiling


def past_runs(torch_version: str, files: Iterable[str], arguments: Sequence[str]) -> PastRuns | None:
    """Returns the note on earlier runs; None without a compile cache. Called in the forker, before torch is
    imported.
    """
    folder = os.environ.get(graph_cache.FOLDER)
    if not folder:
        return None
    settings = [argument for argument in arguments if argument.endswith(_SETTINGS)]
    words = [torch_version, *arguments, *(f"{file} {_state(file)}" for file in sorted({*files, *settings}))]
    name = hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:20]
    past = PastRuns(Path(folder, "runs", name))
    changes.when_imported("runs that compile", lambda names: names.change("install_callbacks", past.note_compilation))
    return past


def _state(file: str) -> str:
    """Returns a text that differs if the file does."""
    with contextlib.suppress(OSError):
        found = os.stat(file)
        return f"{os.path.realpath(file)} {found.st_size} {found.st_mtime_ns}"
    return ""
