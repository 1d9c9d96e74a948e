"""Private names of PyTorch, Triton and CPython that are used all the same: any version may rename or remove them.

Lives here: the table of these names (`names`, `torch_names`, `compiler_names`, `measuring_names`, `python_names`,
`symbols`); what is found of them (`finding`); who reads them (`access`); the one mechanism that changes them
(`changes`, `imports`); what `phantora-async doctor` asks for.
Comes in: the installed packages.
Goes out: functions in the place of theirs; a warning for each purpose that has to be left out.
May import: `emu.formats.c_lists` and the standard library.
"""
