"""Small programs whose host time is measured, to find what a host takes for each kind of work.

Lives here: the programs (`programs`, `various_operators`, `device_calls`, `lists`, `python_work`, `libraries`,
`distributed`, `tensor_parallel`, `collectives`, `cpu_tensors`), the model that most of them train (`model`), their
registry and where their phases end (`workload`), and the command that times them or counts their work (`__main__`).
Comes in: a mode, and for two of them the hook library and its device file.
Goes out: one line of JSON.
May import: `emu.interpreter`; torch and the standard library.
"""
