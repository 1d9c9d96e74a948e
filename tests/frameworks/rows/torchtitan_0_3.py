"""torchtitan 0.3 and what follows it: debug models by name."""

from __future__ import annotations

from dataclasses import replace

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
MAIN = replace(
    FRAMEWORK,
    title="torchtitan main",
    packages=("torchao",),
    modules=("datasets", "grain", "torch_checkpointing", "spmd_types"),
    start=(
        *("-m", "torchtitan.train", "--training.steps", "4", "--training.max_context_length", "256"),
        *("--training.num_tokens_per_microbatch_per_dp_rank", "2048", "--metrics.log_freq", "1"),
        "--metrics.disable_color_printing",
    ),
    checkout="pytorch/torchtitan",
    commit="b5bcd76c6",
)
NO_TORCHAO = "it needs PyTorch 2.15, beside whose Triton 3.9 the MoE kernels of torchao 0.18.0 cannot be imported"
STEPS = r"step: *4 .*tps: [1-9]"
TP, PP, CP, EP = (f"--parallelism.{name}_parallel_degree" for name in ("tensor", "pipeline", "context", "expert"))
EAGER = "--training.disable_cuda_graphs"
"""torchtitan 0.3 captures a step as a CUDA graph by default, and refuses to do so with pipelines and most experts."""
CAPTURED = "Recorded CUDA graph"


def job(
    name: str,
    feature: str,
    module: str,
    *arguments: str,
    ranks: int = 2,
    shows: tuple[str, ...] = (),
    modules: tuple[str, ...] = (),
    fails: str = "",
    framework: Framework = FRAMEWORK,
) -> Job:
    """A job whose log has four steps and `shows`. The first argument is the configuration."""
    config, *flags = arguments
    arguments = ("--module", module, "--config", config, *flags)
    shows = (STEPS, *shows) if EAGER in flags else (STEPS, CAPTURED, *shows)
    prefix = "torchtitan3" if framework is FRAMEWORK else "torchtitan-main"
    return Job(framework, f"{prefix}-{name}", feature, arguments, ranks, (), shows, 4, (), modules, fails=fails)


def schedule(name: str) -> tuple[str, ...]:
    return PP, "2", "--parallelism.pipeline_parallel_schedule", name, EAGER


JOBS = (
    job("llama3-fsdp2", "Llama 3, FSDP2, as a CUDA graph", "llama3", "llama3_debugmodel"),
    job("llama3-eager", "Llama 3, FSDP2, without graphs", "llama3", "llama3_debugmodel", EAGER),
    job("llama3-tp", "FSDP2 2 x TP 2", "llama3", "llama3_debugmodel", TP, "2", ranks=4),
    job("llama3-pp", "PP 2, interleaved 1F1B", "llama3", "llama3_debugmodel", *schedule("Interleaved1F1B")),
    job(
        "llama3-pp-zbv",
        "PP 2, ZBV zero bubble",
        *("llama3", "llama3_debugmodel", *schedule("ZBVZeroBubble")),
        fails="its attention is a compiled FlexAttention, whose backward pass PyTorch refuses to run with "
        "`retain_graph`, as zero-bubble schedules do",
    ),
    job("llama3-cp", "CP 2", "llama3", "llama3_debugmodel", CP, "2"),
    job(
        "llama3-float8",
        "float8",
        *("llama3", "llama3_debugmodel_float8"),
        modules=("torchao",),
        fails=NO_TORCHAO,
    ),
    job("deepseek-ep", "DeepSeek-V3, EP 2", "deepseek_v3", "deepseek_v3_debugmodel", EP, "2", EAGER),
    job("qwen3", "Qwen3, FSDP2", "qwen3", "qwen3_debugmodel"),
    job("qwen3-moe-ep", "Qwen3-MoE, EP 2", "qwen3", "qwen3_moe_debug", EP, "2", EAGER),
    job(
        "gpt-oss",
        "GPT-OSS, EP 2",
        *("gpt_oss", "gpt_oss_debugmodel", EP, "2", EAGER),
        fails="on Hopper its attention asks for FlashAttention 3 (`flash_attn_interface`), which is not on PyPI",
    ),
    job("muse-glimmer", "Muse Glimmer (text), FSDP2", "muse_glimmer", "muse_glimmer_debugmodel"),
    job(
        "flux",
        "Flux, FSDP2",
        "flux",
        *("flux_debugmodel", EAGER, "--dataloader.dataset", "cc12m-test", "--tokenizer.test_mode"),
        *("--tokenizer.t5_tokenizer_path", "tests/assets/tokenizer"),
        *("--tokenizer.clip_tokenizer_path", "tests/assets/tokenizer", "--encoder.random_init"),
        *("--encoder.t5_encoder", "tests/assets/flux_test_encoders/t5-v1_1-xxl"),
        *("--encoder.clip_encoder", "tests/assets/flux_test_encoders/clip-vit-large-patch14"),
    ),
    job("llama3", "Llama 3, FSDP2, as a CUDA graph", "llama3", "llama3_debugmodel", framework=MAIN),
    job(
        "llama3-float8",
        "float8",
        "llama3",
        "llama3_debugmodel_float8",
        modules=("torchao",),
        fails=NO_TORCHAO,
        framework=MAIN,
    ),
    job("llama3-tp", "FSDP2 2 x TP 2", "llama3", "llama3_debugmodel", TP, "2", ranks=4, framework=MAIN),
    job("deepseek-ep", "DeepSeek-V3, EP 2", "deepseek_v3", "deepseek_v3_debugmodel", EP, "2", EAGER, framework=MAIN),
    job("qwen3-moe-ep", "Qwen3-MoE, EP 2", "qwen3", "qwen3_moe_debug", EP, "2", EAGER, framework=MAIN),
    job("gpt-oss-flex", "GPT-OSS, FlexAttention", "gpt_oss", "gpt_oss_debugmodel_flex", EAGER, framework=MAIN),
)
