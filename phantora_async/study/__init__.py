"""Many configurations of a job, tried one after the other: `phantora-async sweep`.

Lives here: the file (`study_file`) with its trials (`trial`), what is run and what is replayed (`execution`), what came
of it (`results`), which are best (`front`), for a terminal and for programs (`text`), and all of it in one call
(`sweeping`). What to try with one recorded run (`advice`).
Comes in: a TOML file or the same as a mapping; a table of prices.
Goes out: a line of JSON for each trial, a table, the Pareto front, the best ones as commands.
May import: formats, emu.contract, profiles; api, budget, config, errors, gate, options, recording, replaying, spending,
wording.
"""
