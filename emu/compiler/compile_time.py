"""Compiling takes no virtual time, and candidates are chosen by the cost model instead of being timed.

What a rank compiles depends on what others have compiled before, in this run or an earlier one. So nothing of it may
enter virtual time, or a run's result would depend on its cache: an emulated run is one on a cluster with warm caches.
While a rank compiles, the hook library charges no calls and no ops, launches reach no stream, and nothing waits for the
device (phantora_uncounted). Memory that a compiler allocates raises no peak.

Inductor and Triton launch each candidate some hundred times and read the clock. Here it is launched once, not counted:
the hook library says how long the cost model finds that its kernels take.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ..interpreter.code_owner import OUR_FOLDER
from ..interpreter.hook_library import Hook
from ..interpreter.nvtx_ranges import recorded
from ..interpreter.peak_memory import PeakMemory
from ..private.changes import Names, changes

_TRIGGERS = frozenset({"DYNAMO", "LAZY_BACKWARD"})
"""The reasons for which torch compiles. CUDA graphs, which it reports as well, are recorded by running the program's
own work.
"""


class Uncounted:
    """Keeps what a thread does out of virtual time, and what it allocates out of the peaks of memory."""

    def __init__(self, hook: Hook, peaks: PeakMemory) -> None:
        self._uncounted = hook.uncounted
        self._peaks = peaks
        self._thread = threading.local()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """A context for work that allocates on the device."""
        with self.without_memory(), self._peaks.unnoticed():
            yield

    @contextlib.contextmanager
    def without_memory(self) -> Iterator[None]:
        """A context for work that allocates nothing, wherever it is called: also while a CUDA graph takes its
        memory."""
        if getattr(self._thread, "is_inside", False):
            yield
            return
        self._thread.is_inside = True
        self._uncounted(1)
        try:
            yield
        finally:
            self._uncounted(-1)
            self._thread.is_inside = False

    def cost_ms(self, work: Callable[[], Any]) -> float:
        """Returns the GPU time, in ms, of what `work` launches, by the cost model."""
        with self.without_memory(), recorded(True):
            before_ns = self._uncounted(0)
            work()
            return (self._uncounted(0) - before_ns) / 1e6

    def method(self, original: Any) -> Any:
        """A method that takes no virtual time."""

        @functools.wraps(original)
        def uncounted(*arguments: Any, **options: Any) -> Any:
            with self.without_memory():
                return original(*arguments, **options)

        return uncounted


def install(hook: Hook, peaks: PeakMemory) -> None:
    """Keeps compilation, autotuning and benchmarks of torch and Triton out of virtual time. Called once, in the
    forker.
    """
    uncounted = Uncounted(hook, peaks)
    for key, change in (
        ("compilation", _compilation),
        ("functions that are not traced", _not_traced),
        ("profiled benchmarks", _profiled_benchmark),
        ("benchmarks", _benchmarkers),
        ("Inductor's autotuner", _kernel_autotuner),
        ("Triton's autotuner", _triton_autotuner),
        ("Triton's benchmarks", _triton_driver),
    ):
        changes.when_imported(key, functools.partial(change, uncounted))


def _not_traced(uncounted: Uncounted, names: Names) -> None:
    """Keeps Dynamo from tracing functions of this package. It traces every Python function that a compiled one calls
    after a graph break.
    """
    names.get("SKIP_DIRS").append(OUR_FOLDER)
    names.get("_recompile_re")()


def _compilation(uncounted: Uncounted, names: Names) -> None:
    """Keeps compilation by Dynamo, AOTAutograd and Inductor out of virtual time: of a forward pass, or of a backward
    pass that is compiled when first run.
    """

    def make(install_callbacks: Any) -> Any:
        @functools.wraps(install_callbacks)
        @contextlib.contextmanager
        def compiling(self: Any, trigger: Any, *rest: Any, **named: Any) -> Generator[None]:
            with contextlib.ExitStack() as stack:
                if trigger.name in _TRIGGERS:
                    stack.enter_context(uncounted())
                    stack.enter_context(recorded(False))
                stack.enter_context(install_callbacks(self, trigger, *rest, **named))
                yield

        return compiling

    names.change("install_callbacks", make)


def _benchmarkers(uncounted: Uncounted, names: Names) -> None:
    """Keeps Inductor's benchmarks out of virtual time: of GEMM and attention templates, of padding, of fusions, of
    kernel configurations.
    """
    may_ban = names.get("may_ban_benchmarking")

    def benchmark_gpu(
        self: Any, _callable: Callable[[], Any], *, is_vetted_benchmarking: bool = False, **options: Any
    ) -> Any:
        if not is_vetted_benchmarking and may_ban is not None:
            may_ban()
        cost_ms = uncounted.cost_ms(_callable)
        return [cost_ms] if options.get("return_mode") == "all" else cost_ms

    for name in ("TritonBenchmarker", "InductorBenchmarker"):
        names.change(f"{name}.benchmark_gpu", lambda _: benchmark_gpu)


def _profiled_benchmark(uncounted: Uncounted, names: Names) -> None:
    def do_bench_using_profiling(fn: Callable[[], Any], *arguments: Any, **options: Any) -> float:
        return uncounted.cost_ms(fn)

    names.change("do_bench_using_profiling", lambda _: do_bench_using_profiling)


def _kernel_autotuner(uncounted: Uncounted, names: Names) -> None:
    """Configurations of Inductor's kernels are compared when a kernel is first run. Candidates compute nothing here, so
    they may write to the program's own tensors: copies of these would raise the peak of memory.
    """
    for name in ("precompile", "autotune_to_one_config", "coordinate_descent_tuning"):
        names.change(name, uncounted.method)

    def maybe_clone_args(
        self: Any, exclude: Any, *arguments: Any, **options: Any
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        return arguments, options

    def copy_args_to_cpu_if_needed(self: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {}

    names.change("maybe_clone_args", lambda _: maybe_clone_args)
    names.change("copy_args_to_cpu_if_needed", lambda _: copy_args_to_cpu_if_needed)


def _triton_autotuner(uncounted: Uncounted, names: Names) -> None:
    """Does the same for `triton.autotune` of kernels that people and libraries write."""
    names.change("Autotuner._bench", uncounted.method)


def _triton_driver(uncounted: Uncounted, names: Names) -> None:
    def do_bench(fn: Callable[[], Any], *arguments: Any, quantiles: Any = None, **options: Any) -> Any:
        cost_ms = uncounted.cost_ms(fn)
        return cost_ms if quantiles is None else [cost_ms] * len(quantiles)

    def get_benchmarker(self: Any) -> Callable[..., Any]:
        return do_bench

    names.change("get_benchmarker", lambda _: get_benchmarker)
