"""torchtitan 0.3: its debug models by name."""

from __future__ import annotations

from ..job import Framework, Job

FRAMEWORK = Framework(
    title="torchtitan 0.3",
    packages=("torchtitan", "torchao"),
    modules=("torchtitan.trainer", "torchtitan.models.muse_glimmer", "datasets"),
    start=(
        *("-m", "torchtitan.train", "--training.steps", "4", "--training.seq_len", "256"),
        *("--training.local_batch_size", "8", "--metrics.log_freq", "1", "--metrics.disable_color_printing"),
    ),
)
STEPS = r"step: *4 .*tps: [1-9]"
TP, PP, CP, EP = (f"--parallelism.{name}_parallel_degree" for name in ("tensor", "pipeline", "context", "expert"))


def job(name: str, feature: str, module: str, *arguments: str, ranks: int = 2, modules: tuple[str, ...] = ()) -> Job:
    config, *flags = arguments
    arguments = ("--module", module, "--config", config, *flags)
    return Job(FRAMEWORK, f"torchtitan3-{name}", feature, arguments, ranks, (), (STEPS,), 4, (), modules)


def schedule(name: str) -> tuple[str, ...]:
    return PP, "2", "--parallelism.pipeline_parallel_schedule", name


JOBS = (
    job("llama3-fsdp2", "Llama 3, FSDP2", "llama3", "llama3_debugmodel"),
    job("llama3-tp", "FSDP2 2 x TP 2", "llama3", "llama3_debugmodel", TP, "2", ranks=4),
    job("llama3-pp", "PP 2, interleaved 1F1B", "llama3", "llama3_debugmodel", *schedule("Interleaved1F1B")),
    job("llama3-pp-zbv", "PP 2, ZBV zero bubble", "llama3", "llama3_debugmodel", *schedule("ZBVZeroBubble")),
    job("llama3-cp", "CP 2", "llama3", "llama3_debugmodel", CP, "2"),
    job("llama3-float8", "float8", "llama3", "llama3_debugmodel_float8", modules=("torchao",)),
    job("deepseek-ep", "DeepSeek-V3, EP 2", "deepseek_v3", "deepseek_v3_debugmodel", EP, "2"),
    job("qwen3", "Qwen3, FSDP2", "qwen3", "qwen3_debugmodel"),
    job("qwen3-moe-ep", "Qwen3-MoE, EP 2", "qwen3", "qwen3_moe_debug", EP, "2"),
    job("gpt-oss", "GPT-OSS, EP 2", "gpt_oss", "gpt_oss_debugmodel", EP, "2"),
    job("flux", "Flux, FSDP2", "flux", "flux_debugmodel"),
)
