"""The hook's library modules: C tests against stand-ins for its core, once under ASan and UBSan; numbers and struct
layouts against NVIDIA's headers, where a CUDA build of torch has brought them (see test_call_lists.py)."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emu.hook.build import packed_workspaces

HERE = Path(__file__).parent
HOOK = HERE.parents[2] / "emu" / "hook"


def sources(folder: str, *names: str) -> list[Path]:
    return [HOOK / folder / f"{name}.c" for name in names]


DATA = [
    *sources("data", "data", "moves", "known", "strided", "pending", "python_actions", "snapshots"),
    *sources("sources", "source", "source_map", "store", "contents", "table", "remote", "host_names"),
    *sources("threads", "python"),
    *sources("core", "alloc", "hash", "intervals", "interned", "lock"),
]
TESTS = {
    "test_data.c": DATA,
    "test_nccl.c": [
        *DATA,
        *sources("nccl", "collectives", "comm", "connections", "group", "members", "memory", "misc", "references"),
        *sources("device", "versions"),
    ],
    "test_math.c": [
        *DATA,
        *sources("cudnn", "handle", "backend", "descriptors", "graph", "work", "workspace"),
        *sources("cublas", "handle", "gemm", "other", "lt"),
        *sources("kernels", "library"),
        *sources("costs", "signature"),
        *sources("device", "versions"),
    ],
}
COMPILE = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{HOOK}", f"-I{HERE}"]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.parametrize(
    "sanitize",
    [
        pytest.param("", id="plain", marks=pytest.mark.thorough),
        pytest.param("address,undefined", id="sanitized"),
    ],
)
@pytest.mark.parametrize("name", TESTS)
def test_c(name: str, sanitize: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    compiled = [HERE / name, HERE / "fakes.c", HERE / "refused.c", *TESTS[name]]
    flags = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-DPH_CHECK_LOCKS"] if sanitize else []
    (tmp_path / "workspaces.bin").write_bytes(packed_workspaces())  # what cudnn/workspace.c includes
    flags.append(f"-Wa,-I,{tmp_path}")
    subprocess.run(["cc", *COMPILE, *flags, "-o", program, *compiled, "-lpthread", "-ldl", "-lm"], check=True)
    # Communicator handles are kept for threads that may still ask about them: no leak check.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    run = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr


BROUGHT = {
    "cu13": ["cublas*.h", "library_types.h", "cufft.h", "cusolver*.h", "cusparse.h"],
    "cudnn": ["cudnn*.h"],
    "nccl": ["nccl.h"],
}
STOOD_IN = ["cuda_runtime.h", "cuda_runtime_api.h", "cuComplex.h", "cuda_fp16.h", "cuda_bf16.h", "vector_types.h"]


def nvidia_folders() -> list[Path]:
    folders = [Path(text) / "nvidia" for text in os.environ.get("PHANTORA_TEST_TORCH", "").split(os.pathsep) if text]
    spec = importlib.util.find_spec("nvidia")
    folders += [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    return [folder for folder in folders if all((folder / part / "include").is_dir() for part in BROUGHT)]


@pytest.mark.torch
def test_layouts(tmp_path: Path) -> None:
    folders = nvidia_folders()
    if not folders:
        pytest.skip("no CUDA 13 libraries here: set PHANTORA_TEST_TORCH to a site-packages folder that has them")
    for number, folder in enumerate(folders):
        include = tmp_path / str(number)
        include.mkdir()
        for part, patterns in BROUGHT.items():
            for header in (path for pattern in patterns for path in (folder / part / "include").glob(pattern)):
                (include / header.name).symlink_to(header)
        shutil.copy(HERE / "standins" / "driver_types.h", include)
        for name in STOOD_IN:
            (include / name).write_text('#include "driver_types.h"\n')
        command = ["cc", "-std=gnu11", "-w", "-fsyntax-only", "-iquote", HOOK, f"-I{include}", HERE / "layouts.c"]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, f"{folder}: {run.stderr}"
