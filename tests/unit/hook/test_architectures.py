"""For which architecture a kernel says it was compiled: the newest in its fat binary that the described GPU runs."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from .coordinator import device_file

FATBIN_MAGIC, WRAPPER_MAGIC = 0xBA55ED50, 0x466243B1
PTX, SASS = 1, 2
ONE_GPU, ONE_FAMILY = 1 << 20, 1 << 21


def fatbin(*entries: tuple[int, int, int]) -> bytes:
    """Returns a fat binary as nvcc makes it: entries of (kind, architecture, flags) with headers of two lengths and
    some bytes as code.
    """
    body = b""
    for number, (kind, architecture, flags) in enumerate(entries):
        head_nbytes, nbytes = (64, 24) if number % 2 else (112, 40)
        head = struct.pack("<HHIQIIHHIIIQ", kind, 0x101, head_nbytes, nbytes, 9, 64, 8, 1, architecture, 0, 0, flags)
        body += head.ljust(head_nbytes, b"\0") + b"\xaa" * nbytes
    return struct.pack("<IHHQ", FATBIN_MAGIC, 1, 16, len(body)) + body


WHEEL = tuple((SASS, architecture, 0x8011) for architecture in (75, 80, 86, 90, 100, 120))
"""The architectures of PyTorch's wheels for CUDA 13."""

ASK = """
import ctypes, json, struct, sys
hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
assert hook.phantora_load(sys.argv[2].encode()) == 0
image = ctypes.create_string_buffer(bytes.fromhex(sys.argv[3]), len(sys.argv[3]) // 2 + 1)
wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(image), 0))
register = hook["__cudaRegisterFatBinary"]
register.restype = ctypes.c_void_p
handle = register(wrapper)
address = ctypes.create_string_buffer(8)
hook["__cudaRegisterFunction"](
    ctypes.c_void_p(handle), address, None, b"kernel", -1, None, None, None, None, None
)
found = (ctypes.c_int * 64)()
assert hook.cudaFuncGetAttributes(found, address) == 0
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert hook.cuModuleLoadData(ctypes.byref(module), image) == 0
assert hook.cuModuleGetFunction(ctypes.byref(function), module, b"kernel") == 0
def driver(attribute):
    value = ctypes.c_int()
    assert hook.cuFuncGetAttribute(ctypes.byref(value), attribute, function) == 0
    return value.value
registered = [found[9], found[8]]
hook["__cudaUnregisterFatBinary"](ctypes.c_void_p(handle))
assert hook.cudaFuncGetAttributes(found, address) == 0
print(json.dumps({"registered": registered, "module": [driver(6), driver(5)], "gone": [found[9], found[8]]}))
"""


def versions(library: Path, folder: Path, image: bytes, capability: tuple[int, int]) -> tuple[list[int], str]:
    """Returns binaryVersion and ptxVersion of the image's kernel, and what was printed on stderr."""
    major, minor = capability
    device = device_file(folder, cc_major=major, cc_minor=minor)
    ran = subprocess.run(
        [sys.executable, "-c", ASK, str(library), str(device), image.hex()],
        capture_output=True,
        text=True,
        check=True,
        env={"PHANTORA_DETACHED": "1"},
    )
    answers = json.loads(ran.stdout)
    assert answers["module"] == answers["registered"], "a module of the same code runs the same of it"
    assert answers["gone"] == [major * 10 + minor] * 2, "the code of a library that is gone is not read"
    return answers["registered"], ran.stderr


@pytest.mark.parametrize(
    ("capability", "entries", "expected"),
    [
        ((7, 5), WHEEL, [75, 75]),
        ((8, 0), WHEEL, [80, 80]),
        ((8, 6), WHEEL, [86, 86]),
        ((8, 9), WHEEL, [86, 86]),  # machine code of an earlier minor version
        ((9, 0), WHEEL, [90, 90]),
        ((10, 3), WHEEL, [100, 100]),
        ((12, 1), WHEEL, [120, 120]),
        # sm_90a and sm_103a run on that version alone, sm_100f on its family.
        ((9, 0), (*WHEEL, (SASS, 90, ONE_GPU)), [90, 90]),
        ((10, 3), (*WHEEL, (SASS, 101, ONE_GPU)), [100, 100]),
        ((10, 3), (*WHEEL, (SASS, 103, ONE_GPU)), [103, 103]),
        ((10, 3), ((SASS, 90, 0), (SASS, 100, ONE_FAMILY)), [100, 100]),
        # PTX is compiled for the GPU where there is no machine code.
        ((8, 9), ((SASS, 75, 0), (PTX, 75, 0), (PTX, 80, 0), (PTX, 90, 0)), [89, 80]),
        ((8, 9), ((PTX, 89, 0), (SASS, 80, 0)), [80, 80]),
        ((10, 0), ((SASS, 90, 0), (PTX, 90, ONE_GPU), (PTX, 80, 0)), [100, 80]),
    ],
)
def test_the_newest_code_that_runs(capability, entries, expected, library, tmp_path):
    found, said = versions(library, tmp_path, fatbin(*entries), capability)
    assert found == expected
    assert "no code" not in said


@pytest.mark.parametrize(("capability", "expected"), [((7, 0), [75, 75]), ((11, 0), [100, 100])])
def test_a_gpu_that_the_library_was_not_built_for_is_told(capability, expected, library, tmp_path):
    found, said = versions(library, tmp_path, fatbin(*WHEEL), capability)
    assert found == expected
    assert said.count(f"no code for a GPU of compute capability {capability[0]}.{capability[1]}") == 1


def test_damaged_code_is_not_read_beyond_its_end(library, tmp_path):
    whole = fatbin(*WHEEL)
    entry = bytearray(whole)
    entry[16 + 8 : 16 + 16] = struct.pack("<Q", 1 << 60)  # the first entry's length
    assert versions(library, tmp_path, bytes(entry), (8, 9))[0] == [89, 89]


def cubin(interface: int, flags: int) -> bytes:
    """Returns the header of an ELF file for a GPU, with no sections."""
    ident = b"\x7fELF" + bytes((2, 1, 1, 0x33, interface)) + bytes(7)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (b".version 8.0\n.target sm_80\n.address_size 64\n", ["89", "80"]),
        # As ptxas makes them for sm_86, of PTX for sm_80.
        (cubin(7, 0x500556), ["86", "80"]),
        (cubin(8, 0x6005604), ["86", "86"]),
    ],
)
def test_other_images_tell_their_architecture(image, expected, library, tmp_path):
    device = device_file(tmp_path, cc_major=8, cc_minor=9)
    script = (
        "import ctypes, sys\n"
        "hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        "assert hook.phantora_load(sys.argv[2].encode()) == 0\n"
        "module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()\n"
        "image = bytes.fromhex(sys.argv[3]) + bytes(64)\n"
        "assert hook.cuModuleLoadData(ctypes.byref(module), image) == 0\n"
        "assert hook.cuModuleGetFunction(ctypes.byref(function), module, b'any') == 0\n"
        "for attribute in (6, 5):\n"
        "    assert hook.cuFuncGetAttribute(ctypes.byref(value), attribute, function) == 0\n"
        "    print(value.value)\n"
    )
    command = [sys.executable, "-c", script, str(library), str(device), image.hex()]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env={"PHANTORA_DETACHED": "1"})
    assert ran.stdout.split() == expected
