"""Modules that the script will import are imported once, in the interpreter from which all ranks are forked.

Lives here: which packages a script imports (`script_imports`), whether they give the same module in the forker as in a
rank (`trial`), what earlier trials have accepted (`memory`), and all of it together (`automatic`).
Comes in: the job; the script's text.
Goes out: imported modules.
May import: `emu.contract`.
"""
