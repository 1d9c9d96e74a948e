"""Programs that use no emulated GPU: JAX is refused, and what else the cause may be is told at a rank's end.

Without a GPU of its own JAX computes on the CPU, and the run looks like one that went well. Libraries that only look
whether JAX is there, or import it, never ask for its backends: asking is what is refused.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from ..private.changes import Names, changes

JAX = (
    "JAX is not emulated: the emulated GPUs serve PyTorch alone, and JAX would compute on this machine's CPU. Train "
    "with PyTorch, or set JAX_PLATFORMS=cpu if what JAX computes belongs to the host"
)
OTHER_LIBRARIES = {
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "cupy": "CuPy",
    "paddle": "PaddlePaddle",
    "mxnet": "MXNet",
}
_NO_GPU = ("", "-1", "none", "nodevfiles")
_ASKS_FOR_CPU = re.compile(
    r"--?(no[-_](accel|accelerator|cuda|gpus?)|(use[-_]|force[-_])?cpu([-_]only)?)(=(1|true|yes))?$"
    r"|.*(device|accelerator|platform|backend)s?=['\"]?cpu['\"]?$",
    re.IGNORECASE,
)
_CPU_OPTION = re.compile(r"--?[\w.-]*(device|accelerator|platform)s?$", re.IGNORECASE)


def install() -> None:
    """Makes JAX's backends refuse to start. Called once, in the forker."""
    changes.when_imported("JAX", _refuse)


def _refuse(bridge: Names) -> None:
    """Refuses the backends: all that computes, and all that asks for devices, asks for the backends first."""
    bridge.change("backends", _refused)


def _refused(backends: Any) -> Any:
    @functools.wraps(backends)
    def refused(*arguments: Any, **named: Any) -> Any:
        if not _is_for_the_host():
            raise RuntimeError(JAX)
        return backends(*arguments, **named)

    return refused


def _is_for_the_host() -> bool:
    """Tells whether the program, or its user, has chosen the CPU."""
    config = getattr(sys.modules.get("jax._src.config"), "config", None)
    chosen = getattr(config, "jax_platforms", None) or getattr(config, "jax_platform_name", None)
    return str(chosen).lower() == "cpu"


def causes(arguments: Sequence[str], environment: Mapping[str, str], modules: Container[str]) -> Iterator[str]:
    """Yields what may have kept the program from its GPU. `arguments`: the program's own."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip().lower() in _NO_GPU:
        yield f'CUDA_VISIBLE_DEVICES="{visible}" hides all GPUs'
    for name in ("ACCELERATE_USE_CPU", "JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        if environment.get(name, "").lower() in ("true", "1", "yes", "cpu"):
            yield f"{name}={environment[name]} asks for the CPU"
    for place, argument in enumerate(arguments):
        after = arguments[place + 1].lower() if place + 1 < len(arguments) else ""
        if _ASKS_FOR_CPU.match(argument):
            yield f"the argument {argument} asks for the CPU"
        elif _CPU_OPTION.match(argument) and after == "cpu":
            yield f"the argument {argument} {after} asks for the CPU"
    for module, library in OTHER_LIBRARIES.items():
        if module in modules:
            yield f"the script imports {library}; the emulated GPUs serve PyTorch alone"
