"""Small tensors are computed for real, on the CPU, so that values that a script reads are right.

Lives here: functions before torch's CUDA kernels (`dispatcher` registers them; `device_ops` have results on the
device, `host_reads` bring values to the program, of which `read_warnings` warn, those of `random_numbers` draw, those
of `sparse` take sparse tensors), what must be known of single operations (`op_rules`, `equivalents`), how one is
computed (`computed_op`, `control_tensors`, `host_views`), large tensors, which are computed when they are read
(`references`, `large_ops`, `kept_ops`), the check of a loss scaler (`loss_scaling`), what launches of graphs compute
(`captured`), and what follows a policy because its scores are not computed (`routing`).
Comes in: calls of ATen operations with CUDA tensors; the bytes of emulated device memory; what the user says that
reads yield, from `emu.reads`.
Goes out: values in emulated device memory, and which of its bytes are known; warnings about values that are not;
ROUTING records.
May import: `emu.contract`, `emu.interpreter`, `emu.reads`; torch and the standard library.
"""
