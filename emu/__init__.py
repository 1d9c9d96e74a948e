"""Everything that exists inside an emulated server.

Lives here: `start` (the processes), `interpreter`, `clock` and `control` (what is changed in a rank's Python), `hook`
(the C library in place of CUDA and NCCL), `hostbench` (programs that measure a host) and `contract` (all that the
product and this package agree on).
Comes in: one description of the job, on the control socket; answers of the coordinator.
Goes out: records, on one socket a rank; the ranks' logs; their exit codes, on the control socket.
May import: nothing of ours outside this folder. The product imports `emu.contract` alone.

This package also runs inside another environment's interpreter (`--python`). So it uses the standard library and that
environment's torch only, imports itself relatively, and is loaded by its path, under the name `_phantora_emu`, which
no package of a script has.
"""
