"""The loaded hook library with all of its calls."""

from __future__ import annotations

from .actions import ActionCalls
from .carriers import CarrierCalls
from .communicators import CommunicatorCalls
from .data import DataCalls
from .host_time import HostTimeCalls
from .kernels import KernelCalls
from .memory import MemoryCalls
from .process import ProcessCalls
from .ranges import RangeCalls
from .script_lines import ScriptLineCalls
from .sources import SourceCalls


class Hook(
    ProcessCalls,
    HostTimeCalls,
    ScriptLineCalls,
    RangeCalls,
    KernelCalls,
    MemoryCalls,
    DataCalls,
    ActionCalls,
    CarrierCalls,
    SourceCalls,
    CommunicatorCalls,
):
    """``Hook(path)`` loads the library into the global scope. Raises HookError."""
