"""Virtual time inside the script.

Lives here: the clock of a rank (`virtual_clock`), the functions of `time`, `datetime`, `threading` and `timeit` that
are replaced by it (`time_functions`, `rebinding`), which callers get real time instead (`callers`), the timeouts of
torch.distributed and of data loaders (`timeouts`), its barriers, which wait (`barriers`), its process
groups, which take each rank equally long (`new_groups`), and those that are made again (`rendezvous`).
Comes in: calls of time functions; the virtual time of the rank's host, from the hook library.
Goes out: simulated instants to the caller; host time that passes (sleeps, timeouts), to the hook library.
May import: `emu.interpreter`; torch and the standard library.
"""
