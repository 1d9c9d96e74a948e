"""torchtitan's own trainer and debug models, with text and a tokenizer made here."""

from __future__ import annotations

from ..job import UPDATED, Framework, Job

FRAMEWORK = Framework(
    title="torchtitan 0.2",
    packages=("torchtitan", "torchao"),
    modules=("torchtitan.config.job_config", "datasets"),
    start=(
        *("-m", "torchtitan.train", "--training.steps", "4", "--training.seq_len", "256"),
        *("--training.local_batch_size", "8", "--metrics.log_freq", "1", "--metrics.disable_color_printing"),
    ),
)
FLUX = Framework(
    title="torchtitan 0.2: Flux",
    packages=("torchtitan",),
    modules=("torchtitan.config.job_config", "datasets", "torchvision"),
    start=(
        *("-m", "torchtitan.models.flux.train", "--job.custom_config_module", "torchtitan.models.flux.job_config"),
        *("--model.name", "flux", "--model.flavor", "flux-debug", "--training.dataset", "cc12m-test"),
        *("--training.test_mode", "--training.steps", "3", "--training.local_batch_size", "2"),
        *("--encoder.t5_encoder", "tests/assets/flux_test_encoders/t5-v1_1-xxl"),
        *("--encoder.clip_encoder", "tests/assets/flux_test_encoders/clip-vit-large-patch14"),
        *("--metrics.log_freq", "1", "--metrics.disable_color_printing", "--lr_scheduler.warmup_steps", "1"),
    ),
)
STEPS = r"step:  4 .*tps: [1-9]"
TP, PP, CP, EP = (f"--parallelism.{name}_parallel_degree" for name in ("tensor", "pipeline", "context", "expert"))
REPLICATE, SHARD = (f"--parallelism.data_parallel_{name}_degree" for name in ("replicate", "shard"))
CHECKPOINT = ("--checkpoint.enable", "--checkpoint.interval", "2")


def model(name: str, flavor: str = "debugmodel") -> tuple[str, ...]:
    return "--model.name", name, "--model.flavor", flavor


def schedule(name: str) -> tuple[str, ...]:
    return PP, "2", "--parallelism.pipeline_parallel_schedule", name


def job(
    name: str,
    feature: str,
    *arguments: str,
    ranks: int = 2,
    shows: tuple[str, ...] = (),
    steps: int = 4,
    modules: tuple[str, ...] = (),
    warns: tuple[str, ...] = (),
    fails: str = "",
) -> Job:
    """A job whose log has four steps and `shows`."""
    shows = (STEPS, *shows)
    return Job(
        FRAMEWORK, f"torchtitan-{name}", feature, arguments, ranks, (), shows, steps, warns, modules, fails=fails
    )


JOBS = (
    job("llama3-fsdp2", "Llama 3, FSDP2", shows=("Applied FSDP to the model",)),
    job("llama3-hsdp", "HSDP, 2 x 2", REPLICATE, "2", SHARD, "2", ranks=4, shows=("Applied HSDP to the model",)),
    job("llama3-ddp", "DDP", REPLICATE, "2", SHARD, "1", shows=("Applied DDP to the model",)),
    job("llama3-tp", "FSDP2 2 x TP 2", TP, "2", ranks=4, shows=("Applied Tensor Parallelism to the model",)),
    job(
        "llama3-async-tp",
        "TP 2, asynchronous (symmetric memory), compiled",
        *(TP, "2", "--parallelism.enable_async_tensor_parallel", "--compile.enable"),
        shows=("Async TP is enabled",),
    ),
    job("llama3-pp-1f1b", "PP 2, 1F1B", *schedule("1F1B"), shows=("Using pipeline schedule 1F1B",)),
    job(
        "llama3-pp-interleaved",
        "PP 2, interleaved 1F1B",
        *schedule("Interleaved1F1B"),
        shows=("Using pipeline schedule Interleaved1F1B with 8 microbatches and 4 stages",),
    ),
    job(
        "llama3-pp-zero-bubble",
        "PP 2, ZBV zero bubble",
        *(*schedule("ZBVZeroBubble"), "--activation_checkpoint.mode", "none"),
        shows=("Using pipeline schedule ZBVZeroBubble",),
    ),
    job(
        "llama3-pp-interleaved-zero-bubble",
        "PP 2, interleaved zero bubble",
        *(*schedule("InterleavedZeroBubble"), "--activation_checkpoint.mode", "none"),
        shows=("Using pipeline schedule InterleavedZeroBubble",),
    ),
    job("llama3-cp", "FSDP2 with CP 2", CP, "2", shows=("Applied Context Parallel to the model",)),
    job(
        "llama3-cp-alltoall",
        "CP 2, rotated by all-to-all",
        *(CP, "2", "--parallelism.context_parallel_rotate_method", "alltoall"),
        shows=("Applied Context Parallel to the model",),
    ),
    job(
        "llama3-4d",
        "FSDP2 x TP x PP, 2 each",
        *(TP, "2", *schedule("1F1B")),
        ranks=8,
        shows=("Applied Tensor Parallelism", "Applied FSDP", "Using pipeline schedule 1F1B"),
    ),
    job("llama3-compile", "compiled", "--compile.enable", shows=("Compiling each TransformerBlock",)),
    job("llama3-flex", "FlexAttention", *model("llama3", "debugmodel_flex_attn")),
    job("llama3-varlen", "variable-length attention", *model("llama3", "debugmodel_varlen_attn")),
    job(
        "llama3-full-ac",
        "full activation checkpointing",
        *("--activation_checkpoint.mode", "full"),
        shows=("Applied full activation checkpointing",),
    ),
    job(
        "llama3-cpu-offload",
        "FSDP2 with parameters on the CPU",
        "--training.enable_cpu_offload",
        shows=("Applied CPU Offloading",),
        warns=UPDATED,
    ),
    job("llama3-checkpoint", "checkpoints", *CHECKPOINT, shows=("Finished saving the checkpoint",), warns=UPDATED),
    job(
        "llama3-async-checkpoint",
        "asynchronous checkpoints",
        *(*CHECKPOINT, "--checkpoint.async_mode", "async"),
        shows=("Saving the checkpoint",),
        warns=UPDATED,
    ),
    job(
        "llama3-pinned-checkpoint",
        "asynchronous checkpoints through pinned memory",
        *(*CHECKPOINT, "--checkpoint.async_mode", "async_with_pinned_mem"),
        shows=("Saving the checkpoint",),
        warns=UPDATED,
    ),
    job(
        "llama3-float8",
        "float8, tensorwise, with float8 all-gather",
        *("--model.converters", "quantize.linear.float8", "--quantize.linear.float8.enable_fsdp_float8_all_gather"),
        *("--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",),
        modules=("torchao",),
        shows=("Swapped to Float8Linear layers",),
    ),
    job(
        "llama3-float8-rowwise",
        "float8, rowwise, compiled",
        *("--model.converters", "quantize.linear.float8", "--quantize.linear.float8.recipe_name", "rowwise"),
        "--compile.enable",
        modules=("torchao",),
        shows=("Float8 training active with recipe rowwise", "Swapped to Float8Linear layers"),
    ),
    job(
        "llama3-profiler",
        "its profiler and memory snapshots",
        *("--profiling.enable_profiling", "--profiling.profile_freq", "4", "--profiling.profiler_warmup", "1"),
        "--profiling.enable_memory_snapshot",
        shows=("Finished dumping profiler traces", "Finished dumping memory snapshot"),
    ),
    job(
        "llama3-tensorboard",
        "metrics for TensorBoard",
        "--metrics.enable_tensorboard",
        modules=("tensorboard",),
        shows=("TensorBoard logging enabled",),
    ),
    job(
        "llama3-validation",
        "validation",
        *("--validation.enable", "--validation.dataset", "c4_test", "--validation.freq", "2"),
        *("--validation.steps", "2", "--validation.seq_len", "256"),
        shows=("validate step:  4",),
    ),
    job("llama4-fsdp2", "Llama 4, FSDP2", *model("llama4"), shows=("Applied FSDP to the model",)),
    job("llama4-ep", "Llama 4, EP 2", *model("llama4"), EP, "2"),
    job("deepseek-fsdp2", "DeepSeek-V3, FSDP2", *model("deepseek_v3"), shows=("Applied FSDP to the model",)),
    job("deepseek-ep", "DeepSeek-V3, EP 2 x TP 2", *model("deepseek_v3"), EP, "2", TP, "2", ranks=4),
    job("deepseek-pp", "DeepSeek-V3, PP 2, EP 2", *model("deepseek_v3"), EP, "2", *schedule("1F1B"), ranks=4),
    job("qwen3-fsdp2", "Qwen3, FSDP2 x TP 2", *model("qwen3"), TP, "2", ranks=4, shows=("Applied Tensor Parallelism",)),
    job("qwen3-moe-ep", "Qwen3-MoE, EP 2", *model("qwen3", "debugmodel_moe"), EP, "2"),
    job("gpt-oss", "GPT-OSS, EP 2 (its FlexAttention is compiled)", *model("gpt_oss"), EP, "2"),
    Job(
        FRAMEWORK,
        "torchtitan-moe-routing",
        "Qwen3-MoE over 4 ranks: what ranks send is what others receive",
        ranks=4,
        test="tests/e2e/test_routing_in_frameworks.py::test_torchtitan_s_experts_on_several_ranks",
    ),
    Job(
        FLUX,
        "torchtitan-flux",
        "FSDP2",
        shows=(r"step:  3 .*tps: [1-9]", "Applied FSDP to the model"),
        steps=3,
    ),
    Job(
        FLUX,
        "torchtitan-flux-cp",
        "CP 2",
        (CP, "2"),
        shows=(r"step:  3 .*tps: [1-9]", "Applied Context Parallel to the Flux model"),
        steps=3,
    ),
)
