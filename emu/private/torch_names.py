"""Private names of PyTorch that every run uses."""

from __future__ import annotations

from .names import Kind, Name, Purpose

_C = "torch._C"
_D = "torch.distributed.distributed_c10d"
_LOADER = "torch.utils.data.dataloader"
_RPC = "torch.distributed.rpc"
_LOADING = "_MultiProcessingDataLoaderIter"
_TENSOR = "torch.distributed.tensor"
_ACCESS = "emu/private/access.py"
_SCHEMA = Name("torch._ops", "OpOverload.__init__", mentions="_schema")

PURPOSES = (
    Purpose(
        "op ranges",
        "names and sizes of operators, from PyTorch's NVTX profiler",
        "kernels have no operator names and sizes",
        ("emu/interpreter/nvtx_ranges.py", "emu/control/control_tensors.py"),
        (
            Name(_C, "_autograd._enable_record_function"),
            Name(_C, "_autograd._enable_profiler"),
            Name(_C, "_autograd._disable_profiler"),
            Name("torch.autograd.profiler", "_enable_profiler"),
            Name("torch.autograd.profiler", "_disable_profiler"),
            Name("torch.autograd.profiler_legacy", "_enable_profiler_legacy"),
            Name("torch.autograd.profiler_legacy", "_disable_profiler_legacy"),
            Name("torch._C._profiler", "ProfilerConfig", Kind.CLASS),
            Name("torch._C._profiler", "ProfilerState.NVTX", Kind.OBJECT),
            Name("torch._C._profiler", "RecordScope.__members__", Kind.OBJECT),
            Name("torch._C._profiler", "_ExperimentalConfig", Kind.CLASS),
        ),
        wrong="kernel times are estimated from grids and blocks alone, operators take no host time, and steps that "
        "optimizers end are not found",
    ),
    Purpose(
        "tensors of the CPU",
        "seeing which tensors of the CPU an operator takes",
        "operators on tensors of the CPU take the same time whatever their size",
        ("emu/interpreter/tensor_work.py",),
        (
            Name(_C, "_dispatch_keys"),
            Name(_C, "TensorBase._cdata", Kind.OBJECT),
        ),
        wrong="steps that wait for the CPU's own work on tensors are too short",
    ),
    Purpose(
        "open sizes",
        "leaving sizes open that PyTorch traces symbolically, when the sizes of an operator are noted",
        "torch.export and make_fx make constants of sizes that were to stay open",
        ("emu/interpreter/nvtx_ranges.py",),
        (Name("torch.fx.experimental.sym_node", "SymNode.guard_int", takes=("self file line",)),),
    ),
    Purpose(
        "control values",
        "computing small tensors by which a program decides",
        "small integer tensors on the GPU are not computed",
        ("emu/control/dispatcher.py", _ACCESS),
        (Name(_C, "_dispatch_get_registrations_for_dispatch_key"), _SCHEMA),
        wrong="values that the script reads from the GPU count as never computed, and read as 0",
    ),
    Purpose(
        "coalesced collectives",
        "measuring what coalesced collectives cost a host",
        "`profile --host` ends at its program of coalesced collectives",
        ("emu/hostbench/collectives.py",),
        (Name(_D, "_coalescing_manager"),),
    ),
    Purpose(
        "captured streams",
        "finding the stream that is captured",
        "capturing CUDA graphs takes a little longer here",
        ("emu/control/captured.py",),
        (Name(_C, "_cuda_getCurrentRawStream"),),
    ),
    Purpose(
        "memory peaks",
        "peaks of GPU memory over the whole run",
        "the report has no peaks of GPU memory",
        ("emu/interpreter/peak_memory.py",),
        (Name(_C, "_cuda_memoryStats"), Name(_C, "_cuda_resetPeakMemoryStats")),
    ),
    Purpose(
        "memory statistics of accelerators",
        "the same where a script asks by torch.accelerator",
        "torch.accelerator's peaks of memory count what compilers allocate to compare kernels",
        ("emu/interpreter/peak_memory.py",),
        (Name(_C, "_accelerator_getDeviceStats"), Name(_C, "_accelerator_resetPeakStats")),
        wrong="peaks of memory leave out what came before torch.accelerator.reset_peak_memory_stats",
    ),
    Purpose(
        "memory pools",
        "knowing when a CUDA graph takes its memory from a pool of its own",
        "what compilers allocate to compare kernels counts in the peaks of memory",
        ("emu/interpreter/peak_memory.py",),
        (
            Name(_C, "_cuda_beginAllocateToPool"),
            Name(_C, "_cuda_beginAllocateCurrentThreadToPool"),
            Name(_C, "_cuda_endAllocateToPool"),
            *(
                Name("torch.cuda.memory", name)
                for name in (
                    "_cuda_beginAllocateToPool",
                    "_cuda_beginAllocateCurrentThreadToPool",
                    "_cuda_endAllocateToPool",
                )
            ),
        ),
        wrong="peaks of memory of compiled models may be too high",
    ),
    Purpose(
        "memory that was missing",
        "looking at memory when an allocation fails",
        "the report does not say what held the GPU's memory when an allocation failed",
        ("emu/interpreter/memory_holders.py",),
        (Name(_C, "_cuda_attach_out_of_memory_observer"), Name("torch.cuda", "_queued_calls", Kind.OBJECT)),
    ),
    Purpose(
        "memory holders",
        "looking at tensors without running the program's code",
        "the report does not say what holds the GPU's memory",
        ("emu/interpreter/memory_holders.py",),
        (Name(_C, "DisableTorchFunctionSubclass", Kind.CLASS),),
    ),
    Purpose(
        "backward passes",
        "noting when and where a backward pass starts",
        "errors in a backward pass name no line of the script",
        ("emu/interpreter/call_sites.py",),
        (
            Name(_C, "_ImperativeEngine", Kind.CLASS),
            Name(_C, "_ImperativeEngine.run_backward"),
            Name("torch.autograd", "Variable._execution_engine", Kind.OBJECT),
        ),
        wrong="host time of backward passes does not begin where that of the calling thread is",
    ),
    Purpose(
        "data loading",
        "the time that data loaders take",
        "loading data takes no virtual time",
        ("emu/loading/iterators.py", "emu/loading/loads.py", "emu/loading/in_worker.py"),
        (
            Name(_LOADER, f"{_LOADING}.__init__", takes=("self loader",)),
            Name(_LOADER, f"{_LOADING}._get_data", takes=("self",)),
            Name(_LOADER, f"{_LOADING}._shutdown_workers", takes=("self",)),
            Name(_LOADER, f"{_LOADING}._try_put_index", takes=("self",), mentions="_send_idx _task_info"),
            Name(_LOADER, f"{_LOADING}._reset", takes=("self loader ...",), mentions="_rcvd_idx"),
            Name(_LOADER, f"{_LOADING}._next_data", takes=("self",), mentions="_in_order _rcvd_idx _get_data"),
            Name(_LOADER, "_BaseDataLoaderIter.__init__", mentions="_dataset _num_workers"),
            Name(_LOADER, "_SingleProcessDataLoaderIter._next_data", takes=("self",)),
            Name(
                "torch.utils.data._utils.worker",
                "_worker_loop",
                takes=(
                    "dataset_kind dataset index_queue data_queue ...",
                    "dataset_kind dataset_holder index_queue data_queue ...",
                ),
            ),
        ),
        wrong="steps that wait for data are too short, host time depends on how fast workers are here, and results "
        "may differ from run to run",
    ),
    Purpose(
        "torchdata's loader",
        "the time that torchdata's loader takes in the main process",
        "loading data with it takes no virtual time",
        ("emu/loading/iterators.py",),
        (
            Name(
                "torchdata.stateful_dataloader.stateful_dataloader",
                "_StatefulSingleProcessDataLoaderIter._next_data",
                takes=("self",),
            ),
        ),
        wrong="steps that wait for data are too short",
    ),
    Purpose(
        "timeouts of data loaders",
        "letting no timeout of a data loader run out because the emulation is slow",
        "DataLoader(timeout=...) counts this machine's time and may end the run",
        ("emu/clock/timeouts.py",),
        (
            Name(_LOADER, f"{_LOADING}.__init__", takes=("self loader",)),
            Name(_LOADER, f"{_LOADING}._get_data", mentions="_timeout"),
        ),
    ),
    Purpose(
        "timeouts",
        "letting no timeout of torch.distributed run out because the emulation is slow",
        "timeouts of torch.distributed count this machine's time and may end the run",
        ("emu/clock/timeouts.py",),
        (
            Name("torch._C._distributed_c10d", "Work.wait"),
            Name("torch._C._distributed_c10d", "Work.get_future_result"),
            Name("torch._C._distributed_c10d", "ProcessGroup.monitored_barrier"),
            Name("torch._C._distributed_c10d", "FileStore.__init__"),
            Name("torch._C._distributed_c10d", "HashStore.__init__"),
            Name("torch._C._distributed_c10d", "TCPStore.__init__"),
        ),
    ),
    Purpose(
        "timeouts of RPC",
        "the same for torch.distributed.rpc",
        "timeouts of torch.distributed.rpc count this machine's time and may end the run",
        ("emu/clock/rpc_timeouts.py",),
        (
            Name(_RPC, "_set_rpc_timeout"),
            Name(_RPC, "get_rpc_timeout"),
            Name(f"{_RPC}.api", "get_rpc_timeout"),
            Name(f"{_RPC}.api", "_set_and_start_rpc_agent"),
            Name(f"{_RPC}.api", "_all_gather", takes=("obj worker_names timeout",)),
            Name(f"{_RPC}.api", "_invoke_rpc", takes=("to func rpc_type args kwargs rpc_timeout",)),
            Name(f"{_RPC}.api", "_invoke_remote_builtin"),
            Name(f"{_RPC}.api", "_invoke_remote_python_udf"),
            Name(f"{_RPC}.api", "_invoke_remote_torchscript"),
            Name("torch._C._distributed_rpc", "PyRRef.to_here"),
        ),
    ),
    Purpose(
        "questions for finished work",
        "telling whether Python code or PyTorch itself asks if work is complete",
        "loops over Work.is_completed are timed as PyTorch's own, and a replay goes on where it is answered otherwise",
        ("emu/interpreter/completed_work.py",),
        (Name("torch._C._distributed_c10d", "Work.is_completed"),),
    ),
    Purpose(
        "what the script reads of its GPU",
        "telling in a recording which attributes of the GPU the script itself has read",
        "a replay on another GPU goes on where torch.cuda.get_device_properties would be answered otherwise",
        ("emu/interpreter/attribute_reads.py",),
        (Name(_C, "_CudaDeviceProperties", Kind.CLASS),),
    ),
    Purpose(
        "Python's watchdog",
        "the same for the watchdog that PyTorch has in Python",
        "timeouts of PyTorch's watchdog count this machine's time and may end the run",
        ("emu/clock/timeouts.py",),
        tuple(
            Name("torch.distributed._watchdog", f"_Watchdog.{name}", takes=("self timeout ...",), seen=("2.15",))
            for name in ("stream_timeout", "cpu_timeout")
        ),
    ),
    Purpose(
        "uneven shards",
        "finding ranks whose FSDP2 shards are smaller in folded runs",
        "a folded run with uneven shards ends when a witness differs, without the mesh that would fit",
        ("emu/folding/shards.py",),
        (
            Name(
                "torch.distributed.fsdp._fully_shard._fsdp_param",
                "FSDPParam._init_sharded_param",
                takes=("self param device ...",),
                mentions="_orig_size padded_sharded_param_size",
            ),
            Name("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState._lazy_init", takes=("self",)),
        ),
    ),
    Purpose(
        "checkpoints' plans",
        "where tensors of DCP's checkpoints lie, in folded runs",
        "a folded run that saves a sharded checkpoint ends",
        ("emu/folding/checkpoints.py",),
        (
            Name(
                "torch.distributed.checkpoint.planner_helpers",
                "_create_write_items_for_dtensor",
                takes=("fqn tensor",),
            ),
        ),
    ),
    Purpose(
        "gathered checkpoints' plans",
        "plans of DCP's checkpoints that ranks without processes would have, in folded runs",
        "a folded run that saves a sharded checkpoint ends",
        ("emu/folding/checkpoints.py",),
        (
            Name(
                "torch.distributed.checkpoint.utils",
                "_DistWrapper.gather_object",
                takes=("self object",),
                mentions="gather_object",
            ),
        ),
    ),
    Purpose(
        "checkpointing processes",
        "refusing DCP's checkpoints by processes of their own, in folded runs",
        "a folded run that saves with AsyncCheckpointerType.PROCESS ends as a deadlock",
        ("emu/folding/checkpoints.py",),
        (
            Name(
                "torch.distributed.checkpoint._async_process_executor",
                "_ProcessBasedAsyncCheckpointExecutor.execute_save",
                takes=("self ...",),
            ),
        ),
    ),
    Purpose(
        "gathers and scatters",
        "knowing the root of gathers and scatters over NCCL in folded runs",
        "a folded run that gathers or scatters over NCCL ends",
        ("emu/folding/messages.py",),
        tuple(Name("torch._C._distributed_c10d", f"ProcessGroup.{name}") for name in ("gather", "scatter")),
    ),
    Purpose(
        "folded groups",
        "process groups of which most ranks have no process",
        "folded runs wait for ranks that have no process",
        (
            "emu/folding/groups.py",
            "emu/folding/gloo.py",
            "emu/folding/dispatched.py",
            "emu/folding/work.py",
            _ACCESS,
        ),
        (
            Name("torch.distributed.rendezvous", "_create_c10d_store", takes=("hostname port rank world_size ...",)),
            Name(_D, "_store_based_barrier", takes=("rank store group_name rendezvous_count ...",)),
            Name(
                _D,
                "_new_process_group_helper",
                takes=("group_size group_rank global_ranks_in_group backend store group_name ...",),
            ),
            Name("torch.distributed._functional_collectives", "all_reduce"),
            Name(_D, "ProcessGroupGloo", Kind.CLASS),
            Name("torch._C._distributed_c10d", "Backend", Kind.CLASS),
            Name("torch._C._distributed_c10d", "Work", Kind.CLASS),
            Name("torch._C._distributed_c10d", "ProcessGroup._get_backend"),
        ),
    ),
    Purpose(
        "gloo's threads",
        "names of gloo's threads",
        "on a busy machine a run with gloo groups may take long where a rank waits for another one's communicator",
        ("emu/clock/gloo_threads.py",),
        (Name(_D, "_new_process_group_helper"),),
    ),
    Purpose(
        "groups made again",
        "keys of their own for process groups that are made again",
        "a script that makes its process groups again may wait for ever or lose its store",
        ("emu/clock/rendezvous.py",),
        (Name("torch.distributed.rendezvous", "_create_c10d_store", takes=("hostname port rank world_size ...",)),),
    ),
    Purpose(
        "sharding propagation",
        "the host time of DTensor's sharding propagation",
        "sharding propagation takes the host time of its Python functions, whoever computes it",
        ("emu/sharding/propagation.py",),
        (
            Name(
                f"{_TENSOR}._sharding_prop",
                "ShardingPropagator.propagate_op_sharding_non_cached",
                takes=("self op_schema",),
            ),
            Name(_TENSOR, "DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding"),
            Name(f"{_TENSOR}._redistribute", "_gen_transform_infos"),
            Name("torch.distributed._functional_collectives", "_are_we_tracing", takes=("",)),
            Name(f"{_TENSOR}._dtensor_spec", "DTensorSpec", Kind.CLASS),
        ),
        wrong="the first steps of scripts that use DTensor may take too long, and differ from run to run",
    ),
    Purpose(
        "shared shardings",
        "results of sharding propagation that ranks share",
        "shardings are not shared between ranks; each rank computes its own",
        ("emu/sharding/results.py", "emu/sharding/encoding.py", _ACCESS),
        (
            _SCHEMA,
            Name(f"{_TENSOR}._sharding_prop", "ShardingPropagator.__init__", mentions="op_strategy_funcs"),
            Name(f"{_TENSOR}._op_schema", "OutputSharding", Kind.CLASS),
            Name(f"{_TENSOR}._dtensor_spec", "DTensorSpec", Kind.CLASS),
            Name(f"{_TENSOR}._dtensor_spec", "TensorMeta", Kind.CLASS),
            Name(f"{_TENSOR}.placement_types", "_StridedShard", Kind.CLASS),
            Name(f"{_TENSOR}._ops._math_ops", "_NormPartial", Kind.CLASS),
        ),
    ),
    Purpose(
        "shared weights",
        "weights in CPU memory that ranks share",
        "ranks do not share weights in this machine's memory: each has a copy, and the run needs more memory",
        ("emu/weights/tensors.py", "emu/weights/copies.py"),
        (
            Name(_C, "_len_torch_function_stack"),
            Name(_C, "_len_torch_dispatch_stack"),
            Name(_C, "_functorch.peek_interpreter_stack"),
            Name(_C, "_nn._parse_to"),
            Name("torch.overrides", "_get_current_function_mode_stack", takes=("",)),
            Name("torch.utils._device", "DeviceContext", Kind.CLASS),
            Name("torch.nn.parameter", "UninitializedTensorMixin._allowed_methods", Kind.OBJECT),
        ),
    ),
    Purpose(
        "shared checkpoints",
        "checkpoints that are read once for all ranks",
        "ranks do not share what torch.load reads: each has a copy, and the run needs more memory",
        ("emu/weights/loading.py",),
        (Name("torch.serialization", "_open_zipfile_reader", Kind.CLASS),),
    ),
    Purpose(
        "untouched GPUs",
        "noticing imported modules that have asked for GPUs",
        "modules that ask for GPUs when they are imported are not noticed; ranks then cannot use CUDA",
        ("emu/start/prepare.py",),
        (Name("torch.cuda", "_is_in_bad_fork"),),
    ),
    Purpose(
        "modules that count GPUs",
        "leaving modules that count GPUs out of those that ranks share",
        "the run ends if a module that ranks share counts GPUs when it is imported; --no-auto-preload helps",
        ("emu/preload/trial.py",),
        (Name(_C, "_cuda_getDeviceCount"),),
    ),
    Purpose(
        "exposed all-reduces",
        "telling that DistributedDataParallel's all-reduces hide behind nothing",
        "DistributedDataParallel's all-reduces that hide behind nothing are not told of; the report's shares show them",
        ("emu/start/exposed_ddp.py",),
        (
            Name("torch.nn.parallel.distributed", "DistributedDataParallel.__init__"),
            Name(_D, "ProcessGroupNCCL2", Kind.CLASS, seen=("2.15",)),
        ),
    ),
)
