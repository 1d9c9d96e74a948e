"""Reads what kind of GPU it has, by each way that Python has, and trains a few steps."""

import ctypes

import torch

model = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(64, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
assert torch.cuda.is_bf16_supported()
assert "H200" in torch.cuda.get_device_name()
capability = torch.cuda.get_device_capability()
memory = torch.cuda.get_device_properties(0).total_memory
name, device, value = ctypes.create_string_buffer(96), ctypes.c_void_p(), ctypes.c_int()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetName(device, name, 96) == 0
assert name.value == b"NVIDIA H200"
assert ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute(ctypes.byref(value), 16, 0) == 0
for _ in range(3):
    model(torch.randn(32, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print(capability, memory, value.value)
