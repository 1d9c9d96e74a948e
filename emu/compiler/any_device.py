"""Inductor's compiled graphs are the same for every GPU of a server; only the GPU's number is written into them.

torch puts the number into a graph's cache key, too: rank 1 of a server would not find what rank 0 has compiled. Here
the key says "this process's GPU" in the number's place, and an entry remembers the number that it was compiled for. A
rank with another GPU puts its own number into the entry's code when it loads it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..private.changes import Names

OWN = "own"
"""Stands in keys in place of the number of the process's own GPU."""
_DEVICE = re.compile(r"""device\(type='cuda', index=(\d+)\)|(['"])cuda:(\d+)\2""")
"""A device in the code of an FX graph, as Python prints it or as a string."""
_IN_WRAPPERS = (
    *((f"{called}(", ")") for called in ("_DeviceGuard", "set_device", "get_raw_stream", "synchronize")),
    ("device(type='cuda', index=", ")"),
    ("'cuda:", "'"),
    ('"cuda:', '"'),
)
"""The text before and after the GPU's number in Inductor's wrapper code."""
_IN_KERNELS = "DeviceProperties(type='cuda', index={},"
"""The text by which the source of a Triton kernel names the GPU for which it was compiled."""
_AUTOGRAD_GRAPH = "_reduce_graph_module_for_cache_key"
_COMPILED_FOR = "phantora_device"
"""Attribute of a cached graph."""
_MOVED: set[int] = set()
"""GPUs for which graphs were compiled that this process runs on its own one."""


def name_own_device(code: str, own: int) -> str:
    """An FX graph's code, in which the GPU `own` has no number. It is only hashed, never run."""

    def rename(found: re.Match[str]) -> str:
        number = found[1] or found[3]
        return f"cuda:{OWN}" if int(number) == own else found[0]

    return _DEVICE.sub(rename, code)


def renumber(code: str, compiled_for: int, own: int) -> str:
    """Inductor's wrapper code, compiled for one GPU, for another. The kernels' own sources stay as they are: they tell
    the kernels apart, and what they say of the GPU holds for all GPUs of the server.
    """
    for before, after in _IN_WRAPPERS:
        code = code.replace(f"{before}{compiled_for}{after}", f"{before}{own}{after}")
    return code


def install_keys(names: Names, own_device: Callable[[], int]) -> None:
    """Changes the class that makes the keys of Inductor's and AOTAutograd's caches, so that they name no GPU's
    number.
    """
    names.change(
        "FxGraphCachePickler.__init__", functools.partial(_naming_own, names.get("BoxedDeviceIndex"), own_device)
    )
    names.change("_reduce_graph_module", functools.partial(_reducing, own_device))


def install_autograd_keys(names: Names, own_device: Callable[[], int]) -> None:
    """Does the same in AOTAutograd's class, which since torch 2.15 describes graphs in a way of its own."""
    if names.get(_AUTOGRAD_GRAPH) is not None:
        names.change(_AUTOGRAD_GRAPH, functools.partial(_reducing_for_autograd, own_device))


def load_on_own_device(names: Names, own_device: Callable[[], int], devices: Callable[[], int]) -> None:
    """Changes the class of Inductor's kernels, which loads their code on the GPU for which it was compiled: here it is
    loaded on the process's own GPU.
    """
    names.change("CachingAutotuner._make_launchers", functools.partial(_loading, own_device, devices))


def _loading(own_device: Callable[[], int], devices: Callable[[], int], make_launchers: Any) -> Any:
    @functools.wraps(make_launchers)
    def _make_launchers(self: Any) -> Any:
        if is_of_another_gpu(self, devices()):
            _move_kernel(self, own_device())
        return make_launchers(self)

    return _make_launchers


def is_of_another_gpu(kernel: Any, devices: int) -> bool:
    """Tells whether a kernel names a GPU that is not meant here: it belongs to a graph that was moved, or that GPU is
    one of a larger server (the process has `devices` of them). A kernel that names none is torch's own to place.
    """
    compiled_for = kernel.device_props.index
    return compiled_for is not None and (compiled_for in _MOVED or compiled_for >= devices)


def _move_kernel(kernel: Any, own: int) -> None:
    """Moves a kernel (an autotuner of torch's), whose code was compiled for another GPU, to the GPU `own`."""
    kernel.device_props = kernel.device_props._replace(index=own)
    kernel.triton_meta = {**kernel.triton_meta, "device": own}
    for result in kernel.compile_results:
        static = getattr(result, "reload_cubin_path", None)
        if static is not None and not result.kernel.cubin_path:
            static()  # it is in a folder that has the number of the GPU for which it was compiled
        result.compile_meta = {**result.compile_meta, "device": own}


def _naming_own(boxed: Any, own_device: Callable[[], int], create: Any) -> Any:
    import torch

    @functools.wraps(create)
    def __init__(self: Any, graph: Any, *rest: Any, **options: Any) -> None:
        create(self, graph, *rest, **options)
        own = own_device()
        self.dispatch_table[type(graph)] = self._reduce_graph_module  # each graph has a class of its own

        def reduce_device(device: torch.device) -> tuple[Any, tuple[str]]:
            is_own = device.type == "cuda" and device.index == own
            return str, (f"{device.type}:{OWN if is_own else device.index}",)

        def reduce_box(box: Any) -> tuple[Any, tuple[str]]:
            return (str, ("none",)) if box.value is None else reduce_device(torch.device("cuda", box.value))

        self.dispatch_table[torch.device] = reduce_device
        if boxed is not None:  # the GPU whose graph a CUDA graph was recorded for, or none yet
            self.dispatch_table[boxed] = reduce_box

    return __init__


def _reducing(own_device: Callable[[], int], reduce_graph: Any) -> Any:
    @functools.wraps(reduce_graph)
    def _reduce_graph_module(self: Any, graph: Any) -> Any:
        build, (data, imports) = reduce_graph(self, graph)
        return build, (_naming(data, own_device()), imports)

    return _reduce_graph_module


def _reducing_for_autograd(own_device: Callable[[], int], reduce_graph: Any) -> Any:
    @functools.wraps(reduce_graph)
    def _reduce_graph_module_for_cache_key(self: Any, graph: Any) -> Any:
        build, ((data, imports),) = reduce_graph(self, graph)
        return build, ((_naming(data, own_device()), imports),)

    return _reduce_graph_module_for_cache_key


def _naming(graph: dict[str, Any], own: int) -> dict[str, Any]:
    """Returns the attributes of a graph's module, with code in which the GPU `own` has no number."""
    return graph | {"_code": name_own_device(graph["_code"], own)}


def remember_device(graph: Any, own: int) -> None:
    """Notes in a compiled graph, before it is stored, for which GPU it was compiled."""
    setattr(graph, _COMPILED_FOR, own)


def for_own_device(graph: Any, own: int, code_hash: Callable[[str], str]) -> Any:
    """Returns a compiled graph as it was stored, made to run on the GPU `own`. `code_hash`: torch's function."""
    compiled_for = getattr(graph, _COMPILED_FOR, own)
    if compiled_for == own:
        return graph
    _MOVED.add(compiled_for)
    graph.source_code = renumber(graph.source_code, compiled_for, own)
    graph.cache_key = code_hash(graph.source_code)
    numbers = type(graph.device_idxs)(own if number == compiled_for else number for number in graph.device_idxs)
    graph.device_idxs = numbers
    setattr(graph, _COMPILED_FOR, own)
    return graph


def graphs_within(entry: Any) -> Iterator[Any]:
    """Yields Inductor's compiled graphs that an entry of AOTAutograd's cache holds itself; none of other entries."""
    for part in (getattr(entry, "compiled_fw", None), getattr(entry, "compiled_bw", None)):
        graph = getattr(part, "result", None)
        if hasattr(graph, "source_code"):
            yield graph


def to_store(graph: Any, own: int, code_hash: Callable[[str], str]) -> Any:
    """Returns a compiled graph that the program stores itself, as torch would have compiled it for the GPU `own`: it
    is loaded again without this module, also by a process that uses real GPUs. The kernels name their GPU, too. What
    comes with them for a quick start is left out where it is of another GPU; their code is found in Triton's cache.
    """
    compiled_for = getattr(graph, _COMPILED_FOR, own)
    if compiled_for == own:
        return graph
    graph.source_code = graph.source_code.replace(_IN_KERNELS.format(compiled_for), _IN_KERNELS.format(own))
    bundle = getattr(graph, "_triton_bundle", None)
    if bundle is not None:
        kernels = [dataclasses.replace(one, device=own) for one in bundle.kernel_artifacts]
        graph._triton_bundle = dataclasses.replace(bundle, kernel_artifacts=kernels, static_autotuners=[])
    return for_own_device(graph, own, code_hash)
