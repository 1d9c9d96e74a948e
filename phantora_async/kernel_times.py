"""Chooses the measured kernel times of a run: the user's tables first, then the shipped ones of the emulated GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phantora_async.errors import UsageError
from profiles import Gpu, ProfileError, TimesOn, gpu_names, load_gpu, load_table, same_times, shipped_times

NONE = "none"


@dataclass(frozen=True, slots=True)
class KernelTimes:
    file: Path
    on: TimesOn

    def carried_over(self, gpu: Gpu) -> bool:
        """Returns true if they were measured on a GPU that differs from the emulated one."""
        return not same_times(self.on.gpu, gpu)


def find(given: Sequence[str], gpu: Gpu) -> tuple[KernelTimes, ...]:
    """The first that knows a kernel is asked. Of two given files the later one comes first, and times of the emulated
    GPU come before those of another one. Raises UsageError.
    """
    if NONE in given:
        if len(given) > 1:
            raise UsageError(f"--kernel-times {NONE} excludes files", "leave out one of them")
        return ()
    found = [_given(Path(text)) for text in reversed(given)]
    found += [KernelTimes(path, TimesOn(load_table(path, trusted=True), home)) for path, home in shipped_times(gpu)]
    return tuple(sorted(found, key=lambda times: times.carried_over(gpu)))


def _given(path: Path) -> KernelTimes:
    try:
        table = load_table(path)
    except ProfileError as error:
        raise UsageError(f"--kernel-times: {error}", "phantora-async profile --help says how to measure some") from None
    devices = {origin.get("gpu", "") for origin in table.origins}
    if len(devices) != 1:
        listed = ", ".join(sorted(devices)) or "none"
        raise UsageError(f"--kernel-times {path}: expected times of one GPU, found {listed}")
    (device,) = devices
    for name in gpu_names():
        if (gpu := load_gpu(name)).device_name == device:
            return KernelTimes(path, TimesOn(table, gpu))
    raise UsageError(
        f"--kernel-times {path}: measured on {device!r}, of which there is no description",
        "phantora-async profiles list shows the GPUs that are described",
    )
