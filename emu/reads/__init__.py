"""Reads of values that nobody computed: what the user says they yield, and loops that wait for them.

Lives here: each read (`uncomputed`), what `--value` states (`stated`), loops whose end depends on such a read (`loops`,
with `loop_exits` and `dependence`, which read the program's source), lines that decide by such a read
(`decisions`, with `flow`), frames of the program (`frames`).
Comes in: reads, from `emu.control`; frames and source files of the program.
Goes out: values; STATED_VALUE, LOOP and DECIDED records.
May import: `emu.contract`, `emu.interpreter`; torch and the standard library.
"""
