"""C tests of the core, linked with the whole library, plain and sanitized; layouts against NVIDIA's headers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emu.contract import installed

from .conftest import HOOK, c_program
from .coordinator import DEVICE_FILE, device_file

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "sanitize",
    [
        pytest.param(False, id="plain", marks=pytest.mark.thorough),
        pytest.param(True, id="sanitized"),
    ],
)
@pytest.mark.parametrize("name", ["test_memory.c", "test_graphs.c"])
def test_c(name, sanitize, library, tmp_path, request):
    linked = request.getfixturevalue("sanitized_library") if sanitize else library
    program, device = c_program(tmp_path, HERE / name, linked, sanitize), device_file(tmp_path, attr__38=12345678)
    # Handles of streams and events are kept for reuse, interned names for ever: no leak check.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "PHANTORA_DETACHED": "1"}
    ran = subprocess.run([program, device], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("colour=red", "unknown key: colour"),
        ("sm_count=many", "bad value for: sm_count"),
        ("host_ns.dance=3", "unknown key: host_ns.dance"),
        ("attr.0=1", "unknown key: attr.0"),
        ("just words", "not key=value"),
        ("device_count=0", "device_count must be 1 to 64"),
        ("reserved_nbytes=99999999999", "reserved_nbytes must be less"),
        ("host_mode=psychic", "bad value for: host_mode"),
    ],
)
def test_a_wrong_device_file_is_named(line, complaint, library, tmp_path):
    device = device_file(tmp_path)
    with device.open("a") as file:
        file.write(line + "\n")
    assert complaint in refusal(library, device)


def refusal(library, device):
    """Returns what the library prints when it refuses the device file."""
    script = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(library)!r}).phantora_load({str(device).encode()!r}) == 0)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0
    assert str(device) in ran.stderr
    return ran.stderr


@pytest.mark.parametrize("attribute", [39, 81, 82, 97, 106, 111])
def test_occupancy_needs_its_attributes(attribute, library, tmp_path):
    device = tmp_path / "device"
    known = {key: value for key, value in DEVICE_FILE.items() if key != f"attr.{attribute}"}
    device.write_text("".join(f"{key}={value}\n" for key, value in known.items()))
    assert "these device attributes must be given" in refusal(library, device)


def test_nvml_is_found_by_its_name(library, tmp_path):
    """torch and pynvml open libnvidia-ml.so.1: after phantora_load that is us."""
    device = device_file(tmp_path)
    script = (
        "import ctypes, sys\n"
        f"hook = ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)\n"
        f"assert hook.phantora_load({str(device).encode()!r}) == 0\n"
        "nvml, driver, count = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.CDLL('libcuda.so.1'), ctypes.c_int()\n"
        "assert nvml.nvmlInit_v2() == 0\n"
        "assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 2\n"
        "assert driver.cuInit(0) == 0\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


OPENED = """
import ctypes, sys
hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
assert hook.phantora_load(sys.argv[2].encode()) == 0
if "cudart" in sys.argv[3]:
    hook.phantora_stand_in(sys.argv[3].encode())
address = lambda library: ctypes.cast(getattr(library, sys.argv[4]), ctypes.c_void_p).value
assert address(ctypes.CDLL(sys.argv[3])) == address(hook)
"""


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("libcudart.so.13", "cudaGetDevice"),
        ("libcudart.so.12", "cudaGetDevice"),
        ("libnccl.so.2", "ncclAllReduce"),
        ("libnvidia-ml.so.1", "nvmlInit_v2"),
        ("libcuda.so.1", "cuInit"),
    ],
)
def test_who_opens_a_library_by_its_name_gets_the_emulated_calls(name, call, library, tmp_path):
    """cuDNN's frontend and CuPy open the runtime so, vLLM NCCL; they ask the handle, not the process."""
    subprocess.run([sys.executable, "-c", OPENED, library, device_file(tmp_path), name, call], check=True)


BY_PATH = """
import ctypes, os, sys
hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
assert hook.phantora_load(sys.argv[2].encode()) == 0
hook.phantora_stand_in(b"libcudart.so.13")
folder = sys.argv[3]
answers = lambda name: ctypes.CDLL(os.path.join(folder, name)).ncclAllReduce(0) == 41
assert answers("libnccl.so.2")
hook.phantora_open_ours()
assert answers("libncclx.so.2") and answers("libother.so")
address = lambda library: ctypes.cast(library.ncclAllReduce, ctypes.c_void_p).value
names = "libnccl.so", "libcublas.so.13", "libcudart.so", "libcudart.so.13", f"{folder}/libcudart.so.11.0"
names += f"{folder}/libcudart.faf08d9a.so.13", f"{folder}/libcudart-d0da41ae.so.11.0"  # a wheel's own
for name in (f"{folder}/libnccl.so.2", f"{folder}/libnccl.so.9", *names):
    assert address(ctypes.CDLL(name)) == address(hook), name
try:
    ctypes.CDLL("libcudart.so.11.0")
except OSError:
    pass
else:
    raise AssertionError("a runtime that is not installed was found")
assert ctypes.CDLL(f"{folder}/libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_NOW).ncclAllReduce(0) == 41
opens = ctypes.CDLL(f"{folder}/libopens.so")
assert opens.inner() == 7
"""


def test_who_opens_a_library_by_its_path_gets_the_emulated_calls(library, tmp_path):
    """Other libraries are opened as before, also where only the caller's own search path leads; of the runtime only
    PyTorch's version is there by its name alone.
    """
    inner = tmp_path / "inner"
    inner.mkdir()
    opens = (
        '#include <dlfcn.h>\nint inner(void) { void *of = dlopen("libinner.so", RTLD_NOW);'
        ' return of ? ((int (*)(void))dlsym(of, "seven"))() : -1; }'
    )
    nccl = "int ncclAllReduce(int x) { return x + 41; }"
    for path, text, more in [
        *((tmp_path / name, nccl, []) for name in ("libnccl.so.2", "libncclx.so.2", "libother.so")),
        (inner / "libinner.so", "int seven(void) { return 7; }", []),
        (tmp_path / "libopens.so", opens, [f"-Wl,-rpath,{inner}"]),
    ]:
        source = path.with_suffix(".c")
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source, *more], check=True)
    environment = os.environ | {installed.PRELOAD: str(installed.RECEIVE_LIBRARY)}
    command = [sys.executable, "-c", BY_PATH, library, device_file(tmp_path), tmp_path]
    subprocess.run(command, env=environment, check=True)


@pytest.mark.parametrize(("in_server", "is_rank", "times"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_program_with_its_own_runtime_is_told_once_that_it_is_no_rank(in_server, is_rank, times, library, tmp_path):
    """Inside of a server whose interpreter is known, and not if it is a rank."""
    rank = f"assert hook.phantora_load({str(device_file(tmp_path)).encode()!r}) == 0\n" if is_rank else ""
    script = (
        f"import ctypes\nhook = ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)\n{rank}"
        "address = ctypes.c_void_p()\n"
        "for _ in range(2): assert hook.cuGetProcAddress(b'cuInit', ctypes.byref(address), 13000, 0) == 0\n"
    )
    environment = os.environ | ({"PHANTORA_PYTHON": "/x/python"} if in_server else {})
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    words = f"phantora-async: {sys.executable} uses CUDA and is no rank: ranks are Python programs that /x/python runs."
    assert ran.stderr.count(words) == ran.stderr.count("is no rank") == times


LINKED = """
import ctypes, sys
hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
assert hook.phantora_load(sys.argv[2].encode()) == 0
hook.phantora_stand_in(sys.argv[4].encode())
program, version = ctypes.CDLL(sys.argv[3]), ctypes.c_int()
hook.cudaRuntimeGetVersion(ctypes.byref(version))
print(program.count(), version.value)
"""


@pytest.mark.parametrize("major", [12, 13])
def test_a_program_linked_with_a_runtime_of_versions_gets_the_emulated_one(major, library, tmp_path):
    """Its symbols have the version of the library's name; the real library is not loaded, but its major is known."""
    name, runtime, program = f"libcudart.so.{major}", tmp_path / "runtime.c", tmp_path / "program.c"
    runtime.write_text("int cudaGetDeviceCount(int *count) { *count = -1; return 999; }")
    (tmp_path / "versions").write_text(f"{name} {{ global: *; }};")
    program.write_text(
        "int cudaGetDeviceCount(int *);\nint count(void) { int n = 0; return cudaGetDeviceCount(&n) ? -1 : n; }"
    )
    shared = ["cc", "-shared", "-fPIC", "-o"]
    script = f"-Wl,-soname,{name},--version-script={tmp_path}/versions"
    subprocess.run([*shared, tmp_path / name, runtime, script], check=True)
    linked = [f"-L{tmp_path}", f"-l:{name}", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*shared, tmp_path / "program.so", program, *linked], check=True)
    command = [sys.executable, "-c", LINKED, library, device_file(tmp_path), tmp_path / "program.so", name]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["2", f"{major}000"]


CUDA_12 = """
import ctypes, sys
hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
assert hook.phantora_load(sys.argv[2].encode()) == 0
version = ctypes.c_int()
hook.cudaRuntimeGetVersion(ctypes.byref(version))
place = (ctypes.c_ubyte * 88)(*[7] * 88)
assert hook.cudaPointerGetAttributes(place, ctypes.byref(version)) == 0
properties = (ctypes.c_ubyte * 2048)(*[7] * 2048)
found = [hook.cudaGetDeviceProperties(properties, 0), hook.cudaGetDeviceProperties_v2(properties, 0)]
print(version.value, len(bytes(place).rstrip(bytes([7]))), *found, len(bytes(properties).rstrip(bytes([7]))))
"""


@pytest.mark.parametrize(
    ("stated", "loaded", "expected"),
    [
        (None, None, "13000 88 0 0 1032"),
        (12080, None, "12080 24 801 0 1032"),
        (None, 12080, "12080 24 801 0 1032"),  # of a program that was linked with the runtime of CUDA 12
        (None, 13020, "13020 88 0 0 1032"),
    ],
)
def test_structs_are_those_of_the_loaded_cuda(stated, loaded, expected, library, tmp_path):
    """CUDA 12's structs are shorter: what is written behind their end is the program's."""
    device, script = device_file(tmp_path, **({"runtime_version": stated} if stated else {})), CUDA_12
    if loaded:
        runtime, source = tmp_path / f"libcudart.so.{loaded // 1000}", tmp_path / "runtime.c"
        source.write_text(f"int cudaRuntimeGetVersion(int *version) {{ return *version = {loaded}, 0; }}")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", runtime, source], check=True)
        script = f"import ctypes; ctypes.CDLL({str(runtime)!r})\n{CUDA_12}"
    ran = subprocess.run([sys.executable, "-c", script, library, device], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected


NEW_IN_13 = {"cudaDeviceProp13", "cudaPointerAttributes"}
LAYOUTS = {
    "cudaDeviceProp13": "struct cudaDeviceProp",
    "cudaFuncAttributes": "struct cudaFuncAttributes",
    "cudaPointerAttributes": "struct cudaPointerAttributes",
    "cudaLaunchConfig": "cudaLaunchConfig_t",
    "cudaMemPoolProps": "struct cudaMemPoolProps",
    "cudaGraphEdgeData": "cudaGraphEdgeData",
    "CUlaunchConfig": "CUlaunchConfig",
    "CUmemAllocationProp": "CUmemAllocationProp",
    "CUmemAccessDesc": "CUmemAccessDesc",
}
LAYOUTS_OF_12 = {ours: theirs for ours, theirs in LAYOUTS.items() if ours not in NEW_IN_13} | {
    "cudaDeviceProp12": "struct cudaDeviceProp"
}

CUPTI_LAYOUTS = (
    "CUpti_ActivityAPI",
    "CUpti_ActivityExternalCorrelation",
    "CUpti_ActivityKernel9",
    "CUpti_ActivityMemcpy5",
    "CUpti_ActivityMemset4",
)


def nvidia_headers():
    """Returns a folder with driver_types.h and cuda.h: the toolkit's, or one of wheels in this environment. Triton
    brings those of the CUDA that torch was built for.
    """
    folders = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"]
    folders += [Path(entry) / "nvidia" / "cu13" / "include" for entry in sys.path]
    folders += [Path(entry) / "triton" / "backends" / "nvidia" / "include" for entry in sys.path]
    # A wheel of the runtime alone lacks the headers of the compiler, which its own include.
    whole = (folder for folder in folders if all((folder / name).exists() for name in ("driver_types.h", "crt")))
    return next(whole, None)


def version_of(folder):
    """Returns the version of the headers: 12 or 13."""
    return int(re.search(r"define CUDA_VERSION (\d+)\d{3}\b", (folder / "cuda.h").read_text())[1])


def members(header, struct):
    text = (HOOK / header).read_text()
    body = re.search(rf"struct {struct} \{{(.*?)\n?\}};", text, re.DOTALL)[1]
    body = re.sub(r"/\*.*?\*/|struct \{.*?\}", "", body, flags=re.DOTALL)
    for declaration in body.split(";"):
        yield from re.findall(r"(\w+)(?:\[\w+\])*(?=\s*(?:,|$))", declaration.strip())


def layouts(folder, include, headers, names, header):
    """Returns sizes and offsets of our structs (keys of `names`, in `header`), printed by a program that uses their
    values.
    """
    lines = []
    for ours, theirs in names.items():
        lines.append(f'printf("{ours} %zu\\n", sizeof({theirs}));')
        lines += [
            f'printf("{ours}.{member} %zu\\n", offsetof({theirs}, {member}));' for member in members(header, ours)
        ]
    source, program = folder / "layouts.c", folder / "layouts"
    source.write_text(f"#include <stdio.h>\n#include <stddef.h>\n{headers}\nint main(void) {{ {''.join(lines)} }}\n")
    subprocess.run(["cc", "-w", f"-I{include}", "-o", program, source], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@pytest.mark.versions
@pytest.mark.skipif(nvidia_headers() is None, reason="NVIDIA's headers are not installed")
def test_layouts_agree_with_nvidias_headers(tmp_path):
    known = LAYOUTS if version_of(nvidia_headers()) >= 13 else LAYOUTS_OF_12
    own, header = {name: f"struct {name}" for name in known}, "cuda/types.h"
    headers = "#include <cuda.h>\n#include <driver_types.h>"
    theirs = layouts(tmp_path, nvidia_headers(), headers, known, header)
    assert layouts(tmp_path, HOOK, f'#include "{header}"', own, header) == theirs
    assert theirs.count("\n") > 120


@pytest.mark.skipif(nvidia_headers() is None, reason="NVIDIA's headers are not installed")
def test_activity_records_are_laid_out_as_cupti_does(tmp_path):
    if not (nvidia_headers() / "cupti.h").exists():
        pytest.skip("CUPTI's headers are not installed")
    if "isDeviceLaunched" not in (nvidia_headers() / "cupti_activity.h").read_text():
        pytest.skip("earlier headers have the same records, but not all names of their members")
    names, header = {name: name for name in CUPTI_LAYOUTS}, "cupti/cupti.h"
    theirs = layouts(tmp_path, nvidia_headers(), "#include <cupti.h>", names, header)
    assert layouts(tmp_path, HOOK, f'#include "{header}"', names, header) == theirs
    assert theirs.count("\n") > 80


# CUDA 13's headers name them no longer.
DROPPED_ATTRIBUTES = {"cudaDevAttrCooperativeMultiDeviceLaunch": 96, "cudaDevAttrUnifiedFunctionPointers": 129}


def numbers(header, pattern):
    """Returns enumerators and their numbers: ``name = 5,``."""
    return {
        name: int(number) for name, number in re.findall(rf"\b({pattern})\s*=\s*(?:0x)?(\d+)\b", header.read_text())
    }


@pytest.mark.skipif(nvidia_headers() is None, reason="NVIDIA's headers are not installed")
def test_numbers_agree_with_nvidias_headers():
    theirs = numbers(nvidia_headers() / "driver_types.h", r"cuda[A-Z]\w+") | DROPPED_ATTRIBUTES
    ours = numbers(HOOK / "cuda" / "attributes.h", r"cudaDevAttr\w+")
    assert len(ours) > 100
    ours |= numbers(HOOK / "cuda" / "types.h", r"cuda[A-Z]\w+")
    assert ours.items() <= theirs.items()


def test_the_cuda_12_properties_have_their_known_size(tmp_path):
    """1,032 bytes, with the compute capability at 360 and the number of SMs at 388: CUDA 12's driver_types.h."""
    source = tmp_path / "size.c"
    source.write_text(
        '#include "cuda/types.h"\n'
        '_Static_assert(sizeof(struct cudaDeviceProp12) == 1032, "size");\n'
        '_Static_assert(offsetof(struct cudaDeviceProp12, major) == 360, "major");\n'
        '_Static_assert(offsetof(struct cudaDeviceProp12, multiProcessorCount) == 388, "SMs");\n'
    )
    subprocess.run(["cc", f"-I{HOOK}", "-c", "-o", tmp_path / "size.o", source], check=True)
