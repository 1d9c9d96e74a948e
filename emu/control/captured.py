"""Control tensors of a CUDA graph: computed at each launch, as on a GPU, and not while the graph is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..interpreter.hook_library import Hook
from .host_views import span

if TYPE_CHECKING:
    from torch import Tensor


class CapturedOps:
    """What the launches of graphs compute. It is kept as long as the process: few operations of a graph are on control
    tensors, and a launch may be waiting for bytes of other ranks when its graph is freed.
    """

    def __init__(self, hook: Hook, unrecorded: Callable[[Callable[[], Any]], Any]) -> None:
        self._hook = hook
        self._unrecorded = unrecorded
        self._captured_streams = hook.captured_streams()
        self._submit = hook.capture_action(self._run)
        self._operations: list[tuple[list[tuple[int, int]], Callable[[bool], None]]] = []

    def take(self, inputs: list[Tensor], outputs: list[Tensor], compute: Callable[[bool], None]) -> bool:
        """True if the current stream is being captured. Then `compute(known)` is called at each launch of the graph,
        and the hook library marks the outputs.
        """
        if not self._captured_streams.value or not outputs:
            return False
        import torch

        stream = torch._C._cuda_getCurrentRawStream(outputs[0].device.index)
        reads, writes = [span(tensor) for tensor in inputs], [span(tensor) for tensor in outputs]
        self._operations.append((reads, compute))
        flat_reads, flat_writes = ([part for one in ranges for part in one] for ranges in (reads, writes))
        return self._submit(stream, flat_reads, flat_writes, len(self._operations) - 1)

    def _run(self, number: int) -> None:
        reads, compute = self._operations[number]
        self._unrecorded(lambda: compute(all(self._hook.data_known(*read) for read in reads)))
