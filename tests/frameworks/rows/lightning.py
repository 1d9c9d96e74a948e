"""Lightning's Trainer and Fabric on a small GPT."""

from __future__ import annotations

from ..job import UPDATED, Framework, Job

TRAINER = Framework("Lightning", ("lightning",), ("lightning",), ("lightning_gpt.py", "trainer"))
FABRIC = Framework("Lightning Fabric", ("lightning",), ("lightning",), ("lightning_gpt.py", "fabric"))


def job(
    name: str,
    feature: str,
    *arguments: str,
    shows: str,
    ranks: int = 2,
    modules: tuple[str, ...] = (),
    small: bool = False,
) -> Job:
    framework = FABRIC if name.startswith("fabric") else TRAINER
    warns = UPDATED if framework is TRAINER else ()  # its Trainer moves the model to the CPU when it ends
    return Job(framework, name, feature, arguments, ranks, (), ("4 steps done", shows), 4, warns, modules, small)


JOBS = (
    Job(TRAINER, "lightning-ddp", "DDP, throughput", test="tests/e2e/test_framework_time.py::test_lightning"),
    job("lightning-ddp-bf16", "DDP, bf16-mixed", "ddp", "bf16-mixed", shows="DDPStrategy"),
    job("lightning-ddp-fp16", "DDP, 16-mixed", "ddp", "16-mixed", shows="DDPStrategy", small=True),
    job("lightning-fsdp", "FSDP", "fsdp", "bf16-mixed", shows="FSDPStrategy"),
    job(
        "lightning-deepspeed",
        "DeepSpeed ZeRO 2",
        "deepspeed_stage_2",
        "bf16-mixed",
        shows="DeepSpeedStrategy",
        modules=("deepspeed",),
    ),
    job("fabric-ddp", "DDP, bf16-mixed", "ddp", "bf16-mixed", shows="DDPStrategy"),
    job("fabric-fsdp", "FSDP", "fsdp", "bf16-mixed", shows="FSDPStrategy", small=True),
    job("fabric-fsdp2", "FSDP2 (ModelParallelStrategy)", "fsdp2", "bf16-true", shows="ModelParallelStrategy"),
)
