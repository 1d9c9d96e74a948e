"""Lists that C and Python share, each defined once: the hook library compiles them, and Python reads them.

Lives here: kinds of host work (`host_kinds.def`, read by `profiles.host`), the clock under the power limit
(`power_clock.def`, read by `profiles.models.clock`), names of threads and processes (`thread_names.def`, read by
`thread_names`).
Comes in: nothing.
Goes out: constants.
May import: `emu.formats.c_lists`.
"""
