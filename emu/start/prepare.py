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
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..clock import barriers, gloo_threads, new_groups, rendezvous, rpc_timeouts, time_functions, timeouts
from ..clock.rebinding import Bindings
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
from ..contract import installed, isolation
from ..contract.job import Job, RunPlace
from ..contract.policies import length_policy, loading_policy, routing_policy, shape_policy
from ..control import dispatcher
from ..folding.ranks import FoldedRanks
from ..interpreter import (
    attribute_reads,
    audit_hooks,
    call_sites,
    completed_work,
    frame_counter,
    garbage,
    heap,
    modules,
    thread_names,
    triton_programs,
)
from ..interpreter.group_names import GroupNames
from ..interpreter.hook_library import Hook, HookError
from ..interpreter.memory_holders import MemoryHolders
from ..interpreter.modules import Modules
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
    modules: Modules
    computed: dispatcher.DeviceFunctions
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


class Preparation:
    """A forker that is being prepared. Each step of ``IMPORT_STEPS`` and of ``STEPS`` is a method, which leaves here
    what later ones need.
    """

    job: Job
    """The run's job. The imports, whose results serve any job, do not read it."""
    version: str
    """The version of torch."""
    held: held_entries.HeldEntries | None
    checkpoints: Checkpoints
    hook: Hook
    numbers: Carriers
    compiles: bool
    """True if the script is expected to compile."""
    libraries: dispatcher.Libraries
    peaks: PeakMemory
    folded: FoldedRanks | None
    bound: Bindings
    """The names to which the functions of time are bound in what was imported."""
    clock: VirtualClock
    ranges: NvtxRanges
    loading: DataLoading
    reads: UncomputedReads
    computed: dispatcher.DeviceFunctions
    pages: int

    # ---- before torch is imported ----------------------------------------------------------------------------------

    def look_for_torch(self) -> None:
        self.version = check_torch()

    def put_audit_hooks_aside(self) -> None:
        audit_hooks.install()

    def share_compiled_code(self) -> None:
        graph_cache.install(self.version)
        split_graphs.install()
        kernels_once.install()
        loaded_code.install()
        skipped_work.install()
        keys.install()

    def watch_files(self) -> None:
        self.checkpoints = Checkpoints()
        self.checkpoints.install(imports.when_imported)
        libraries_of_numbers.install(imports.when_imported)

    def load_hook(self) -> None:
        self.hook = _load_hook()

    def find_carriers(self) -> None:
        self.numbers = Carriers(self.hook, imports.when_imported)

    # ---- imports ---------------------------------------------------------------------------------------------------

    def import_common_modules(self) -> None:
        _import_modules(COMMON_MODULES)

    def put_device_functions(self) -> None:
        self.computed = dispatcher.DeviceFunctions(self.hook)

    def note_time_functions(self) -> None:
        self.bound = time_functions.bindings()

    def freeze_imports(self) -> None:
        gc.collect()
        heap.return_large_blocks()
        gc.freeze()

    # ---- what this run needs ---------------------------------------------------------------------------------------

    def place_cache(self) -> None:
        graph_cache.place(self.version)

    def describe_device(self) -> None:
        _describe_device(self.hook, self.job)

    def hold_entries(self) -> None:
        self.held = held_entries.install(self.version, script_imports.scripts(self.job))

    def import_compilers(self) -> None:
        files, arguments = script_imports.read(self.job)[1], self.job.arguments
        self.compiles = compile_forecast.compiles(files, arguments)
        if self.compiles:
            past = compile_forecast.past_runs(self.version, files, arguments)
            self.compiles = past is None or not past.never_compiled()
        if self.compiles:
            _import_modules(compile_forecast.COMPILER_MODULES)

    def note_libraries(self) -> None:
        self.libraries = dispatcher.libraries_from_now_on()

    def import_users_modules(self) -> None:
        self.hook.open_ours()
        _preload(self.job.preload)
        if self.job.auto_preload:
            automatic.preload(self.job)

    def load_libraries(self) -> None:
        self.hook.learn_versions()
        changes.check_symbols()

    # ---- changes ---------------------------------------------------------------------------------------------------
    # A quirk of a framework that needs code has its module in emu.interpreter (or emu.clock, if it is about time), and
    # its call here.

    def start_keepers(self) -> None:
        keepers.start(self.job, self.hook)

    def prepare_compilers(self) -> None:
        triton_cache.install()
        if self.compiles:
            keys.compute(_capability(self.job))
            if self.held is not None:
                self.held.read()
        self.peaks = PeakMemory()
        compile_time.install(self.hook, self.peaks)

    def change_waits_of_groups(self) -> None:
        timeouts.install()
        rpc_timeouts.install()
        barriers.install()
        rendezvous.install()
        gloo_threads.install()

    def fold(self) -> None:
        self.folded = _fold(self.job, self.hook)
        if self.folded is not None:  # its processes make some of the groups, and name these by their own numbers
            new_groups.install(self.hook, self.folded.leaves_out)
        else:
            new_groups.install(self.hook, None, GroupNames(self.hook).made)

    def replace_time(self) -> None:
        processors.Processors(self.job.cpus, self.job.tensor_threads, self.hook.tensor_threads).install(
            imports.when_imported
        )
        self.clock, self.ranges = VirtualClock(self.hook), NvtxRanges(self.hook)
        time_functions.install(self.clock, self.bound)

    def change_loaders(self) -> None:
        job = self.job
        self.loading = DataLoading(self.hook, self.clock, loading_policy.parse(job.loaders), job.host_scale)
        self.loading.install()

    def compute_values(self) -> None:
        job, hook = self.job, self.hook
        policy, shapes = routing_policy.parse(job.routing, job.world_size), shape_policy.parse(job.data_shapes)
        lengths = length_policy.parse(job.lengths) if job.lengths else None
        self.reads = UncomputedReads(hook, job.values, job.loop_turns, self.checkpoints, self.numbers)
        self.computed.begin(job.float_limit_count, policy, shapes, lengths, self.reads, self.libraries)
        triton_programs.install(hook, CompiledKernels(hook, self.computed.control))

    def watch_programs(self) -> None:
        hook = self.hook
        self.ranges.install()
        call_sites.install(hook)
        call_sites.note_backward_passes(hook)
        modules.install(hook)
        frame_counter.install(hook)
        thread_names.install(hook)
        garbage.install(hook)
        completed_work.install(hook)
        attribute_reads.install(hook)
        unused_gpu.install()
        unfused_attention.install(hook.warn_once)
        exposed_ddp.install(hook.warn_once)

    def share_results(self) -> None:
        job, results = self.job, None
        if job.share_weights:
            client, shared = Client(job.runtime_dir), Path(isolation.ranks_folder(job.runtime_dir))
            installation.install(client, shared / "weights", job.world_size, self.hook)
            results = Results(client, shared / "shardings", job.world_size)
        propagation.install(self.hook, results)

    # ---- the last steps --------------------------------------------------------------------------------------------

    def look_at_private_names(self) -> None:
        for purpose in USED_BY_RANKS:
            changes.usable(purpose)

    def leave_out_handlers(self) -> None:
        _leave_out_handlers(self.hook)
        _keep_operators()

    def check_process(self) -> None:
        _check_single_threaded()
        _check_gpu_unasked()

    def freeze_memory(self) -> None:
        gc.collect()
        heap.return_large_blocks()
        self.hook.keep_data_stack()
        gc.freeze()
        gc.enable()

    def start_pages(self) -> None:
        self.pages = keepers.start_pages(self.job, self.hook)


class Step(NamedTuple):
    do: Callable[[Preparation], None]
    why: str
    """The reason why the step comes after those before it, and before those after it."""


IMPORT_STEPS = (
    Step(Preparation.look_for_torch, "A torch that cannot be emulated ends the run before anything is changed."),
    Step(
        Preparation.put_audit_hooks_aside,
        "Libraries add hooks when they are imported, those that torch needs among them, and nobody can remove one.",
    ),
    Step(
        Preparation.share_compiled_code,
        "torch reads the folder of its cache when it is imported, and each version has a folder of its own. Keys are "
        "changed after the cache has its folder.",
    ),
    Step(
        Preparation.watch_files, "Modules that write files are changed when they are imported, some of them by torch."
    ),
    Step(
        Preparation.load_hook,
        "torch loads libcuda and libcudart when it is imported: it must find the hook library in their place.",
    ),
    Step(
        Preparation.find_carriers,
        "The hook library gets the functions of modules written in C, torch's among them, as these are imported.",
    ),
    Step(Preparation.import_common_modules, "All steps of a run change torch's modules, or ask them."),
    Step(
        Preparation.put_device_functions,
        "They are put before the operations that torch has brought. They compute nothing before the job is known.",
    ),
    Step(
        Preparation.note_time_functions,
        "All objects are looked at, which takes time and memory when they are shared. Those that are frozen are not "
        "found.",
    ),
    Step(
        Preparation.freeze_imports,
        "The garbage collector leaves alone what was imported, so that it has little to look at when the rest is "
        "complete.",
    ),
)
"""The steps that are the same for all jobs: a warm interpreter does them once."""
STEPS = (
    Step(
        Preparation.place_cache,
        "The environment is the run's own, and names the cache of all versions.",
    ),
    Step(
        Preparation.describe_device,
        "Nothing has asked for a device before: the imports do not. Whatever is imported for the script may.",
    ),
    Step(
        Preparation.hold_entries,
        "The entries of earlier runs of this script are added to the cache before the compiler is imported.",
    ),
    Step(Preparation.import_compilers, "The compiler is torch's own, and is imported before libraries of the user."),
    Step(
        Preparation.note_libraries,
        "Operations that are registered from here on are not torch's own: libraries of the user bring them.",
    ),
    Step(
        Preparation.import_users_modules,
        "Functions that are replaced below are also replaced where these modules have bound them.",
    ),
    Step(
        Preparation.load_libraries,
        "The libraries of CUDA that torch needs are there: cuDNN is loaded once for all ranks, and what the hook "
        "library lacks in them is told.",
    ),
    Step(
        Preparation.start_keepers,
        "They are forked while there is one thread, and before functions are replaced, which they need as they are.",
    ),
    Step(
        Preparation.prepare_compilers,
        "Keys are made from the sources of the compilers, which have been imported if the script is expected to "
        "compile. Entries are read by these keys.",
    ),
    Step(Preparation.change_waits_of_groups, "torch.distributed is changed before folding wraps the same functions."),
    Step(
        Preparation.fold,
        "Its wrappers go around those of the step before. `new_group` asks it which groups no process makes.",
    ),
    Step(Preparation.replace_time, "Time functions are replaced wherever they are bound, so after the imports."),
    Step(Preparation.change_loaders, "Loaders wait on the virtual clock."),
    Step(
        Preparation.compute_values,
        "Functions are put before the operations of all libraries that have been imported, too. Files, carriers and "
        "compiled kernels tell them which values were not computed.",
    ),
    Step(Preparation.watch_programs, "These need only torch and the hook library; their order does not matter."),
    Step(Preparation.share_results, "Ranks ask the keepers for results."),
    Step(
        Preparation.look_at_private_names,
        "Ranks use these names at their start and end, where the first look at each would take host time.",
    ),
    Step(
        Preparation.leave_out_handlers,
        "Handlers of all modules that were imported have been registered, and none of the script's.",
    ),
    Step(Preparation.check_process, "Whatever imports have started or asked for is there now."),
    Step(Preparation.freeze_memory, "What ranks share is complete: the garbage collector leaves it alone from now on."),
    Step(
        Preparation.start_pages,
        "The process computes values, so it is forked when all is installed, and shares the frozen memory.",
    ),
)
"""The steps of a forker's preparation for its job, in their order."""


def import_torch() -> Preparation:
    """Loads the hook library and imports torch with what most scripts import, in the order of ``IMPORT_STEPS``. Raises
    CannotPrepare.
    """
    gc.disable()  # little of what is imported becomes garbage
    made = Preparation()
    for step in IMPORT_STEPS:
        step.do(made)
    return made


def prepare(made: Preparation, job: Job) -> Prepared:
    """Imports the modules of `--preload` and those that the script will import, and installs everything that changes
    the interpreter, in the order of ``STEPS``. Raises CannotPrepare.
    """
    made.job = job
    for step in STEPS:
        step.do(made)
    return Prepared(
        hook=made.hook,
        clock=made.clock,
        ranges=made.ranges,
        peaks=made.peaks,
        holders=MemoryHolders(made.hook),
        modules=Modules(made.hook),
        computed=made.computed,
        reads=made.reads,
        loading=made.loading,
        folders=_temporary_folders(),
        pages=made.pages,
        folded=made.folded,
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


_REINSTALL = "reinstall the package: pip install --force-reinstall phantora-async"


def _load_hook() -> Hook:
    """Loads the hook library. Called before torch is imported."""
    try:
        hook = Hook(str(installed.HOOK_LIBRARY))
        hook.take_place()
        hook.stand_in(f"libcudart.so.{(_torch_build() or {})['cuda'].partition('.')[0]}")
    except HookError as error:
        raise CannotPrepare(str(error), _REINSTALL) from None
    return hook


def _describe_device(hook: Hook, job: RunPlace) -> None:
    try:
        hook.load(job.device_file)
    except HookError as error:
        raise CannotPrepare(str(error), _REINSTALL) from None


def _capability(job: RunPlace) -> int:
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
