"""A process has each of Inductor's Triton kernels once, however many of its graphs launch it.

torch does so only for kernels that the process compiles itself. Of those that come with a graph from the cache, each
graph has its own copy: each is loaded, and prepared again when it is first launched. Then a rank's first step would
take the longer, the more of its graphs others have compiled before.
"""

from __future__ import annotations

import functools
from typing import Any

from ..private.changes import Names, changes
from . import any_device


def install() -> None:
    """Makes a process have each of Inductor's kernels once. Called once, in the forker, before torch compiles."""
    changes.when_imported("kernels of several graphs", _change)


def _change(names: Names) -> None:
    names.change("AsyncCompile.triton", functools.partial(_once, names, {}))


_Kernels = dict[tuple[int, str, str], Any]
"""The kernels, or what will return them, by the GPU, the kernel's name and its source."""


def _once(names: Names, kernels: _Kernels, load: Any) -> Any:
    awaited: Any = names.get("CodeCacheFuture")
    of_cache: Any = names.get("StaticAutotunerFuture")
    ready, forget = names.get("CompiledTritonKernels.get"), names.get("CompiledTritonKernels.remove_future")

    class Awaited(awaited):
        """A kernel that is being compiled, which is then stored with its graph. The graph launches the first one."""

        def __init__(self, kernel: Any, first: Any) -> None:
            self._kernel, self._first = kernel, first

        def result(self, *arguments: Any, **named: Any) -> Any:
            self._kernel = _ready(self._kernel, *arguments, **named)
            return self._kernel if self._first is None else _ready(self._first)

    def _ready(kernel: Any, *arguments: Any, **named: Any) -> Any:
        return kernel.result(*arguments, **named) if isinstance(kernel, awaited) else kernel

    @functools.wraps(load)
    def triton(self: Any, kernel_name: str, source_code: str, *rest: Any, **named: Any) -> Any:
        import torch

        key = (torch.cuda.current_device(), kernel_name, source_code)
        first, found = kernels.get(key), ready(source_code)
        if isinstance(found, of_cache):
            if first is not None:
                # The kernel that came with a cached graph would be loaded and prepared again when it is first launched.
                forget(source_code)
                return _ready(first)
            if any_device.is_of_another_gpu(found.static_autotuner, torch.cuda.device_count()):
                on_own_device(found.static_autotuner, key[0])
        kernel = load(self, kernel_name, source_code, *rest, **named)
        if isinstance(kernel, awaited):
            kernel = Awaited(kernel, first)
            kernels.setdefault(key, kernel)
            return kernel
        return kernels.setdefault(key, kernel)

    return triton


def on_own_device(kernel: Any, own: int) -> None:
    """A kernel that came with a cached graph is to be loaded on the GPU of the process that compiled it, which this
    process may not have.
    """
    if kernel.device_props.index is not None:
        kernel.device_props = kernel.device_props._replace(index=own)
    for result in kernel.compile_results:
        if result.compile_meta.get("device") is not None:
            result.compile_meta["device"] = own
