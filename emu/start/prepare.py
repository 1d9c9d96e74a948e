"""Prepares the forker once for all ranks: checks the environment, imports torch and installs what the ranks need.

All servers and ranks are forked from the prepared interpreter, so what it has read and imported is in memory once,
whatever the number of ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import re
import sys
import tempfile
import weakref
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..clock import barriers, new_groups, rendezvous, rpc_timeouts, time_functions, timeouts
from ..clock.virtual_clock import VirtualClock
from ..compiled.launches import CompiledKernels
from ..compiler import (
    compile_forecast,
    compile_time,
    graph_cache,
    held_entries,
    kernels_once,
    keys,
    loaded_code,
    skipped_work,
    split_graphs,
    triton_cache,
)
from ..contract import isolation
from ..contract.job import Job
from ..contract.policies import loading_policy, routing_policy, shape_policy
from ..control import dispatcher
from ..folding.ranks import FoldedRanks
from ..interpreter import (
    attribute_reads,
    call_sites,
    completed_work,
    frame_counter,
    garbage,
    heap,
    thread_names,
    triton_programs,
)
from ..interpreter.hook_library import Hook, HookError
from ..interpreter.memory_holders import MemoryHolders
from ..interpreter.nvtx_ranges import NvtxRanges
from ..interpreter.peak_memory import PeakMemory
from ..keeping.client import Client
from ..loading import processors
from ..loading.iterators import DataLoading
from ..preload import automatic, script_imports
from ..private import imports
from ..private.changes import changes
from ..reads import libraries as libraries_of_numbers
from ..reads.carriers import Carriers
from ..reads.checkpoints import Checkpoints
from ..reads.uncomputed import UncomputedReads
from ..sharding import propagation
from ..sharding.results import Results
from ..weights import installation
from . import exposed_ddp, keepers, supported, unfused_attention, unused_gpu

COMMON_MODULES = (
    "torch.distributed",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.nn.parallel",
    "torch.optim",
    "torch.profiler",
    "torch.utils.checkpoint",
    "torch.utils.data.distributed",
    "torch._dynamo",
    "multiprocessing.pool",
    "concurrent.futures.process",
    "concurrent.futures.thread",
    "logging.handlers",
    "argparse",
    "asyncio",
    "ssl",
)
"""The modules that training scripts import anyway: a rank that imports one itself needs time and private memory for
it."""


USED_BY_RANKS = (
    "memory peaks",
    "memory statistics of accelerators",
    "memory pools",
    "memory holders",
    "memory that was missing",
    "waiting for threads",
    "exit handlers",
    "interpreters by their path",
    "daemon threads",
    "modules as scripts",
)
"""Purposes of private names that ranks use at their start and end: they are looked at here, where it takes no host
time.
"""


class CannotPrepare(Exception):
    """Raised if this environment cannot run emulated ranks. The message says why, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Prepared:
    """The objects that every rank inherits from the forker."""

    hook: Hook
    clock: VirtualClock
    ranges: NvtxRanges
    peaks: PeakMemory
    holders: MemoryHolders
    computed: dispatcher.Installed
    """Our functions in PyTorch's dispatcher."""
    reads: UncomputedReads
    loading: DataLoading
    folders: dict[tempfile.TemporaryDirectory[str], weakref.finalize[..., object]]
    """Temporary folders that imported modules have made, each with the finalizer that removes it when the interpreter
    ends.
    """
    pages: int
    """The id of the process that fills pages of host memory; 0: there is none."""
    folded: FoldedRanks | None = None
    """The folded ranks: who plays whom; None: every rank has a process."""


def prepare(job: Job) -> Prepared:
    """Loads the hook library, imports torch and the modules of `--preload`, and installs everything that changes the
    interpreter. Raises CannotPrepare.
    """
    gc.disable()  # little of what is imported becomes garbage
    version = check_torch()
    held = held_entries.install(version, script_imports.scripts(job))
    graph_cache.install(version)
    split_graphs.install()
    kernels_once.install()
    loaded_code.install()
    skipped_work.install()
    keys.install()
    checkpoints = Checkpoints()
    checkpoints.install(imports.when_imported)
    libraries_of_numbers.install(imports.when_imported)
    hook = _load_hook(job)
    numbers = Carriers(hook, imports.when_imported)
    files = script_imports.read(job)[1]
    compiles = compile_forecast.compiles(files, job.arguments)
    past = compile_forecast.past_runs(version, files, job.arguments) if compiles else None
    compiles = compiles and not (past is not None and past.never_compiled())
    _import_modules(COMMON_MODULES + (compile_forecast.COMPILER_MODULES if compiles else ()))
    libraries = dispatcher.libraries_from_now_on()
    _preload(job.preload)
    if job.auto_preload:
        automatic.preload(job)
    hook.learn_versions()
    changes.check_symbols()
    keepers.start(job, hook)
    # A quirk of a framework that needs code has its module in emu.interpreter (or emu.clock, if it is about time), and
    # its call here.
    triton_cache.install()
    if compiles:
        keys.compute(_capability(job))
        if held is not None:
            held.read()
    peaks = PeakMemory()
    compile_time.install(hook, peaks)
    timeouts.install()
    rpc_timeouts.install()
    barriers.install()
    rendezvous.install()
    folded = _fold(job, hook)
    new_groups.install(hook, folded.leaves_out if folded is not None else None)
    processors.Processors(job.cpus).install(imports.when_imported)
    clock, ranges = VirtualClock(hook), NvtxRanges(hook)
    time_functions.install(clock)
    loading = DataLoading(hook, clock, loading_policy.parse(job.loaders), job.host_scale)
    loading.install()
    policy, shapes = routing_policy.parse(job.routing), shape_policy.parse(job.data_shapes)
    reads = UncomputedReads(hook, job.values, job.loop_turns, checkpoints, numbers)
    computed = dispatcher.install(
        hook, dispatcher.INTEGER_LIMIT, job.float_limit_count, policy, shapes, reads, libraries
    )
    triton_programs.install(hook, CompiledKernels(hook, computed.control))
    ranges.install()
    call_sites.install(hook)
    call_sites.note_backward_passes(hook)
    frame_counter.install(hook)
    thread_names.install(hook)
    garbage.install(hook)
    completed_work.install(hook)
    attribute_reads.install(hook)
    unused_gpu.install()
    unfused_attention.install(hook.warn_once)
    exposed_ddp.install(hook.warn_once)
    results = None
    if job.share_weights:
        client, shared = Client(job.runtime_dir), Path(isolation.ranks_folder(job.runtime_dir))
        installation.install(client, shared / "weights", job.world_size, hook)
        results = Results(client, shared / "shardings", job.world_size)
    propagation.install(hook, results)
    for purpose in USED_BY_RANKS:
        changes.usable(purpose)
    _leave_out_handlers(hook)
    _check_single_threaded()
    _check_gpu_unasked()
    _keep_operators()
    gc.collect()
    heap.return_large_blocks()
    hook.keep_data_stack()
    gc.freeze()
    gc.enable()
    pages = keepers.start_pages(job, hook)
    return Prepared(
        hook, clock, ranges, peaks, MemoryHolders(hook), computed, reads, loading, _temporary_folders(), pages, folded
    )


def _fold(job: Job, hook: Hook) -> FoldedRanks | None:
    if job.folding is None:
        return None
    from ..folding import groups  # its classes are torch's, which the hook library must come before

    return groups.install(job.folding, job.simulated, hook)


def check_torch() -> str:
    """Returns torch's version, without importing it: a torch without CUDA never calls the hook library.

    Raises CannotPrepare if it is no CUDA build, or too old.
    """
    install = f"install a CUDA build (no GPU needed): {sys.executable} -m pip install torch"
    known = _torch_build()
    if known is None:
        raise CannotPrepare(f"PyTorch is not installed for {sys.executable}", install)
    if "cuda" not in known:
        build = "a ROCm build" if "hip" in known else "a CPU-only build"
        raise CannotPrepare(
            f"the PyTorch of {sys.executable} (version {known.get('__version__', 'unknown')}) is {build}; "
            "emulation needs a CUDA build",
            f"{install} (not from an index for CPU or ROCm builds)",
        )
    found = known.get("__version__", "unknown")
    try:
        supported.check_torch(found)
    except supported.Unsupported as error:
        raise CannotPrepare(str(error), error.hint) from None
    return found


def _torch_build() -> dict[str, str] | None:
    """Returns the fields of torch's version.py, `cuda`, `__version__` ...; None if torch is not installed."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    version = Path(next(iter(spec.submodule_search_locations))) / "version.py"
    text = version.read_text() if version.is_file() else ""
    return dict(re.findall(r"^(\w+)\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE))


def _load_hook(job: Job) -> Hook:
    """Loads the hook library. Called before torch is imported."""
    try:
        hook = Hook(job.hook)
        hook.load(job.device_file)
        hook.stand_in(f"libcudart.so.{(_torch_build() or {})['cuda'].partition('.')[0]}")
    except HookError as error:
        raise CannotPrepare(str(error), "reinstall the package: pip install --force-reinstall phantora-async") from None
    return hook


def _capability(job: Job) -> int:
    """Returns the compute capability of the described GPU: 90 for 9.0."""
    described = dict(line.partition("=")[::2] for line in Path(job.device_file).read_text().splitlines())
    return 10 * int(described["cc_major"]) + int(described["cc_minor"])


def _import_modules(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):  # an older or newer torch may lack some
            importlib.import_module(name)


def _preload(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise CannotPrepare(
                f"--preload {name}: {type(error).__name__}: {error}",
                f"check that {sys.executable} can import {name}",
            ) from None


def _leave_out_handlers(hook: Hook) -> None:
    """Makes the handlers of modules that the forker has imported, at an interpreter's end and around forks, take no
    host time.

    It imports some modules on a guess (the compiler: see `compile_forecast`), and guesses otherwise when the script has
    run before. At the end and before a fork, the handlers run in the reverse order of their registration, and after it
    in this order: those of the script lie outside of these two, and count.
    """
    atexit.register(hook.aside, 1)
    goes_on = functools.partial(hook.aside, -1)
    os.register_at_fork(before=functools.partial(hook.aside, 1), after_in_parent=goes_on, after_in_child=goes_on)


def _keep_operators() -> None:
    """Keeps operators registered when an interpreter ends: torch.library would take every one back. A rank ends without
    that, as it would write to thousands of pages that ranks share.
    """
    for finalizer in _finalizers():
        found = finalizer.peek()
        if found is not None and found[1].__module__ == "torch.library":
            finalizer.atexit = False


def _finalizers() -> list[weakref.finalize[..., object]]:
    """Returns the finalizers that wait for their object's end."""
    names = changes.usable("finalizers")
    return [] if names is None else list(names.get("_registry"))


def _temporary_folders() -> dict[tempfile.TemporaryDirectory[str], weakref.finalize[..., object]]:
    found = {}
    for finalizer in _finalizers():
        ends = finalizer.peek()
        if ends is not None and isinstance(ends[0], tempfile.TemporaryDirectory):
            found[ends[0]] = finalizer
    return found


def _check_single_threaded() -> None:
    """Checks that this process has a single thread. A fork copies only the calling thread: what another thread has
    locked would stay locked for ever.
    """
    running = os.listdir("/proc/self/task")
    if len(running) > 1:
        names = sorted(Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in running)
        raise CannotPrepare(
            f"the imported modules have started threads ({', '.join(names)}), which forked ranks would lack",
            "leave out the --preload module that starts threads, or use --no-auto-preload",
        )


def _check_gpu_unasked() -> None:
    """Checks that this process has not asked for GPUs: PyTorch lets no process use a GPU whose parent has asked. Only a
    child can tell.
    """
    names = changes.usable("untouched GPUs")
    if names is None:
        return
    asked = names.get("_is_in_bad_fork")
    child = os.fork()
    if child == 0:
        os._exit(int(asked()))
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise CannotPrepare(
            "the imported modules have asked for GPUs, and PyTorch lets no forked rank use one after that",
            "leave out the --preload module that asks for GPUs when it is imported, or use --no-auto-preload",
        )
