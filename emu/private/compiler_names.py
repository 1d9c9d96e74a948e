"""Private names of PyTorch's compilers and of Triton. Their modules are looked at when the program imports them."""

from __future__ import annotations

from .names import Kind, Name, Purpose

_CALLBACK = Name("torch._dynamo.callback", "CompilationCallbackHandler.install_callbacks", takes=("self trigger ...",))
_CACHE = "torch._inductor.codecache"
_COMPILE = "torch._inductor.async_compile"
_AUTOGRAD = "torch._functorch._aot_autograd"
_SAVE = Name(f"{_AUTOGRAD}.autograd_cache", "AOTAutogradCache.save", takes=("key entry ...",))
_CONTEXT = Name("torch._guards", "TracingContext.try_get")
_FAKES = (
    Name("torch._subclasses.fake_tensor", "FakeTensor", Kind.CLASS),
    Name("torch._C", "_DisableTorchDispatch", Kind.OBJECT),
)
_BENCHMARKING = "torch._inductor.runtime.benchmarking"
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_COMPILE_TIME = "emu/compiler/compile_time.py"
_COMPARING = "what compilers do to choose among kernels counts as the program's work"
_TOO_LONG = "the first steps of compiled models take too long"

PURPOSES = (
    Purpose(
        "numbers of compiled functions",
        "giving compiled functions ordinary numbers in the place of those that nobody computed",
        "a compiled function that gets a loss as a number may break its graph there",
        ("emu/reads/compiled_calls.py",),
        (
            Name("torch._dynamo.eval_frame", "_TorchDynamoContext.__call__", takes=("self fn",)),
            Name("torch._C._dynamo.eval_frame", "get_eval_frame_callback"),
        ),
        wrong="compiled models may have more graphs than on a GPU",
    ),
    Purpose(
        "compilation",
        "keeping compilers out of virtual time",
        "torch.compile takes virtual time",
        (_COMPILE_TIME,),
        (_CALLBACK,),
        wrong=f"{_TOO_LONG}, and differ from run to run",
    ),
    Purpose(
        "functions that are not traced",
        "keeping Dynamo from tracing the emulation's functions",
        "torch.compile traces functions of the emulation and may break graphs at them",
        (_COMPILE_TIME,),
        (
            Name("torch._dynamo.trace_rules", "SKIP_DIRS", Kind.OBJECT),
            Name("torch._dynamo.trace_rules", "_recompile_re", takes=("",)),
        ),
        wrong="compiled models may have more graphs than on a GPU",
    ),
    Purpose(
        "profiled benchmarks",
        "taking the cost model's time where Inductor profiles a kernel",
        _COMPARING,
        (_COMPILE_TIME,),
        (Name("torch._inductor.utils", "do_bench_using_profiling", takes=("fn ...",)),),
        wrong=_TOO_LONG,
    ),
    Purpose(
        "benchmarks",
        "taking the cost model's time where Inductor times a kernel",
        _COMPARING,
        (_COMPILE_TIME,),
        (
            Name(_BENCHMARKING, "TritonBenchmarker.benchmark_gpu", takes=("self _callable ...",)),
            Name(_BENCHMARKING, "InductorBenchmarker.benchmark_gpu", takes=("self _callable ...",)),
            Name(_BENCHMARKING, "may_ban_benchmarking", takes=("",), seen=("2.11", "2.15")),
        ),
        wrong=_TOO_LONG,
    ),
    Purpose(
        "Inductor's autotuner",
        "keeping the comparison of Inductor's kernels out of virtual time",
        _COMPARING,
        (_COMPILE_TIME,),
        (
            Name(_HEURISTICS, "CachingAutotuner.precompile"),
            Name(_HEURISTICS, "CachingAutotuner.autotune_to_one_config"),
            Name(_HEURISTICS, "CachingAutotuner.coordinate_descent_tuning"),
            Name(_HEURISTICS, "CachingAutotuner.maybe_clone_args", takes=("self exclude ...",)),
            Name(_HEURISTICS, "CachingAutotuner.copy_args_to_cpu_if_needed", takes=("self ...",)),
        ),
        wrong=f"{_TOO_LONG}, and peaks of memory may be too high",
    ),
    Purpose(
        "Triton's autotuner",
        "keeping triton.autotune out of virtual time",
        _COMPARING,
        (_COMPILE_TIME,),
        (Name("triton.runtime.autotuner", "Autotuner._bench"),),
        wrong="the first calls of autotuned Triton kernels take too long",
    ),
    Purpose(
        "Triton's benchmarks",
        "taking the cost model's time where Triton times a kernel",
        _COMPARING,
        (_COMPILE_TIME,),
        (Name("triton.backends.nvidia.driver", "CudaDriver.get_benchmarker", takes=("self",)),),
        wrong="the first calls of autotuned Triton kernels take too long",
    ),
    Purpose(
        "runs that compile",
        "noting which scripts compile",
        "the compiler is imported for scripts that mention it and do not compile",
        ("emu/compiler/compile_forecast.py",),
        (_CALLBACK,),
    ),
    Purpose(
        "graph locks",
        "giving up the locks of graphs when a compilation ends",
        "each rank compiles its own graphs",
        ("emu/compiler/graph_cache.py",),
        (_CALLBACK,),
    ),
    Purpose(
        "shared graphs",
        "compiled graphs that ranks share",
        "each rank compiles its own graphs",
        ("emu/compiler/graph_cache.py", "emu/compiler/any_device.py"),
        (
            Name(_CACHE, "FxGraphCachePickler.__init__", takes=("self gm ...",)),
            Name(_CACHE, "FxGraphCachePickler._reduce_graph_module", takes=("self gm",)),
            Name(_CACHE, "write_atomic", takes=("path_ content make_dirs encode_utf_8",)),
            Name(_CACHE, "GuardedCache.find_guarded_entry", takes=("cls key local ...",)),
            Name(_CACHE, "FxGraphCache.iterate_over_candidates", inherited=True),
            Name(_CACHE, "FxGraphCache._save_graph", takes=("key compiled_graph ...",)),
            Name(_CACHE, "code_hash", takes=("code ...",)),
            Name("torch._inductor.cudagraph_utils", "BoxedDeviceIndex", Kind.CLASS),
        ),
    ),
    Purpose(
        "GPU of shared kernels",
        "loading kernels of shared graphs on a rank's own GPU",
        "a rank may load kernels on the GPU of the rank that compiled them, which a smaller server lacks",
        ("emu/compiler/graph_cache.py", "emu/compiler/any_device.py"),
        (Name(_HEURISTICS, "CachingAutotuner._make_launchers", takes=("self",)),),
    ),
    Purpose(
        "graphs within entries",
        "running graphs within AOTAutograd's entries on a rank's own GPU",
        "a rank may run a compiled graph on the GPU of the rank that compiled it",
        ("emu/compiler/graph_cache.py", "emu/compiler/any_device.py"),
        (
            Name(f"{_AUTOGRAD}.autograd_cache", "AOTAutogradCache.iterate_over_candidates", inherited=True),
            Name(
                f"{_AUTOGRAD}.aot_autograd_result",
                "BundledOutputCodeLoadable.pre_save",
                takes=("self",),
                seen=("2.11", "2.15"),
            ),
            Name(
                f"{_AUTOGRAD}.runtime_wrappers",
                "SerializableCompiledFunction.__init__",
                takes=("self compiled_fn serialize_fn",),
                seen=("2.11", "2.15"),
            ),
            Name(_CACHE, "code_hash", takes=("code ...",)),
        ),
    ),
    Purpose(
        "entries of earlier runs",
        "reading the entries of the graph cache once for all ranks",
        "each rank reads them",
        ("emu/compiler/held_entries.py",),
        (
            Name(_CACHE, "FxGraphCache.iterate_over_candidates", inherited=True),
            Name(_CACHE, "FxGraphCache._get_tmp_dir_for_key", takes=("cls key",)),
        ),
    ),
    Purpose(
        "AOTAutograd's entries of earlier runs",
        "reading AOTAutograd's entries once for all ranks",
        "each rank reads them",
        ("emu/compiler/held_entries.py",),
        (
            Name(f"{_AUTOGRAD}.autograd_cache", "AOTAutogradCache.iterate_over_candidates", inherited=True),
            Name(f"{_AUTOGRAD}.autograd_cache", "AOTAutogradCache._get_tmp_dir_for_key"),
        ),
    ),
    Purpose(
        "shared backward graphs",
        "graphs of backward passes that ranks share",
        "each rank traces its own graphs",
        ("emu/compiler/graph_cache.py", "emu/compiler/any_device.py"),
        (
            _SAVE,
            Name(f"{_AUTOGRAD}.autograd_cache", "AOTAutogradCache.try_load"),
            Name(
                f"{_AUTOGRAD}.autograd_cache",
                "AOTAutogradCachePickler._reduce_graph_module_for_cache_key",
                takes=("self gm",),
                seen=("2.15",),
            ),
        ),
    ),
    Purpose(
        "compiled autograd",
        "noticing that backward passes are compiled in another way",
        "each rank traces its own graphs",
        ("emu/compiler/graph_cache.py",),
        (
            Name("torch._dynamo.config", "compiled_autograd", Kind.OBJECT),
            Name("torch._dynamo.compiled_autograd", "in_compiled_autograd_region", Kind.OBJECT),
        ),
    ),
    Purpose(
        "kernels of several graphs",
        "having each kernel once in a process that loads several graphs",
        "graphs from the cache take longer to load",
        ("emu/compiler/kernels_once.py",),
        (
            Name(_COMPILE, "AsyncCompile.triton", takes=("self kernel_name source_code ...",)),
            Name(_COMPILE, "CompiledTritonKernels.get", takes=("kernel_src",)),
            Name(_COMPILE, "CompiledTritonKernels.remove_future", takes=("kernel_src",)),
            Name(_CACHE, "CodeCacheFuture", Kind.CLASS),
            Name(_CACHE, "StaticAutotunerFuture", Kind.CLASS),
        ),
        wrong="the first step of a compiled model may depend on what was compiled before",
    ),
    Purpose(
        "code of compiled graphs",
        "keeping the bytecode of compiled graphs",
        "each rank compiles the Python code of the graphs that it loads",
        ("emu/compiler/loaded_code.py",),
        (Name(_CACHE, "_reload_python_module", takes=("key path set_sys_modules",)),),
    ),
    Purpose(
        "what split graphs return",
        "noting what the graphs of a compiled model under DistributedDataParallel return",
        "each rank of each run traces the graphs of compiled models under DistributedDataParallel",
        ("emu/compiler/split_graphs.py",),
        (
            Name(
                f"{_AUTOGRAD}.runtime_wrappers",
                "FakifiedOutWrapper.post_compile",
                takes=("self compiled_fn aot_config ...",),
                mentions="needs_post_compile",
            ),
            Name(f"{_AUTOGRAD}.runtime_wrappers", "FakifiedOutWrapper.__init__", takes=("self out_metas ...",)),
            _CONTEXT,
            *_FAKES,
        ),
    ),
    Purpose(
        "split graphs",
        "caching these graphs",
        "each rank of each run traces the graphs of compiled models under DistributedDataParallel",
        ("emu/compiler/split_graphs.py",),
        (
            Name(f"{_AUTOGRAD}.autograd_cache", "check_cacheable", takes=("gm",)),
            _SAVE,
            _CONTEXT,
            *_FAKES,
            Name(f"{_AUTOGRAD}.autograd_cache", "GenericAOTAutogradCacheEntry.wrap_post_compile", seen=("2.9",)),
        ),
    ),
    Purpose(
        "cached split graphs",
        "taking these graphs from the cache",
        "each rank of each run traces the graphs of compiled models under DistributedDataParallel",
        ("emu/compiler/split_graphs.py",),
        (
            Name(
                f"{_AUTOGRAD}.aot_autograd_result", "GenericAOTAutogradResult.wrap_post_compile", seen=("2.11", "2.15")
            ),
            _CONTEXT,
            *_FAKES,
        ),
    ),
    Purpose(
        "functions without host time",
        "leaving out functions that run as often as this machine's state says",
        "such functions take host time",
        ("emu/interpreter/frame_counter.py",),
        (
            Name("torch.distributed.tensor._dtensor_spec", "DTensorSpec.__eq__"),
            Name("torch.distributed.device_mesh", "DeviceMesh.__eq__"),
            Name("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter._try_get_data"),
            Name("torch._subclasses.fake_tensor", "dump_cache_stats"),
            Name("torch._dynamo.utils", "record_compilation_metrics"),
            Name("torch._dynamo.metrics_context", "RuntimeMetricsContext.__init__"),
            Name(_HEURISTICS, "CachingAutotuner.benchmark_all_configs"),
            Name(_HEURISTICS, "CachingAutotuner._precompile_worker"),
            Name("triton.runtime.jit", "JITFunction._do_compile"),
        ),
        wrong="host time may differ from run to run",
    ),
    Purpose(
        "Triton's cache",
        "compiling each Triton kernel once for all ranks",
        "each rank compiles its own Triton kernels",
        ("emu/compiler/triton_cache.py",),
        (
            Name("triton.runtime.cache", "FileCacheManager.get_group", takes=("self filename",)),
            Name("triton.runtime.cache", "FileCacheManager.put_group", takes=("self filename group",)),
            Name("triton.runtime.cache", "FileCacheManager.__init__", mentions="lock_path"),
        ),
    ),
    Purpose(
        "Triton's driver module",
        "compiling the C module by which Triton calls the driver once for all runs",
        "each run that uses Triton calls the C compiler once",
        ("emu/compiler/keys.py",),
        # Before 3.7 a key did not depend on the folders.
        (Name("triton.runtime.build", "_get_cache_manager", takes=("src config",), seen=("3.9",)),),
    ),
    Purpose(
        "key of torch's sources",
        "hashing torch's sources once for all ranks and runs",
        "each rank that compiles hashes them",
        ("emu/compiler/keys.py",),
        (Name(_CACHE, "torch_key", takes=("",)),),
    ),
    Purpose(
        "key of Triton's sources",
        "hashing Triton's sources once for all ranks and runs",
        "each rank that compiles hashes them",
        ("emu/compiler/keys.py",),
        (Name("triton.runtime.cache", "triton_key", takes=("",)),),
    ),
    Purpose(
        "versions of Triton's tools",
        "asking the tools of Triton for their versions once for all ranks",
        "each rank that compiles starts them",
        ("emu/compiler/keys.py",),
        (
            Name("triton.backends.nvidia.compiler", "get_ptxas_version", takes=("arch",)),
            Name("triton.runtime.build", "platform_key", takes=("",)),
        ),
    ),
    Purpose(
        "times of guards",
        "leaving out how long guards take on this machine",
        "each compilation measures it",
        ("emu/compiler/skipped_work.py",),
        (Name("torch._dynamo.guards", "profile_guard_manager", seen=("2.11", "2.15")),),
    ),
    Purpose(
        "copies of split graphs",
        "copying the parts of DistributedDataParallel's graphs only if the copies are used",
        "each rank copies them",
        ("emu/compiler/skipped_work.py",),
        (Name("torch._dynamo.backends.distributed", "deepcopy_to_fake_tensor", takes=("obj fake_mode",)),),
    ),
    Purpose(
        "Triton's libraries",
        "hashing Triton's libraries once",
        "each cached graph hashes them",
        ("emu/compiler/skipped_work.py",),
        (Name("torch.utils._triton", "_extern_libs_key", takes=("backend",), seen=("2.15",)),),
    ),
    Purpose(
        "lines of operators",
        "describing the lines of traced operators only for logs",
        "each rank that traces reads the files of these lines",
        ("emu/compiler/skipped_work.py",),
        (
            Name(
                "torch._dynamo.symbolic_convert",
                "InstructionTranslatorBase.get_line_of_code_header",
                takes=("self lineno",),
            ),
        ),
    ),
    Purpose(
        "places in lines",
        "looking once for the place of a traced operator in its line",
        "each rank that traces looks for it as often as the line was traced",
        ("emu/compiler/skipped_work.py",),
        (
            Name("torch._guards", "_TLS", Kind.OBJECT),
            Name("traceback", "_extract_caret_anchors_from_line_segment", takes=("segment",)),
        ),
    ),
    Purpose(
        "Triton's programs",
        "reading the programs of Triton's kernels",
        "costs of Triton's kernels do not follow from their programs",
        ("emu/interpreter/triton_programs.py",),
        (
            Name("triton.compiler", "CompiledKernel._init_handles", takes=("self",), mentions="module function"),
            Name("triton.compiler", "CompiledKernel.__init__", mentions="asm"),
        ),
        wrong="times of Triton's kernels are estimated from their grids alone",
    ),
    Purpose(
        "Inductor's programs",
        "the same for kernels that Inductor loads",
        "costs of Inductor's kernels do not follow from their programs",
        ("emu/interpreter/triton_programs.py",),
        (Name("torch._C", "_StaticCudaLauncher", Kind.OBJECT), Name("torch._C", "_StaticCudaLauncher._load_kernel")),
        wrong="times of Inductor's kernels are estimated from their grids alone",
    ),
)

ORDER: dict[str, tuple[str, ...]] = {
    # The number of the GPU is put into entries wherever they come from.
    f"{_CACHE}.FxGraphCache.iterate_over_candidates": ("entries of earlier runs", "shared graphs"),
    f"{_AUTOGRAD}.autograd_cache.AOTAutogradCache.iterate_over_candidates": (
        "AOTAutograd's entries of earlier runs",
        "graphs within entries",
    ),
    # Locks are given up while the compilation still takes no virtual time.
    _CALLBACK.full: ("graph locks", "runs that compile", "compilation"),
    # What a graph returns is put into its entry before the entry is stored and its lock is given up.
    _SAVE.full: ("shared backward graphs", "split graphs"),
    # The order of batches is chosen when the iterator is otherwise complete.
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__init__": (
        "timeouts of data loaders",
        "data loading",
    ),
    # A store of a folded run waits for processes, whatever the number of its making.
    "torch.distributed.rendezvous._create_c10d_store": ("groups made again", "folded groups"),
    # Threads are named while the group is really made, not while a folded run notes its members.
    "torch.distributed.distributed_c10d._new_process_group_helper": ("gloo's threads", "folded groups"),
}
"""Names that several purposes change: these, from the innermost to the outermost."""
