"""The sequences that the loop of transformers' `generate` makes: when their tokens are known, and with `--lengths` an
end token where a response has its length.

The loop itself is left as it is. Where it samples (`argmax`, `multinomial`) from scores that nobody computed, the
tokens of all sequences become known integers, so that what follows is computed: the test for the end token, padding
behind it, masks of an RL trainer.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..computed_op import Kernel, as_tuple
from ..control_tensors import KNOWN, ControlTensors
from ..host_views import Place
from .responses import Responses

if TYPE_CHECKING:
    from torch import Tensor

SAMPLES = ("aten::argmax", "aten::multinomial")
"""Operations by which a loop samples."""
_BETWEEN = 4
"""The most frames between an operation's Python function and ours."""


@dataclass(slots=True)
class Batch:
    """Sequences that a loop generates together."""

    loop: CodeType
    """The loop, which samples in its own frame."""
    size: int
    """The number of sequences."""
    prompt_tokens: int
    """The number of each prompt's tokens, with padding."""
    program: str
    stated: Stated | None = None
    """The lengths and tokens that follow from `--lengths`; None if it is not given."""
    sampled: int = 0
    """The number of tokens that each sequence has."""
    turns: int = 0
    finished: bool = False
    known: int = 0
    """The number of these that the loop has waited for."""
    running: dict[int, int] = field(default_factory=dict)
    """The numbers of the responses that are not complete, by sequence."""

    def has_ended(self, sequence: int) -> bool:
        return self.stated is not None and self.known >= self.stated.lengths[sequence]


@dataclass(frozen=True, slots=True)
class Stated:
    """The lengths of responses, and the tokens that they are made of."""

    lengths: list[int]
    """The length of each sequence's response."""
    ends: tuple[int, ...]
    """The ids of end tokens; the first one is sampled."""
    other: int
    """The id of the token that is sampled until then."""

    def tokens(self, number: int) -> list[int]:
        """Returns the token of each sequence that has this number, from 1. Behind its end token a sequence has end
        tokens: loops pad there.
        """
        return [self.ends[0] if number >= length else self.other for length in self.lengths]

    def complete(self, sampled: int) -> list[tuple[int, bool]]:
        """Returns for each response how many tokens it has, and whether its end token was sampled."""
        return [(min(length, sampled), length <= sampled) for length in self.lengths]


class SampledTokens:
    """Chooses the tokens that loops sample. A thread runs one loop at a time, or loops within loops."""

    def __init__(self, control: ControlTensors, responses: Responses) -> None:
        self._control = control
        self.responses = responses
        self._batches = threading.local()

    # ---- the life of a batch ---------------------------------------------------------------------------------------
    def begin(self, batch: Batch) -> None:
        self._stack().append(batch)
        batch.running = {one: self.responses.arrived(batch.prompt_tokens) for one in range(batch.size)}
        self.responses.running(batch.size)

    def look(self, finished: bool) -> None:
        """The innermost loop is before a turn, and has waited for the tokens of the turns before. `finished`: it knows
        that all sequences are complete, and may go round for the sake of other ranks.
        """
        stack = self._stack()
        if not stack or stack[-1].finished:
            return
        batch = stack[-1]
        batch.turns += 1
        batch.finished = finished
        if batch.turns == 1:
            return
        batch.known += 1
        if batch.known == 1:
            for number in batch.running.values():
                self.responses.first(number)
        ended = [one for one in batch.running if batch.has_ended(one)]
        for one in ended:
            self.responses.ended(batch.running.pop(one), batch.known)
        if ended and batch.running:
            self.responses.running(len(batch.running))

    def end(self) -> None:
        """Ends the batch that began last."""
        batch = self._stack().pop()
        for number in batch.running.values():
            (self.responses.ended if batch.known else self.responses.dropped)(number, batch.known)
        self.responses.running(0)
        if batch.sampled and batch.stated is not None:
            self.responses.complete(batch.program, batch.stated.complete(batch.sampled), together=True)

    def _stack(self) -> list[Batch]:
        found: list[Batch] | None = getattr(self._batches, "stack", None)
        if found is None:
            found = self._batches.stack = []
        return found

    # ---- sampling --------------------------------------------------------------------------------------------------
    def around(self, computed: Kernel, call: Kernel) -> Kernel:
        """Returns the function to call in the place of `call`, which follows the policy of `--moe` where `computed`
        does not.
        """

        def sample(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            stack = self._stack()
            scores = args[0]
            if (
                not stack
                or stack[-1].stated is None
                or not scores.is_floating_point()
                or scores.dim() != 2
                or scores.size(0) != stack[-1].size
                or not _called_by(stack[-1].loop)
            ):
                return call(keyset, *args, **kwargs)
            # Tokens that are drawn from unknown probabilities may count as known, so the scores decide.
            known = self._control.small([scores]) and self._control.known([scores])
            result = computed(keyset, *args, **kwargs)
            if not known:
                self._fill(stack[-1], stack[-1].stated, as_tuple(result)[0])
            return result

        return sample

    def _fill(self, batch: Batch, stated: Stated, tokens: Tensor) -> None:
        """Writes the next token of each sequence."""
        import torch

        control = self._control
        if tokens.numel() != batch.size:
            return
        view = control.unrecorded(lambda: control.find_view(tokens))
        if view is None:
            self.responses.warn("tokens that a loop samples could not be stated: its responses have other lengths")
            return
        batch.sampled += 1
        chosen = stated.tokens(batch.sampled)

        def fill(_: bool) -> None:
            view.copy_(torch.tensor(chosen, dtype=view.dtype, device="cpu").view(view.shape))

        control.compute_when_arrived([], [tokens], fill)

    def known(self, tensor: Tensor) -> list[Any] | None:
        """Returns a tensor's elements as nested lists; None if they are not known."""
        control = self._control
        if not tensor.is_cuda:
            return control.unrecorded(tensor.tolist)
        control.wait([tensor])
        if control.state([Place(tensor)]) != KNOWN:
            return None
        view = control.unrecorded(lambda: control.find_view(tensor))
        return None if view is None else control.unrecorded(view.tolist)


def _called_by(loop: CodeType) -> bool:
    """Tells whether the operation is called in the loop's own frame, not by a model that it calls."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_BETWEEN):
        if frame is None:
            return False
        if frame.f_code is loop:
            return True
        frame = frame.f_back
    return False
