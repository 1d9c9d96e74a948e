"""Results of runs that are known by content: nothing changed on which such a run depended.

Lives here: notes (what the processes of a run did with files and with others), inputs (which of that decides the
result, and its state), key (what is known before a run), kept (results that are kept for later).
Comes in: the notes of the hook's preloaded library; configurations of runs.
Goes out: a key; states of inputs; an earlier result, or the reason why there is none.
May import: emu.contract, formats, compile_cache, config.
"""
