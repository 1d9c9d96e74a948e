"""Guesses before a run whether its script compiles: then the forker imports the compiler once for all ranks.

A wrong guess costs time and memory, nothing else: the compiler takes 1.6 s of CPU time to import.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

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
"""What a rank imports when it first compiles."""
_SIGN = re.compile(r"torch[._]compile|flex_attention|\.compile\(\s*\)|from torch import .*\bcompile\b")
_SETTINGS = (".json", ".toml", ".yaml", ".yml")
_IN_SETTINGS = re.compile(r"(?m)^[^#\n]*compile")
_MOST_NBYTES = 1 << 20


def compiles(files: Iterable[str], arguments: Sequence[str]) -> bool:
    """`files`: the script and its own modules. `arguments` may name files with settings. Imports nothing."""
    return (
        any("compile" in argument for argument in arguments)
        or any(_SIGN.search(_text(file)) for file in files)
        or any(_IN_SETTINGS.search(_text(argument)) for argument in arguments if argument.endswith(_SETTINGS))
    )


def _text(file: str) -> str:
    """Empty if it cannot be read."""
    with contextlib.suppress(OSError):
        path = Path(file)
        if path.stat().st_size <= _MOST_NBYTES:
            return path.read_text(errors="replace")
    return ""
