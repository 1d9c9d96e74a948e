"""Which of the Python functions that a rank enters are work of the program's.

The hook library counts them on the thread that enters them, each by the length of its code (emu/hook/core/frames.c).
Some cost nothing: the emulator's own, and functions of the standard library that wait for real things: how often these
run depends on the machine. What compiles or imports code is left out with everything below it: it happens once, on
whichever rank comes first, and not at all where an earlier run has left its result.
"""

from __future__ import annotations

import os
import sys

from .code_owner import OUR_FOLDER, STDLIB_FOLDER
from .frame_layout import UnknownLayout, find_layout
from .hook_library import Hook

COUNTED, FREE, ASIDE = 1, 2, 3

_WAITING = (
    "threading.py", "queue.py", "selectors.py", "socket.py", "ssl.py", "subprocess.py", "asyncio/", "concurrent/",
    "multiprocessing/",
)  # fmt: skip
"""Files of the standard library."""
_REMOVING = (
    ("weakref.py", "WeakKeyDictionary.__init__.<locals>.remove"),
    ("weakref.py", "WeakValueDictionary.__init__.<locals>.remove"),
    ("_weakrefset.py", "WeakSet.__init__.<locals>._remove"),
)
"""What the standard library does when an object dies, which may be when garbage is collected."""
_COMPARING = (
    ("/torch/distributed/tensor/_dtensor_spec.py", "DTensorSpec.__eq__"),
    ("/torch/distributed/tensor/_dtensor_spec.py", "DTensorSpec._check_equals"),
    ("/torch/distributed/device_mesh.py", "DeviceMesh.__eq__"),
    ("<string>", "__create_fn__.<locals>.__eq__"),
)
"""How often a table compares keys depends on their hashes, and those on addresses. The last is that of a dataclass."""
_COMPILING = (
    "/torch/_dynamo/convert_frame.py",
    "/torch/_dynamo/bytecode_transformation.py",
    "/torch/_inductor/compile_fx.py",
    "/torch/_inductor/codecache.py",
    "/torch/_inductor/async_compile.py",
    "/torch/_functorch/_aot_autograd/autograd_cache.py",
    "/triton/compiler/",
    "/triton/runtime/build.py",
    "/triton/runtime/autotuner.py",
)
_COMPILING_FUNCTIONS = (
    ("/torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.precompile"),
    ("/torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.autotune_to_one_config"),
    ("/torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.benchmark_all_configs"),
    ("/torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner._precompile_worker"),
    ("/triton/runtime/jit.py", "JITFunction._do_compile"),
    ("/torch/_subclasses/fake_tensor.py", "dump_cache_stats"),  # at the end, of what was compiled or propagated here
)
_FRESH_GRAPH = (
    "/torch/_functorch/_aot_autograd/runtime_wrappers.py",
    "EffectTokensWrapper.post_compile.<locals>.inner_fn",
)
"""Around a graph that was compiled in this process, but not around one from the cache."""
_POLLING_FUNCTIONS = (
    ("/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._get_data"),
    ("/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data"),
)
"""They look again every few seconds of real time whether their data has come."""


def install(hook: Hook) -> None:
    """In the forker, once torch is imported. If this interpreter does not let us, it says so in the log."""
    for file, function, kind in rules():
        hook.frame_rule(file, function, kind)
    try:
        layout = find_layout()
    except (UnknownLayout, OSError) as error:
        print(f"the interpreter's own work costs no host time: {error}", file=sys.stderr)
        return
    if not hook.count_frames(layout.offsets()):
        print("the interpreter's own work costs no host time: this interpreter exports too little", file=sys.stderr)


def rules() -> list[tuple[str, str, int]]:
    """(file, function, class): see phantora_frame_rule. The first that fits wins."""
    return [
        (os.path.join(OUR_FOLDER, "control", "control_tensors.py"), "ControlTensors.unrecorded", ASIDE),
        (os.path.join(OUR_FOLDER, "reads", "uncomputed.py"), "", ASIDE),
        (os.path.join(OUR_FOLDER, "hostbench", "__main__.py"), "", FREE),
        (os.path.join(OUR_FOLDER, "hostbench", ""), "", COUNTED),
        (OUR_FOLDER + "/", "", FREE),
        ("<frozen runpy>", "", FREE),
        ("<frozen importlib", "", ASIDE),
        *((os.path.join(STDLIB_FOLDER, name), "", FREE) for name in _WAITING),
        *((os.path.join(STDLIB_FOLDER, file), function, FREE) for file, function in _REMOVING),
        *(("*" + file, function, FREE) for file, function in _COMPARING),
        *(("*" + file, function, ASIDE) for file, function in (*_COMPILING_FUNCTIONS, *_POLLING_FUNCTIONS)),
        *(("*" + file, "", ASIDE) for file in _COMPILING),
        ("*" + _FRESH_GRAPH[0], _FRESH_GRAPH[1], FREE),
    ]
