"""Checks whether a run can work here, and with which limits, for `phantora-async doctor`.

Lives here: what is asked of this machine (`machine`) and of the ranks' interpreter (`interpreter`); the text of it
(`text`).
Comes in: this machine; the interpreter that is to run ranks.
Goes out: a JSON document.
May import: `emu.contract`, `phantora_async.compile_cache`, `phantora_async.config`, `phantora_async.errors`,
`phantora_async.launch`, `phantora_async.wording`.
"""
