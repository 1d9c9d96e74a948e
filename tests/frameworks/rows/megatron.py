"""Megatron-LM's pretrain_gpt.py with its mock data, without Transformer Engine and Apex."""

from __future__ import annotations

from dataclasses import replace

from ..job import UPDATED, Framework, Job

FRAMEWORK = Framework(
    title="Megatron-LM",
    packages=(),
    modules=(),
    checkout="NVIDIA/Megatron-LM",
    commit="core_v0.16.1",
    environment=(("CUDA_DEVICE_MAX_CONNECTIONS", "1"),),
    start=(
        *("pretrain_gpt.py", "--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "1000"),
        *("--num-layers", "4", "--hidden-size", "256", "--num-attention-heads", "4", "--seq-length", "256"),
        *("--max-position-embeddings", "256", "--micro-batch-size", "1", "--global-batch-size", "8"),
        *("--train-iters", "4", "--lr", "1e-4", "--transformer-impl", "local", "--log-interval", "1"),
        *("--no-gradient-accumulation-fusion", "--no-persist-layer-norm", "--log-throughput", "--eval-iters", "0"),
        *("--eval-interval", "1000", "--no-masked-softmax-fusion"),
    ),
)
NEWER = replace(
    FRAMEWORK,
    title="Megatron-LM 0.19, on Python 3.12",
    commit="core_v0.19.0",
    folder="Megatron-LM-core_v0.19.0",
    python=(3, 12),
)
MAIN = replace(NEWER, title="Megatron-LM main, on Python 3.12", commit="d98e8a64dd", folder="Megatron-LM-main")
CORE = Framework(title="Megatron-core, called by a script", packages=("megatron-core",), modules=(), start=())
LOSS = (r"training\.py:\d+ decides by a value that is not computed: avg >= 0\.0",)
"""It prints no loss that is negative."""
CLIPS = (r"clip_grads\.py:\d+ decides by a value that is not computed: clip_coeff < 1\.0",)
"""It scales gradients by kernels of its own, if their norm is larger than `--clip-grad`."""
STEPS = r"iteration +4/ +4 .*throughput per GPU"
TP, PP, CP, EP = (f"--{name}-parallel-size" for name in ("tensor-model", "pipeline-model", "context", "expert-model"))
MOE = (
    *("--num-experts", "4", "--moe-router-topk", "2", "--disable-bias-linear", EP, "2"),
    *("--moe-token-dispatcher-type", "alltoall"),
)
CAPACITY = ("--moe-expert-capacity-factor", "1.0")
SAVE = ("--save", "checkpoints", "--save-interval", "2", "--ckpt-format", "torch_dist")


def job(
    name: str,
    feature: str,
    *arguments: str,
    framework: Framework = FRAMEWORK,
    precision: str = "--bf16",
    ranks: int = 2,
    shows: tuple[str, ...] = (),
    fails: str = "",
) -> Job:
    prefix = {FRAMEWORK.title: "megatron", NEWER.title: "megatron-0.19", MAIN.title: "megatron-main"}[framework.title]
    warns = UPDATED if "--save" in arguments else LOSS if framework is MAIN else ()
    warns = (*warns, *CLIPS)
    return Job(
        framework,
        f"{prefix}-{name}",
        feature,
        (precision, *arguments),
        ranks,
        (),
        (STEPS, *shows),
        4,
        warns,
        fails=fails,
    )


def test(name: str, feature: str, where: str, ranks: int) -> Job:
    return Job(CORE, f"megatron-core-{name}", feature, ranks=ranks, test=where)


JOBS = (
    job("dp", "data parallel"),
    job(
        "dist-optimizer",
        "distributed optimizer, gradients and parameters overlapped",
        *("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"),
    ),
    job("tp", "TP 2", TP, "2"),
    job("pp", "PP 2", PP, "2"),
    job(
        "vpp",
        "PP 2 with two virtual stages each",
        *(PP, "2", "--num-layers-per-virtual-pipeline-stage", "1"),
    ),
    job("tp-pp-dp", "TP x PP x DP, 2 each", TP, "2", PP, "2", "--use-distributed-optimizer", ranks=8),
    job(
        "cp",
        "CP 2",
        CP,
        "2",
        fails="it needs Transformer Engine's attention, whose extension can be built without nvcc (libraries.md)",
    ),
    job(
        "moe",
        "MoE, EP 2, no token dropped",
        *MOE,
        fails="without Transformer Engine, the router of 0.16 reads a name that is not defined (te_general_gemm)",
    ),
    job(
        "recompute",
        "full recomputation",
        "--recompute-granularity",
        "full",
        "--recompute-method",
        "uniform",
        "--recompute-num-layers",
        "1",
    ),
    job("fp16", "fp16 with loss scaling", precision="--fp16", shows=("loss scale",)),
    job("save", "checkpoint", *SAVE, shows=("successfully saved checkpoint",)),
    job("async-save", "asynchronous checkpoint", *SAVE, "--async-save", shows=("successfully saved checkpoint",)),
    job(
        "tp-pp",
        "TP 2 x PP 2 with two virtual stages each",
        TP,
        "2",
        PP,
        "2",
        "--num-layers-per-virtual-pipeline-stage",
        "1",
        ranks=4,
        framework=NEWER,
    ),
    job("moe", "MoE, EP 2, no token dropped", *MOE, framework=NEWER),
    job("moe-capacity", "MoE, EP 2, tokens over the capacity dropped", *MOE, *CAPACITY, framework=NEWER),
    job(
        "moe-padded",
        "MoE, EP 2, padded to the capacity",
        *MOE,
        *CAPACITY,
        "--moe-pad-expert-input-to-capacity",
        framework=NEWER,
    ),
    job(
        "async-save",
        "asynchronous checkpoint",
        *SAVE,
        "--async-save",
        shows=("successfully saved checkpoint",),
        framework=NEWER,
    ),
    job(
        "tp-pp",
        "TP 2 x PP 2 with two virtual stages each",
        TP,
        "2",
        PP,
        "2",
        "--num-layers-per-virtual-pipeline-stage",
        "1",
        ranks=4,
        framework=MAIN,
    ),
    job(
        "dist-optimizer",
        "distributed optimizer, gradients and parameters overlapped",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        framework=MAIN,
    ),
    job("moe", "MoE, EP 2, no token dropped", *MOE, framework=MAIN),
    test("timers", "timers", "tests/e2e/test_framework_time.py::test_megatron_timers", 2),
    test("moe", "MoE, EP 2 x TP 2", "tests/e2e/test_routing_in_frameworks.py::test_megatron_core", 4),
    test(
        "capacity",
        "MoE with a capacity, with and without padding",
        "tests/e2e/test_routing_in_frameworks.py::test_megatron_core_with_a_capacity",
        4,
    ),
)
