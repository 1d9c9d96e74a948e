"""Hugging Face: Trainer, Accelerate, TRL and PEFT on a small Llama."""

from __future__ import annotations

from ..job import UPDATED, Framework, Job

TRAINER = Framework(
    "Hugging Face: Trainer", ("transformers", "accelerate"), ("transformers", "accelerate"), ("hf_trainer.py",)
)
ACCELERATE = Framework(
    "Hugging Face: Accelerate", ("accelerate", "transformers"), ("accelerate", "transformers"), ("hf_accelerate.py",)
)
TRL = Framework("Hugging Face: TRL and PEFT", ("trl", "peft", "transformers"), ("transformers", "peft"), ("hf_trl.py",))


def trainer(
    name: str,
    feature: str,
    *arguments: str,
    ranks: int = 2,
    shows: tuple[str, ...] = (),
    modules: tuple[str, ...] = (),
    small: bool = False,
) -> Job:
    warns = UPDATED if "--save_strategy" in arguments else ()
    return Job(
        TRAINER, f"trainer-{name}", feature, arguments, ranks, (), ("steps 4 ", *shows), 4, warns, modules, small
    )


def accelerate(
    name: str,
    feature: str,
    *arguments: str,
    ranks: int = 2,
    shows: tuple[str, ...] = (),
    modules: tuple[str, ...] = (),
    small: bool = False,
) -> Job:
    shows = ("4 steps done", *shows)
    warns = UPDATED if "--save" in arguments else ()
    return Job(ACCELERATE, f"accelerate-{name}", feature, arguments, ranks, (), shows, 4, warns, modules, small)


def trl(
    name: str,
    feature: str,
    *arguments: str,
    ranks: int = 2,
    modules: tuple[str, ...] = ("trl", "datasets"),
    small: bool = False,
) -> Job:
    return Job(TRL, f"trl-{name}", feature, arguments, ranks, (), ("steps 4 ",), 4, (), modules, small)


JOBS = (
    Job(
        TRAINER, "trainer-ddp", "DDP, speed metrics", test="tests/e2e/test_framework_time.py::test_hugging_face_trainer"
    ),
    trainer("bf16", "DDP, bf16, gradient checkpointing", "--bf16", "--gradient_checkpointing"),
    trainer("fp16", "DDP, fp16, accumulation", "--fp16", "--gradient_accumulation_steps", "2"),
    trainer(
        "fsdp2",
        "FSDP2",
        "--bf16",
        "--fsdp",
        "full_shard auto_wrap",
        "--fsdp_config",
        '{"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}',
        shows=("FSDPLlamaForCausalLM",),
        small=True,
    ),
    trainer(
        "deepspeed",
        "DeepSpeed ZeRO 3",
        "--bf16",
        "--deepspeed",
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto", '
        '"gradient_accumulation_steps": "auto", "gradient_clipping": "auto"}',
        modules=("deepspeed",),
        shows=("DeepSpeedEngine",),
    ),
    trainer("compile", "compiled", "--bf16", "--torch_compile", shows=("OptimizedModule|compiled",)),
    trainer(
        "eval-save",
        "evaluates, saves and resumes",
        "--bf16",
        "--eval_strategy",
        "steps",
        "--eval_steps",
        "2",
        "--save_strategy",
        "steps",
        "--save_steps",
        "2",
        "--resume",
        shows=("eval_runtime", "resumed at step 2"),
    ),
    Job(
        TRAINER,
        "transformers-moe",
        "Qwen3-MoE, grouped, FSDP2",
        test="tests/e2e/test_routing_in_frameworks.py::test_hugging_face",
    ),
    accelerate("ddp", "DDP, bf16", "--mixed-precision", "bf16", shows=("DistributedDataParallel",)),
    accelerate("fp16", "DDP, fp16 with loss scaling", "--mixed-precision", "fp16", shows=("loss scale",), small=True),
    accelerate("fsdp2", "FSDP2", "--plugin", "fsdp2", "--mixed-precision", "bf16", shows=("FSDPLlamaForCausalLM",)),
    accelerate(
        "zero2",
        "DeepSpeed plugin, ZeRO 2",
        "--plugin",
        "zero2",
        "--mixed-precision",
        "bf16",
        modules=("deepspeed",),
        shows=("DeepSpeedEngine",),
    ),
    accelerate(
        "zero3",
        "DeepSpeed plugin, ZeRO 3",
        "--plugin",
        "zero3",
        "--mixed-precision",
        "bf16",
        modules=("deepspeed",),
        shows=("DeepSpeedEngine",),
    ),
    accelerate(
        "accumulate",
        "gradient accumulation, checkpoint of its state",
        "--accumulate",
        "2",
        "--save",
        shows=("state loaded",),
    ),
    trl("sft", "supervised fine-tuning", "sft"),
    trl("sft-lora", "supervised fine-tuning with LoRA", "sft", "--lora"),
    trl("sft-packing", "supervised fine-tuning, packed", "sft", "--packing"),
    trl("dpo", "DPO", "dpo"),
    trl("grpo", "GRPO, completions by generate()", "grpo"),
    trl("reward", "reward model", "reward"),
    Job(TRL, "peft-lora", "LoRA under Trainer", ("lora",), shows=("steps 4 ", "trainable params"), steps=4, small=True),
    Job(TRL, "peft-dora", "DoRA under Trainer", ("dora",), shows=("steps 4 ", "trainable params"), steps=4),
)
