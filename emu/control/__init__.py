"""Small tensors are computed for real, on the CPU, so that values that a script reads are right.

Lives here: functions before torch's CUDA kernels (`dispatcher` registers them; `device_ops` have results on the device,
`host_reads` bring values to the program, `random_ops` draw), what must be known of single operations (`op_rules`,
`equivalents`), how one is computed (`computed_op`, `control_tensors`, `host_views`), and random numbers (`philox`,
`distributions`).
Comes in: calls of ATen operations with CUDA tensors; the bytes of emulated device memory.
Goes out: values in emulated device memory, and which of its bytes are known; warnings about values that are not.
May import: `emu.interpreter`; torch and the standard library.
"""
