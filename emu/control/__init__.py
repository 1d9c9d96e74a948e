"""Control tensors: small tensors that steer the program are computed for real, on the CPU.

Lives here: which ATen operations are computed (`op_lists`), the functions that stand before torch's CUDA kernels
(`dispatcher` registers them; `device_ops` have results on the device, `host_reads` bring values to the program), and
what these share (`control_tensors`, `computed_op`, `host_views`).
Comes in: calls of ATen operations with CUDA tensors; the bytes of emulated device memory.
Goes out: values in emulated device memory, and which of its bytes are known; warnings about values that are not.
May import: `emu.interpreter`; torch and the standard library.
"""
