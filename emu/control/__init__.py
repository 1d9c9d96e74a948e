"""Control tensors: small tensors that steer the program are computed for real, on the CPU.

Lives here: which ATen operations are computed (`op_lists`), the functions that stand before torch's CUDA kernels
(`dispatcher` registers them; `device_ops` have results on the device, `host_reads` bring values to the program),
what these share (`control_tensors`, `computed_op`, `equivalents`, `host_views`), and what follows a policy because its
scores are not computed (`routing`, `expert_choice`, `score_masks`, `routing_loads`).
Comes in: calls of ATen operations with CUDA tensors; the bytes of emulated device memory.
Goes out: values in emulated device memory, and which of its bytes are known; warnings about values that are not;
ROUTING records.
May import: `emu.contract`, `emu.interpreter`; torch and the standard library.
"""
