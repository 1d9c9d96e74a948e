"""Reads of values that nobody computed: what the user says they yield, and loops that wait for them.

Lives here: each read (`uncomputed`), what `--value` states (`stated`), loops whose end depends on such a read (`loops`,
with `loop_exits`, `conditions` and `dependence`, which read the program's source). Numbers that nobody computed go
through Python as such (`marked`, `arrays`): `host_memory` has the tensors that hold some, `carriers` the functions in C
that pass them on, `saved` files, `compiled_calls` and `libraries` those who get ordinary numbers. `decisions` has the
lines told that decide by them; `flow` follows what C code makes of them within a function's source (`source_text`,
`expressions`, `deciding_names`, `frames`).
Comes in: reads, from `emu.control`; frames and source files of the program.
Goes out: values; STATED_VALUE, LOOP and DECIDED records.
May import: `emu.contract`, `emu.interpreter`, `emu.private`; torch and the standard library.
"""
