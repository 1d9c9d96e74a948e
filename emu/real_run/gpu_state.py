"""The GPU's clock and power while it works, from NVIDIA's management library (NVML)."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, field

LIBRARY = "libnvidia-ml.so.1"
EVERY_S = 0.02
SM_CLOCK = 1  # NVML_CLOCK_SM
_TEXT = 96


@dataclass
class Samples:
    at_s: list[float] = field(default_factory=list)
    sm_mhz: list[int] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    """The power in watts; 0 where the GPU does not tell."""


class GpuState:
    """The state of the GPU with that UUID, sampled by a thread of its own until `stop`. Without NVML nothing is
    known.
    """

    def __init__(self, uuid: str) -> None:
        self.samples = Samples()
        self.driver = ""
        self.power_limit_w = 0.0
        self.full_mhz = 0
        """The highest SM clock that this GPU offers."""
        self.problem = ""
        """The reason why nothing is known."""
        self._device = ctypes.c_void_p()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu-clock", daemon=True)
        try:
            self._nvml = ctypes.CDLL(LIBRARY)
        except OSError as error:
            self.problem = str(error)
            return
        if not self._ask("nvmlInit_v2") or not self._ask(
            "nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device)
        ):
            return
        text = ctypes.create_string_buffer(_TEXT)
        if self._ask("nvmlSystemGetDriverVersion", text, _TEXT):
            self.driver = text.value.decode()
        self.power_limit_w = self._number("nvmlDeviceGetEnforcedPowerLimit") / 1e3
        self.full_mhz = self._number("nvmlDeviceGetMaxClockInfo", SM_CLOCK)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def between(self, begin_s: float, end_s: float) -> tuple[list[int], list[float]]:
        """Returns the clocks and powers that were sampled between these instants."""
        chosen = [n for n, at_s in enumerate(self.samples.at_s) if begin_s <= at_s <= end_s]
        return [self.samples.sm_mhz[n] for n in chosen], [self.samples.power_w[n] for n in chosen]

    def _sample(self) -> None:
        while not self._over.wait(EVERY_S):
            clock, power = self._number("nvmlDeviceGetClockInfo", SM_CLOCK), self._number("nvmlDeviceGetPowerUsage")
            if clock:
                self.samples.at_s.append(time.time())
                self.samples.sm_mhz.append(clock)
                self.samples.power_w.append(power / 1e3)

    def _ask(self, call: str, *arguments: object) -> bool:
        code = getattr(self._nvml, call)(*arguments)
        if code != 0:
            self.problem = f"{call} returned {code}"
        return bool(code == 0)

    def _number(self, call: str, *arguments: object) -> int:
        """Returns the number that this call gives; 0 if the GPU does not tell."""
        value = ctypes.c_uint()
        return value.value if self._ask(call, self._device, *arguments, ctypes.byref(value)) else 0
