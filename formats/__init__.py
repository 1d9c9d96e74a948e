"""Formats of text that more than one room reads: each has one reader, here.

Lives here: files of a bounded size (`files`), JSON with the line of a fault (`json_lines`), strict TOML (`toml`),
programs of Triton's compiler (`ttir`), wrong values in messages (`values`), what a wrong name may mean (`nearest`).
Comes in: paths and texts of users, other programs and kernels.
Goes out: text, tables, programs; or an error of the class that the caller names, with file, line and field.
May import: the standard library alone, by relative names: `emu/formats` is a link to this folder, because `emu` also
runs in another environment's interpreter, where it finds nothing beside its own folder.

Why a room of its own: `netsim`, `profiles` and `emu` import nothing from each other, and each would need its own copy.
"""
