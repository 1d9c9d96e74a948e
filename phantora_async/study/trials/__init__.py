"""Reads the trials of a study, and keeps their results.

Lives here: the study's file (`study_file`) with its search (`search_file`) and what it asks for (`goal`); trials
(`trial`), made by `trial_reader`; a trial's result (`results`), kept in a database (`store`).
Comes in: a TOML file or the same as a mapping; reports.
Goes out: trials, checked before any of them starts; results that survive the process.
May import: formats, emu.contract, profiles; budget, config, errors, gate, options, replaying, spending, wording.
"""
