"""Private names by which GPUs and hosts are measured."""

from __future__ import annotations

from .names import Kind, Name, Purpose

PURPOSES = (
    Purpose(
        "measuring on a GPU",
        "one rank of a script on a real GPU (phantora-async profile)",
        "phantora-async profile SCRIPT ends with an error",
        ("emu/real_run/steps.py", "emu/real_run/collectives.py", "emu/real_run/groups.py", "emu/real_run/tracing.py"),
        (
            Name("torch.distributed.distributed_c10d", "_new_process_group_helper"),
            Name("torch.distributed.distributed_c10d", "_store_based_barrier"),
            Name("torch.distributed.distributed_c10d", "_world", Kind.OBJECT),
            Name("torch._C._distributed_c10d", "_create_work_from_future"),
            Name("torch._C._distributed_c10d", "FakeProcessGroup", Kind.CLASS),
            Name("torch.autograd.profiler", "profile._prepare_trace"),
            Name("torch.autograd.graph", "_engine_run_backward"),
            Name("torch._C", "_get_schema"),
            Name("torch._C", "_autograd._profiler_type"),
            Name("torch._C._profiler", "ActiveProfilerType", Kind.CLASS),
        ),
    ),
    Purpose(
        "measuring kernels",
        "calls of operators that give a kernel (phantora-async profile --sweep, --missing)",
        "phantora-async profile cannot measure such kernels alone",
        (
            "emu/gpubench/operators.py",
            "emu/gpubench/resident.py",
            "emu/private/access.py",
        ),
        (
            Name("torch._ops", "OpOverload.__init__", mentions="_schema _overloadname"),
            Name("torch.cuda", "_compile_kernel"),
        ),
    ),
    Purpose(
        "measuring a host",
        "programs whose times tell what host work costs (phantora-async profile --host)",
        "programs that need it are left out of the measurement",
        ("emu/hostbench/__main__.py", "emu/hostbench/distributed.py", "emu/hostbench/python_work.py"),
        (
            Name("torch.testing._internal.distributed.fake_pg", "FakeStore", Kind.CLASS),
            Name("torch.distributed._functional_collectives", "all_gather_tensor"),
            Name("torch.utils._pytree", "tree_map"),
        ),
    ),
)
