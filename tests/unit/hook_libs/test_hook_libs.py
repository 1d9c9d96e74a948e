"""Compiles the C tests of the hook's library modules against stand-ins for its core, and runs them, once under ASan and UBSan."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOOK = HERE.parents[2] / "emu" / "hook"
DATA = ["data.c", "data_known.c", "data_pending.c", "data_python.c"]
CUDNN = ["cudnn.c", "cudnn_backend.c", "cudnn_desc.c", "cudnn_graph.c", "cudnn_work.c"]
TESTS = {
    "test_data.c": DATA,
    "test_nccl.c": [*DATA, "nccl.c", "nccl_comm.c", "nccl_group.c", "nccl_misc.c", "versions.c"],
    "test_math.c": [*DATA, *CUDNN, "cublas.c", "cublas_gemm.c", "cublas_more.c", "cublaslt.c", "gemm.c", "versions.c"],
}
COMPILE = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{HOOK}", f"-I{HERE}"]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.parametrize("sanitize", ["", "address,undefined"], ids=["plain", "sanitized"])
@pytest.mark.parametrize("name", TESTS)
def test_c(name: str, sanitize: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    sources = [HERE / name, HERE / "fakes.c", HERE / "refused.c", *(HOOK / source for source in TESTS[name])]
    flags = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"] if sanitize else []
    subprocess.run(["cc", *COMPILE, *flags, "-o", program, *sources, "-lpthread", "-ldl"], check=True)
    # Communicator handles are kept for threads that may still ask about them: no leak check.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    run = subprocess.run([program], capture_output=True, text=True, timeout=120, env=environment)
    assert run.returncode == 0, run.stderr
