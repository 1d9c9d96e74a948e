"""DeepSpeed's engines on a small GPT."""

from __future__ import annotations

import json
from typing import Any

from ..job import UPDATED, Framework, Job

FRAMEWORK = Framework("DeepSpeed", ("deepspeed",), ("deepspeed",), ("deepspeed_gpt.py",))
DONE = "4 steps done"
CLIPS = (r"deepspeed_gpt.py:\d+ reads bool values",)
"""Without ZeRO, gradients are multiplied only if their norm is large: a decision by a value that nobody computes."""


def job(
    name: str,
    feature: str,
    *arguments: str,
    zero: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    ranks: int = 2,
    shows: tuple[str, ...] = (),
    small: bool = False,
    programs: tuple[str, ...] = (),
) -> Job:
    """`zero`: DeepSpeed's `zero_optimization`; `config`: more of its configuration."""
    whole = (config or {}) | ({"zero_optimization": zero} if zero else {})
    arguments = (*arguments, "--config", json.dumps(whole)) if whole else arguments
    shows = (DONE, *shows)
    warns = UPDATED if "--save" in arguments or "offload" in name else CLIPS if name == "pipeline" else ()
    name = f"deepspeed-{name}"
    return Job(FRAMEWORK, name, feature, arguments, ranks, (), shows, 4, warns, small=small, programs=programs)


OFFLOAD = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8}, "bf16": {"enabled": False}}

JOBS = (
    job("zero1", "ZeRO 1", zero={"stage": 1}, shows=("ZeRO stage 1",), small=True),
    job("zero2", "ZeRO 2, overlapped", zero={"stage": 2, "overlap_comm": True}, shows=("ZeRO stage 2",)),
    job("zero3", "ZeRO 3", "--init", zero={"stage": 3}, shows=("ZeRO stage 3",), small=True),
    job("zero1-fp16", "ZeRO 1, fp16 with loss scaling", zero={"stage": 1}, config=FP16, shows=("torch.float16",)),
    job(
        "zero2-offload-torch",
        "ZeRO 2, optimizer on the CPU (torch's AdamW)",
        zero={"stage": 2} | OFFLOAD,
        config={"zero_force_ds_cpu_optimizer": False},
        shows=("ZeRO stage 2",),
    ),
    job(
        "zero2-offload",
        "ZeRO 2, optimizer on the CPU (DeepSpeedCPUAdam)",
        "--cpu-adam",
        zero={"stage": 2} | OFFLOAD,
        shows=("ZeRO stage 2",),
    ),
    job(
        "zero3-offload",
        "ZeRO 3, parameters and optimizer on the CPU (torch's AdamW)",
        "--init",
        zero={"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}} | OFFLOAD,
        config={"zero_force_ds_cpu_optimizer": False},
        shows=("ZeRO stage 3",),
    ),
    job(
        "fused-adam",
        "its FusedAdam, a CUDA extension compiled at run time",
        "--fused-adam",
        zero={"stage": 1},
        programs=("nvcc",),
    ),
    job(
        "checkpoint",
        "ZeRO 3, saves and loads a checkpoint",
        "--init",
        "--save",
        zero={"stage": 3},
        shows=("checkpoint loaded",),
    ),
    job("pipeline", "pipeline engine, 2 stages", "--pipeline", "2", shows=("PipelineEngine",), small=True),
    job(
        "pipeline-dp",
        "pipeline engine, 2 stages x 2 replicas, ZeRO 1",
        "--pipeline",
        "2",
        zero={"stage": 1},
        ranks=4,
        shows=("PipelineEngine",),
    ),
    job(
        "hpz",
        "ZeRO++: parameters sharded a second time within a server",
        "--init",
        zero={"stage": 3, "zero_hpz_partition_size": 2},
        ranks=4,
        shows=("ZeRO stage 3",),
    ),
    job(
        "zeropp",
        "ZeRO++: quantized weights and gradients",
        "--init",
        ranks=4,
        zero={
            "stage": 3,
            "zero_hpz_partition_size": 2,
            "zero_quantized_weights": True,
            "zero_quantized_gradients": True,
        },
        shows=("ZeRO stage 3",),
        programs=("nvcc",),
    ),
    job("ulysses", "Ulysses: sequences over 2 ranks", "--ulysses", "2", zero={"stage": 1}, shows=("Ulysses over 2",)),
    job(
        "ulysses-zero3",
        "Ulysses over 2 x ZeRO 3 over 4 ranks",
        "--ulysses",
        "2",
        "--init",
        zero={"stage": 3},
        ranks=4,
        shows=("Ulysses over 2",),
    ),
    job(
        "autotp",
        "tensor parallel training (AutoTP) 2",
        "--autotp",
        "2",
        zero={"stage": 1},
        ranks=4,
        shows=("tensor parallel over 2",),
    ),
    job("activation-checkpointing", "its activation checkpointing", "--checkpointing", zero={"stage": 2}),
    job(
        "breakdown",
        "wall clock breakdown and FLOPS profiler",
        zero={"stage": 1},
        config={"wall_clock_breakdown": True, "flops_profiler": {"enabled": True, "profile_step": 3}},
        shows=(r"\| fwd: ", "DeepSpeed Flops Profiler"),
    ),
    Job(
        FRAMEWORK,
        "deepspeed-moe",
        "MoE, experts over 2 ranks",
        test="tests/e2e/test_routing_in_frameworks.py::test_deepspeed",
    ),
    Job(
        FRAMEWORK,
        "deepspeed-throughput",
        "throughput timer",
        test="tests/e2e/test_framework_time.py::test_deepspeed_throughput",
    ),
)
