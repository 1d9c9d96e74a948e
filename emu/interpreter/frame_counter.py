"""Decides which of the Python functions that a rank enters are work of the program's.

The hook library counts them on the thread that enters them, each by the length of its code (emu/hook/threads/frames.c).
Some cost nothing: the emulator's own with what they use of the standard library, and functions of it that wait for real
things: how often these run depends on the machine. What compiles or imports code is left out with everything below it:
it happens once, on whichever rank comes first, and not at all where an earlier run has left its result.
"""

from __future__ import annotations

import os
import sys

from .code_owner import OUR_FOLDER, STDLIB_FOLDER
from .frame_layout import UnknownLayout, find_layout
from .hook_library import Hook

COUNTED, FREE, ASIDE, OURS, LIBRARY = 1, 2, 3, 4, 5
"""The classes of functions, with the numbers that they have in emu/hook/threads/frames.c."""

_WAITING = (
    "threading.py",
    "queue.py",
    "selectors.py",
    "socket.py",
    "ssl.py",
    "subprocess.py",
    "asyncio/",
    "concurrent/",
    "multiprocessing/",
)
"""Files of the standard library whose functions wait for real things."""
_LOOKING_UP = (
    ("posixpath.py", "_joinrealpath"),  # a turn for each folder of a path
    ("<frozen posixpath>", "_joinrealpath"),
    ("importlib/", ""),  # ... for each installed package: entry points
    ("linecache.py", ""),  # the text of a line that a warning names
    ("gettext.py", ""),  # ... for each language that the environment names; argparse asks
    ("tempfile.py", "_candidate_tempdir_list"),
    ("tempfile.py", "_get_default_tempdir"),
    ("subprocess.py", "Popen._execute_child"),  # ... for each of the environment's variables
    ("shutil.py", "which"),  # ... for each folder of PATH
)
"""Functions whose work depends on where files are, and on what is installed and set on this machine."""
_WARNING = tuple(
    (file, function)
    for file in ("warnings.py", "_py_warnings.py")  # the latter from Python 3.14 on
    for function in ("WarningMessage.__init__", "_showwarnmsg")
)
"""Functions that show a warning, which frameworks let one rank do (torch.distributed.barrier): others would come
earlier, and ranks of one role differ.
"""
_OF_ENVIRONMENT = (
    *(("<frozen os>", f"_Environ.{method}") for method in ("__iter__", "__getitem__", "__setitem__", "copy")),
    *(("<frozen os>", f"_createenviron.<locals>.{function}") for function in ("encode", "decode")),
    *(("<frozen os>", f"_fscodec.<locals>.{function}") for function in ("fsencode", "fsdecode")),
    *(("<frozen _collections_abc>", f"{view}View.__iter__") for view in ("Items", "Keys", "Values")),
)
"""Functions that run for each of the environment's variables."""
_REMOVING = (
    ("weakref.py", "WeakKeyDictionary.__init__.<locals>.remove"),
    ("weakref.py", "WeakValueDictionary.__init__.<locals>.remove"),
    ("_weakrefset.py", "WeakSet.__init__.<locals>._remove"),
)
"""Functions of the standard library that run when an object dies, which may be when garbage is collected."""
_COMPARING = (
    ("/torch/distributed/tensor/_dtensor_spec.py", "DTensorSpec.__eq__"),  # ... which compares placements
    ("/torch/distributed/device_mesh.py", "DeviceMesh.__eq__"),
)
_COMPARING_RECORDS = ("<string>", "__create_fn__.<locals>.__eq__")
"""The comparison of a dataclass. How often a table compares keys depends on their hashes, and those on addresses, which
move with the length of a path or of an environment variable.
"""
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
    ("/torch/_dynamo/utils.py", "record_compilation_metrics"),  # ... also after a call whose kernels were tuned here
)
_FRESH_GRAPH = (
    (
        "/torch/_functorch/_aot_autograd/runtime_wrappers.py",
        "EffectTokensWrapper.post_compile.<locals>.inner_fn",  # around each of its calls
    ),
    ("/torch/_dynamo/metrics_context.py", "RuntimeMetricsContext.__init__"),  # for its kernels or its first call
)
"""Functions that run for a graph that was compiled in this process, but not for one from the cache."""
_READS = (
    ("uncomputed.py", ""),
    ("host_memory.py", ""),
    ("checkpoints.py", "Checkpoints.note_read"),
    ("checkpoints.py", "Checkpoints._saved"),
    ("checkpoints.py", "Checkpoints._warn"),
)
"""Functions that handle reads of values that nobody computed. What these call of PyTorch in Python depends on whether a
new tensor has the address of an old one, which is another in each run.
"""
_FOLDING = ("ranks", "stores", "gloo", "work")
"""Modules that do work in a folded run which a run with all processes would not do. Only their work around the
program's calls is free.
"""
_POLLING_FUNCTIONS = (
    ("/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._get_data"),
    ("/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data"),
    ("/tqdm/_monitor.py", "TMonitor.run"),
)
"""Functions that look again every few seconds of real time whether their data has come, or whether a bar stands still.
"""
_SHORTENING = (
    ("/torch/_logging/_internal.py", "make_module_path_relative"),
    ("/torch/_logging/_internal.py", "_make_module_path_relative"),
)
"""Functions that try each folder of `sys.path` in turn: how many there are depends on how the environment was made."""


def install(hook: Hook) -> None:
    """Makes the hook library count Python functions. Called once, in the forker, when torch is imported. If this
    interpreter does not let us, it says so in the log.
    """
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
    """Returns the rules as (file, function, class): see phantora_frame_rule. The first that fits wins."""
    return [
        (os.path.join(OUR_FOLDER, "control", "control_tensors.py"), "ControlTensors.unrecorded", ASIDE),
        *((os.path.join(OUR_FOLDER, "reads", file), function, ASIDE) for file, function in _READS),
        *((os.path.join(OUR_FOLDER, "folding", f"{name}.py"), "", ASIDE) for name in _FOLDING),
        (os.path.join(OUR_FOLDER, "folding", "shards.py"), "Shards.note", ASIDE),
        (os.path.join(OUR_FOLDER, "folding", "gathered.py"), "Gathered.note", ASIDE),
        *(
            (os.path.join(OUR_FOLDER, "folding", "checkpoints.py"), f"Checkpoints.{function}", ASIDE)
            for function in ("_announce", "_replace", "_note")
        ),
        (os.path.join(OUR_FOLDER, "folding", "dispatched.py"), "Dispatched._run", ASIDE),
        (os.path.join(OUR_FOLDER, "clock", "new_groups.py"), "aside", ASIDE),
        (os.path.join(OUR_FOLDER, "interpreter", "audit_hooks.py"), "Aside.__call__", ASIDE),
        (os.path.join(OUR_FOLDER, "hostbench", "__main__.py"), "", FREE),
        (os.path.join(OUR_FOLDER, "hostbench", ""), "", COUNTED),
        (os.path.join(OUR_FOLDER, "compiler", "skipped_work.py"), "_remembered.<locals>.place", FREE),
        # The folder comes after the functions and files of it that count otherwise.
        (OUR_FOLDER + "/", "", OURS),
        ("<frozen runpy>", "", FREE),
        ("<frozen importlib", "", ASIDE),
        *((os.path.join(STDLIB_FOLDER, file), function, FREE) for file, function in _REMOVING),
        *((_in_stdlib(file), function, ASIDE) for file, function in (*_LOOKING_UP, *_WARNING)),
        *((os.path.join(STDLIB_FOLDER, name), "", FREE) for name in _WAITING),
        *((file, function, FREE) for file, function in _OF_ENVIRONMENT),
        ("*" + _COMPARING_RECORDS[0], _COMPARING_RECORDS[1], FREE),
        *(("*" + file, function, ASIDE) for file, function in _COMPARING),
        *(
            ("*" + file, function, ASIDE)
            for file, function in (*_COMPILING_FUNCTIONS, *_POLLING_FUNCTIONS, *_SHORTENING)
        ),
        *(("*" + file, "", ASIDE) for file in _COMPILING),
        *(("*" + file, function, FREE) for file, function in _FRESH_GRAPH),
        *((f"*/{packages}/", "", COUNTED) for packages in ("site-packages", "dist-packages")),
        *((file, "", LIBRARY) for file in (STDLIB_FOLDER + "/", "<frozen ", "<string>")),
    ]


def _in_stdlib(file: str) -> str:
    return file if file.startswith("<") else os.path.join(STDLIB_FOLDER, file)
