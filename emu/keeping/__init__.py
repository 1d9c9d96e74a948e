"""Pieces that ranks of all servers publish to each other: a piece is bytes under a key, and nobody can change it any
more.

Ranks run programs of the user, so none of them may hold what others read open for writing. A process beside the
servers keeps the pieces (`keeper`); ranks ask it (`client`). Bytes are in sealed memory, or in files of a folder that
servers see read-only.
Comes in: bytes that a rank has computed, under a key that names all that they follow from.
Goes out: the same bytes, in every rank that asks for the key.
May import: emu.contract.
"""
