"""Single pieces of GPU work, executed again on a real GPU and timed: a server on standard input and output.

Lives here: the server (`__main__`), what it executes (`operators` of ATen by their schemas, `candidates` where a
signature does not say everything, `library_calls` of cuBLAS, cuDNN and the driver, `arguments` and `tensors` for them),
and how it is timed (`timing`, `resident`).
Comes in: lines of JSON: fields of signatures, or calls of ATen operators.
Goes out: lines of JSON: kernels that were launched, with their durations, or why there are none.
May import: `emu.contract`; torch and the standard library. Nothing of the emulator is loaded.
"""
