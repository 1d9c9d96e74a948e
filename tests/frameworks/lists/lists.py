"""The lists: where a framework keeps its tests, and the command that it runs them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TestList:
    """A list of tests of one framework.

    `collect` is a program for the ranks' interpreter, started in `folder` of the clone of `checkout` (in the folder
    `scripts` if there is none), that prints "test: " and the name of each test on a line. `command` is what
    `--launcher` starts there: `{out}` becomes an empty folder, and `{tests}` the names of the tests. `together`: how
    many tests share a run. `junit`: the command writes verdicts to `{out}/junit*.xml`, where a test passes if it does
    in each file that has it, and names are pytest's; without it, the exit code is the verdict of the only test. If
    ranks also write what they print to `{out}/*.log`, tests that all have ended count in a run that was cut.

    `numbers`: whether tests may compare results of kernels.
    """

    __test__ = False  # no test class of pytest

    name: str
    title: str
    ranks: int
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    collect: tuple[str, ...]
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    checkout: str = ""
    folder: str = ""
    together: int = 1
    junit: bool = False
    numbers: bool = True


_ENABLED = """
import importlib, sys
suite = sys.argv[1]
from tests.integration_tests import run_tests
for test in run_tests._TEST_SUITES_FUNCTION[suite]():
    if not test.disabled:
        print("test:", test.test_name)
"""


def _torchtitan(suite: str) -> TestList:
    """Returns a suite of torchtitan's integration tests. Its own runner starts `run_train.sh`, which starts torchrun;
    a test passes if that ends with 0.
    """
    return TestList(
        name=f"torchtitan-{suite}",
        title=f"torchtitan's integration tests: {suite}",
        ranks=8,
        packages=("torch", "torchao"),
        modules=("tyro", "datasets", "spmd_types", "tensorboard", "wandb"),
        checkout="pytorch/torchtitan",
        collect=("-c", _ENABLED, suite),
        command=(
            *("python", "-m", "tests.integration_tests.run_tests", "{out}/results"),
            *("--test_suite", suite, "--test_name", "{tests}"),
        ),
        numbers=False,
    )


_SCRIPTS = """
import pkgutil
from accelerate.test_utils import scripts
for module in pkgutil.walk_packages(scripts.__path__, scripts.__name__ + "."):
    if module.name.rpartition(".")[2].startswith("test_"):
        print("test:", module.name)
"""


_NODES = """
import sys
import pytest
class Nodes:
    def pytest_collection_finish(self, session):
        seen = set()
        for item in session.items:
            if MEANT(item):
                print("test:", item.nodeid)
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Nodes()]))
"""


def _nodes(meant: str, *arguments: str) -> tuple[str, ...]:
    """Returns a program that prints the tests which pytest finds. `meant`: which of its items, in Python."""
    return "-c", _NODES.replace("MEANT(item)", meant), *arguments


_PYTEST = ("python", "-m", "pytest", "-v", "-p", "no:cacheprovider", "--junit-xml", "{out}/junit.xml")


def _spawned(name: str, title: str, *environment: tuple[str, str]) -> TestList:
    """Returns PyTorch's tests that start their processes themselves."""
    outside = ("-c", "/dev/null", "--rootdir", ".")  # the project's own settings of pytest
    return TestList(
        name=name,
        title=title,
        ranks=2,
        packages=("torch", "expecttest"),
        modules=("expecttest", "pytest"),
        collect=_nodes("True", *outside, "spawned.py"),
        command=(*_PYTEST, *outside, "--timeout", "200", "{tests}"),
        environment=(("BACKEND", "nccl"), ("WORLD_SIZE", "2"), ("TEMP_DIR", "/tmp"), *environment),
        together=24,
        junit=True,
    )


_ONE_OF_EACH = "(name := item.nodeid.partition('[')[0]) not in seen and not seen.add(name)"
"""Of tests with parameters those with the first ones."""
_MEGATRON = tuple(
    f"tests/unit_tests/{place}"
    for place in (
        *("dist_checkpointing", "distributed", "pipeline_parallel", "tensor_parallel", "test_parallel_state.py"),
        "transformer/moe",
    )
)
_MEGATRON_LEFT_OUT = tuple(
    f"--ignore=tests/unit_tests/{file}"
    for file in (
        "dist_checkpointing/models/test_moe_experts.py",
        "transformer/moe/test_moe_single_grouped_weight_numerics.py",
    )
)
"""They ask for a GPU when they are imported, and so cannot be collected without one."""
_DEEPSPEED = ("comm", "checkpoint", "model_parallelism", "pipe", "runtime", "sequence_parallelism", "utils", "v1")


LISTS: Sequence[TestList] = (
    _torchtitan("features"),
    _torchtitan("models"),
    _torchtitan("h100"),
    _spawned("pytorch-nccl", "PyTorch's tests of torch.distributed and DDP with NCCL, two processes"),
    _spawned(
        "pytorch-nccl-former",
        "The same with the NCCL backend that PyTorch 2.15 had before: tests that fail above",
        ("TORCH_DIST_USE_NCCL2", "0"),
    ),
    TestList(
        name="accelerate",
        title="Accelerate's test scripts, two processes",
        ranks=2,
        packages=("accelerate", "torch"),
        modules=("accelerate",),
        collect=("-c", _SCRIPTS),
        command=(
            *("python", "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
            *("--module", "{tests}"),
        ),
    ),
    TestList(
        name="deepspeed",
        title="DeepSpeed's unit tests that start several processes, four GPUs",
        ranks=4,
        packages=("torch", "transformers"),
        modules=("mup", "pytest", "pytest_timeout", "transformers"),
        checkout="deepspeedai/DeepSpeed",
        folder="tests",
        collect=_nodes('getattr(item.cls, "is_dist_test", False)', *(f"unit/{folder}" for folder in _DEEPSPEED)),
        command=(*_PYTEST, "--timeout", "300", "{tests}"),
        environment=(("DS_ACCELERATOR", "cuda"),),
        together=12,
        junit=True,
    ),
    TestList(
        name="megatron-core",
        title="Megatron-core's unit tests of what several ranks do, eight GPUs, the first parameters of each",
        ranks=8,
        packages=("torch", "transformer_engine"),
        modules=("click", "psutil", "pytest", "pytest_asyncio", "pytest_mock", "transformer_engine"),
        checkout="NVIDIA/Megatron-LM",
        collect=_nodes(_ONE_OF_EACH, *_MEGATRON_LEFT_OUT, *_MEGATRON),
        command=(
            *("python", "-m", "torch.distributed.run", "--nproc-per-node", "8", "--no-python"),
            *("bash", "-c", 'exec python "$@" --junit-xml "$0.$RANK.xml" > "$0.$RANK.log" 2>&1', "{out}/junit"),
            *("-m", "pytest", "-v", "-p", "no:cacheprovider", "{tests}"),
        ),
        together=24,
        junit=True,
    ),
    TestList(
        name="trl",
        title="TRL's distributed tests, two processes",
        ranks=2,
        packages=("torch", "transformers", "accelerate", "deepspeed", "peft"),
        modules=("trl", "datasets", "deepspeed", "liger_kernel", "peft", "pytest", "pytest_datadir"),
        checkout="huggingface/trl",
        collect=_nodes("True", "tests/distributed"),
        command=(*_PYTEST, "{tests}"),
        environment=(("HF_HUB_OFFLINE", "1"),),
        together=4,
        junit=True,
        numbers=False,
    ),
    TestList(
        name="accelerate-multi",
        title="Accelerate's tests that need several GPUs, two processes",
        ranks=2,
        packages=("accelerate", "torch"),
        modules=("accelerate", "parameterized", "pytest", "pytest_timeout"),
        checkout="huggingface/accelerate",
        collect=_nodes(
            _ONE_OF_EACH, "tests/test_multidevice.py", "tests/test_metrics.py", "tests/test_grad_sync.py", "tests/fsdp"
        ),
        command=(*_PYTEST, "--timeout", "300", "{tests}"),
        environment=(("HF_HUB_OFFLINE", "1"),),
        together=12,
        junit=True,
    ),
)
