"""Changes to a rank's Python interpreter, apart from time and from control tensors.

Lives here: the hook library's Python interface (the package `hook_library`) and, for it, what only Python knows: frame
layout, call sites, thread names, NVTX ranges, peaks of the allocator; what makes ranks repeatable and small (`seeds`,
`heap`); what Triton's kernels do (`triton_programs`); `stack_dump`, which answers the coordinator's signal;
`code_owner` and `real_time`, which `emu.clock` and `emu.start` use too.
Comes in: the hook library's path; a rank's number; signals.
Goes out: calls into the hook library, which sends the records; stack files.
May import: `emu.contract`; torch and the standard library.
"""
