"""Measures a host: runs emu.hostbench's programs on it and finds the cost of each kind of work."""

from phantora_async.host_profile.measurement import Machine, Measurement, measure, visible_gpus

__all__ = ["Machine", "Measurement", "measure", "visible_gpus"]
