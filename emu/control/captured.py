"""The work of CUDA graphs' launches: each launch computes the operations that were captured, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..interpreter.hook_library import Hook
from ..private.changes import changes
from .host_views import Place


class CapturedOps:
    """The captured operations. They are kept as long as the process: few operations of a graph are on small tensors,
    and a launch may be waiting for bytes of other ranks when its graph is freed.
    """

    def __init__(self, hook: Hook, unrecorded: Callable[[Callable[[], Any]], Any]) -> None:
        self._unrecorded = unrecorded
        self._captured_streams = hook.captured_streams()
        self._submit = hook.capture_action(self._run)
        self._operations: list[Callable[[], None]] = []
        names = changes.usable("captured streams")
        self._stream = _stream if names is None else names.get("_cuda_getCurrentRawStream")

    def capturing(self) -> bool:
        """Tells whether a stream of this process is being captured."""
        return bool(self._captured_streams.value)

    def stream(self, device: int) -> int:
        """Returns the handle of the device's current stream."""
        return int(self._stream(device))

    def take(self, device: int, reads: Sequence[Place], writes: Sequence[Place], work: Callable[[], None]) -> bool:
        """Returns True if the device's current stream is being captured. Then `work` is called at each launch of the
        graph.
        """
        if not self._captured_streams.value:
            return False
        self._operations.append(work)
        flat_reads, flat_writes = (
            [part for place in places for part in (place.address, place.nbytes)] for places in (reads, writes)
        )
        return self._submit(self.stream(device), flat_reads, flat_writes, len(self._operations) - 1)

    def _run(self, number: int) -> None:
        self._unrecorded(self._operations[number])


def _stream(device: int) -> int:
    """Returns the handle by PyTorch's public way, which makes an object."""
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)
