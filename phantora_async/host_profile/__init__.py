"""Measures a host: runs the programs of emu.hostbench in the environment that has PyTorch, and takes their answers.

Comes in: an interpreter; how many GPUs to use and how often to time.
Goes out: times and counts of the programs, and what the machine is.
May import: emu.contract, child_process, errors, profiles. `profiles.fit` makes costs of it.
"""

from phantora_async.host_profile.measurement import MeasuredMachine, Measurement, measure

__all__ = ["MeasuredMachine", "Measurement", "measure"]
