"""Changes to torch.compile and Triton: compiling takes no virtual time, and one rank compiles for all.

Lives here: `compile_time`, which keeps compiling and autotuning out of virtual time and lets the cost model choose
among candidates; `graph_cache`, the cache of Inductor's graphs that ranks and runs share, with `any_device`, which
makes its entries valid for GPUs of every number, `split_graphs`, which lets it cache the graphs of
DistributedDataParallel, and `held_entries`, which has the forker read entries for all ranks; `kernels_once`, by which a
process has each kernel once, and `loaded_code`, which keeps bytecode; `skipped_work`, work that no result needs;
`triton_cache`, the same as `graph_cache` for Triton's kernels; `keys`, for both; `compile_forecast`, which guesses
whether a script compiles; `file_locks`, which they use.
Comes in: the cache's folder, from the environment; what torch and Triton compile.
Goes out: files in that folder; calls into the hook library.
May import: `emu.contract`, `emu.interpreter`; torch, Triton and the standard library.
"""
