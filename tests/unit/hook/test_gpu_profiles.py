"""Answers to programs that ask about a GPU follow its description: CUDA's attributes, NVML's answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import profiles

ASK = """
import ctypes, json, sys
hook = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
assert hook.phantora_load(sys.argv[2].encode()) == 0
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
name, free, total, device = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetName(name, 256, 0) == 0
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
answers = {"name": name.value.decode(), "total": total.value}
def attribute(number):
    value = ctypes.c_int()
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
    return value.value
numbers = dict(major=75, minor=76, sms=16, clock=13, memory_clock=36, bus=37, l2=38, threads=39, optin=97, per_sm=81)
answers |= {key: attribute(number) for key, number in numbers.items()}
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
def ask(call, *arguments):
    value = ctypes.c_uint()
    status = getattr(nvml, call)(device, *arguments, ctypes.byref(value))
    return value.value if status == 0 else f"status {status}"
assert nvml.nvmlDeviceGetName(device, name, 256) == 0
memory = (ctypes.c_ulonglong * 3)()
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
answers |= {
    "nvml_name": name.value.decode(),
    "nvml_total": memory[0],
    "limit_mw": ask("nvmlDeviceGetPowerManagementLimit"),
    "enforced_mw": ask("nvmlDeviceGetEnforcedPowerLimit"),
    "max_sm_mhz": ask("nvmlDeviceGetMaxClockInfo", 1),
    "sm_mhz": ask("nvmlDeviceGetClockInfo", 1),
    "memory_mhz": ask("nvmlDeviceGetMaxClockInfo", 2),
    "video_mhz": ask("nvmlDeviceGetMaxClockInfo", 3),
    "bus_bits": ask("nvmlDeviceGetMemoryBusWidth"),
    "architecture": ask("nvmlDeviceGetArchitecture"),
    "cores": ask("nvmlDeviceGetNumGpuCores"),
    "power_mw": ask("nvmlDeviceGetPowerUsage"),
}
print(json.dumps(answers))
"""
ARCHITECTURES = {
    (7, 0): 5,
    (7, 5): 6,
    (8, 0): 7,
    (8, 6): 7,
    (8, 9): 8,
    (9, 0): 9,
    (10, 0): 10,
    (10, 3): 10,
    (12, 0): 10,
}
CORES_PER_SM = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
SHARED_KIB_PER_BLOCK = {
    (7, 0): 96,
    (7, 5): 64,
    (8, 0): 163,
    (8, 6): 99,
    (8, 9): 99,
    (9, 0): 227,
    (10, 0): 227,
    (10, 3): 227,
    (12, 0): 99,
}
THREADS_PER_SM = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Threads of an SM by compute capability, from the CUDA programming guide."""


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_answers_follow_the_description(name: str, library: Path, tmp_path: Path) -> None:
    gpu = profiles.load_gpu(name)
    device = tmp_path / "device"
    device.write_text("\n".join([*gpu.device_file_lines(), "device_count=1", "host_mode=none", ""]))
    ran = subprocess.run(
        [sys.executable, "-c", ASK, str(library), str(device)], capture_output=True, text=True, check=True
    )
    capability = (gpu.cc_major, gpu.cc_minor)
    assert json.loads(ran.stdout) == {
        "name": gpu.device_name,
        "total": gpu.memory.total_nbytes,
        "major": gpu.cc_major,
        "minor": gpu.cc_minor,
        "sms": gpu.sm_count,
        "clock": gpu.sm_clock_khz,
        "memory_clock": gpu.memory.clock_khz,
        "bus": gpu.memory.bus_width_bits,
        "l2": gpu.memory.l2_nbytes,
        "threads": THREADS_PER_SM.get(capability, 2048),
        "optin": SHARED_KIB_PER_BLOCK[capability] * 1024,
        "per_sm": (SHARED_KIB_PER_BLOCK[capability] + (capability >= (8, 0))) * 1024,  # since Ampere CUDA keeps 1 KiB
        "nvml_name": gpu.device_name,
        "nvml_total": gpu.memory.total_nbytes,
        "limit_mw": gpu.power_limit_w * 1000,
        "enforced_mw": gpu.power_limit_w * 1000,
        "max_sm_mhz": gpu.sm_clock_khz // 1000,
        "sm_mhz": gpu.sm_clock_khz // 1000,
        "memory_mhz": gpu.memory.clock_khz // 1000,
        "video_mhz": "status 3",  # not supported
        "bus_bits": gpu.memory.bus_width_bits,
        "architecture": ARCHITECTURES[capability],
        "cores": gpu.sm_count * CORES_PER_SM.get(capability, 128),
        "power_mw": "status 3",
    }
