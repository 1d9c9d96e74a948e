"""The lists of hooked calls against what the installed torch's libraries import, and against each other.

Torch is looked for in ``PHANTORA_TEST_TORCH`` (a site-packages folder, or several) and in this interpreter's own.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[3] / "emu" / "hook"
ENTRY = re.compile(r"^(EMULATED|ACCEPTED|REFUSED|LEFT)\((?:[A-Z]+, )?(\w+)\)", re.MULTILINE)
HOOKED = re.compile(
    r"^(?:cuda[A-Z]|__cuda|cu[A-Z]|nccl[A-Z]|nvml[A-Z]|cublas|cudnn[A-Z]|cufft|cusparse|cusolver|curand|cupti|nvrtc|nvshmem)"
)


def listed() -> Counter[str]:
    return Counter(name for path in HOOK.glob("*/*calls.def") for _, name in ENTRY.findall(path.read_text()))


@cache
def torch_libraries() -> tuple[Path, ...]:
    folders = [Path(text) / "torch" for text in os.environ.get("PHANTORA_TEST_TORCH", "").split(os.pathsep) if text]
    spec = importlib.util.find_spec("torch")
    if spec and spec.origin:
        folders.append(Path(spec.origin).parent)
    return tuple(path for folder in folders for path in sorted((folder / "lib").glob("lib*.so")))


def imported(library: Path) -> set[str]:
    text = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in text.splitlines()}
    return {name for name in names if HOOKED.match(name)}


def test_each_call_is_listed_once() -> None:
    assert [name for name, times in listed().items() if times > 1] == []


def test_every_line_of_a_list_is_an_entry() -> None:
    for path in HOOK.glob("*/*calls.def"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        strange = [line for line in text.splitlines() if line.strip() and not ENTRY.match(line)]
        assert strange == [], path


@pytest.mark.versions
@pytest.mark.torch
def test_lists_cover_what_torch_imports() -> None:
    libraries = torch_libraries()
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    if not any(path.name == "libtorch_cuda.so" for path in libraries):
        pytest.skip("no CUDA build of PyTorch here: set PHANTORA_TEST_TORCH to a site-packages folder that has one")
    known = listed()
    missing = {library.name: sorted(imported(library) - known.keys()) for library in libraries}
    assert {name: calls for name, calls in missing.items() if calls} == {}
