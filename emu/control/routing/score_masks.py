"""Masks over scores that are not computed: they say which of the scores cannot be chosen.

A router fills scores with 0 or less where something known says so (groups of experts that a token does not go to, the
expert that it has chosen already), puts the chosen scores into a matrix of zeros, or multiplies scores by a mask of
integers. The next choice is among the rest. And a floating-point matrix of zeros is converted to integers, or gets ones
where something was chosen: both are computed whatever the matrix' size, because the drop of tokens follows from them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..computed_op import Kernel
from ..control_tensors import KNOWN, PENDING, ControlTensors
from ..host_views import Place

if TYPE_CHECKING:
    from torch import Tensor

MAX_NUMEL = 1 << 22
"""The most elements of a router's tensor."""
_CHOSEN = 64
_EXCLUDED = "_phantora_excluded"
"""The attribute of scores: an Exclusion."""
_FILLED = "_phantora_filled"
"""The attribute of a large matrix that was filled when it was made: the number. Nothing has written to it since if its
version is 0.
"""


class Exclusion(NamedTuple):
    """A mask of the scores that cannot be chosen."""

    mask: Callable[[], Tensor]
    """Gives a bool tensor of the scores' shape, on the CPU, once the tensors that it comes from have arrived."""
    arriving: tuple[Tensor, ...]
    """The tensors, among those that the mask comes from, that have not arrived yet."""


def excluded_of(scores: Tensor) -> Exclusion | None:
    """Returns the mask of these scores; None if nothing is known to be excluded."""
    return getattr(scores, _EXCLUDED, None)


def _filled_with(tensor: Tensor) -> float | None:
    value: float | None = getattr(tensor, _FILLED, None)
    return value if value is not None and _is_new(tensor) else None


def _is_new(tensor: Tensor) -> bool:
    """Tells whether nothing has been written to the tensor in place. Of tensors of inference mode nobody can tell."""
    return not tensor.is_inference() and tensor._version == 0


class ScoreMasks:
    """Notes what each operation says of the scores."""

    def __init__(self, control: ControlTensors) -> None:
        self._control = control
        self._chosen: OrderedDict[int, None] = OrderedDict()
        self._notes: dict[str, Callable[..., None]] = {
            **dict.fromkeys(("masked_fill.Scalar", "masked_fill.Tensor"), self._filled),
            **dict.fromkeys(("masked_fill_.Scalar", "masked_fill_.Tensor"), self._filled),
            "where.self": self._selected,
            "mul.Tensor": self._multiplied,
            **dict.fromkeys(("scatter.src", "scatter_.src"), self._scattered),
            **dict.fromkeys(("scatter.value", "scatter_.value"), self._marked),
            **dict.fromkeys(("fill_.Scalar", "zero_"), self._made),  # since torch 2.15 zero_ does not call fill_
            "copy_": self._converted,
        }

    def before(self, name: str, call: Kernel) -> Kernel:
        """Returns the function to call in the place of `call`, which computes the operation on small tensors."""
        note = self._notes.get(name.removeprefix("aten::"))
        if note is None:
            return call

        def noting(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            result = call(keyset, *args, **kwargs)
            if result.dim() in (2, 3) and not kwargs:
                note(result, *args)
            return result

        return noting

    def chosen(self, indices: Tensor) -> None:
        """Notes that the routing policy writes these indices."""
        self._chosen[indices.untyped_storage().data_ptr()] = None
        if len(self._chosen) > _CHOSEN:
            self._chosen.popitem(last=False)

    # ---- operations ------------------------------------------------------------------------------------------------
    def _filled(self, result: Tensor, scores: Tensor, mask: Tensor, value: Any) -> None:
        if self._is_low(value):
            self._note(result, mask, scores)

    def _selected(self, result: Tensor, condition: Tensor, scores: Any, other: Any) -> None:
        if self._is_low(other):
            self._note(result, condition, scores, excluded=False)
        elif self._is_low(scores):
            self._note(result, condition, other)

    def _multiplied(self, result: Tensor, one: Any, other: Any) -> None:
        integers, tensor_type = self._control.integers, self._control.tensor_type
        if isinstance(one, tensor_type) and isinstance(other, tensor_type):
            if one.dtype in integers:
                self._note(result, one, other, excluded=False)
            elif other.dtype in integers:
                self._note(result, other, one, excluded=False)

    def _scattered(self, result: Tensor, scores: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
        import torch

        shape, control = result.shape, self._control
        if not result.is_floating_point():
            return
        if source.is_cuda and control.state([Place(source)]) not in (KNOWN, PENDING):
            control.overwrite([result])  # the kernel has copied `scores`, which may be known, and is not executed
        if result.numel() <= MAX_NUMEL:
            self._exclude(
                result,
                index,
                lambda view: torch.ones(shape, dtype=torch.bool, device="cpu").scatter_(dim, view, False),
                None,
            )

    def _made(self, result: Tensor, _: Tensor, value: float = 0.0) -> None:
        if self._is_matrix(result) and _is_new(result):
            setattr(result, _FILLED, value)

    def _converted(self, result: Tensor, _: Tensor, source: Tensor, *__: Any) -> None:
        control = self._control
        value = _filled_with(source)
        if value is None or result.dtype not in control.integers or not result.is_cuda:
            return
        view = control.unrecorded(lambda: control.find_view(result))
        if view is not None:
            control.compute_when_arrived([], [result], lambda _: view.fill_(value))

    def _marked(self, result: Tensor, before: Tensor, dim: int, index: Tensor, value: float) -> None:
        """Writes numbers where something was chosen, in a large floating-point matrix that is known."""
        control = self._control
        filled = _filled_with(before)
        if not self._is_matrix(result) or index.untyped_storage().data_ptr() not in self._chosen:
            return
        views = control.unrecorded(lambda: [control.find_view(tensor) for tensor in (result, before, index)])
        if any(view is None for view in views):
            return
        in_place, (to, was, where) = result is before, views

        def compute(known: bool) -> None:
            if not known:
                return
            if filled is not None:
                to.fill_(filled)
            elif not in_place:
                to.copy_(was)
            to.scatter_(dim, where, value)

        control.computed_at_any_size(result)
        control.compute_when_arrived([index] if filled is not None else [before, index], [result], compute)

    # ---- what they have in common ----------------------------------------------------------------------------------
    def _is_matrix(self, tensor: Tensor) -> bool:
        """Tells whether the tensor is a matrix of floating-point numbers that is larger than what is always
        computed.
        """
        limit = self._control.float_limit_numel
        return tensor.is_floating_point() and tensor.is_cuda and limit < tensor.numel() <= MAX_NUMEL

    def _is_known(self, tensor: Tensor) -> bool:
        return tensor.is_cuda and self._control.known([tensor])

    def _is_low(self, value: Any) -> bool:
        """Tells whether the value is a number that is 0 or less."""
        if not isinstance(value, self._control.tensor_type):
            return isinstance(value, (int, float)) and value <= 0
        if value.dim() or not value.is_floating_point():
            return False
        if not value.is_cuda:
            return bool(self._control.unrecorded(lambda: value <= 0))
        if not self._is_known(value):
            return False
        view = self._control.unrecorded(lambda: self._control.find_view(value))
        return view is not None and bool(self._control.unrecorded(lambda: view <= 0))

    def _note(self, result: Tensor, mask: Tensor, scores: Any, *, excluded: bool = True) -> None:
        """Scores where the mask is true (`excluded`) or where it is not cannot be chosen."""
        control = self._control
        if not isinstance(scores, control.tensor_type) or not scores.is_floating_point():
            return
        if mask.shape == scores.shape == result.shape and mask.numel() <= MAX_NUMEL:
            self._exclude(result, mask, lambda view: (view != 0) if excluded else (view == 0), excluded_of(scores))

    def _exclude(
        self, result: Tensor, source: Tensor, mask_of: Callable[[Tensor], Tensor], before: Exclusion | None
    ) -> None:
        """Notes what `mask_of` says of the integers in `source`, and what was excluded before."""
        control = self._control
        arriving = source.is_cuda and control.pending([source])
        if not arriving and not self._is_known(source):
            return
        view = control.unrecorded(lambda: control.find_view(source))
        if view is None:
            return

        def mask() -> Tensor:
            now = mask_of(view)
            return now if before is None else now | before.mask()

        waiting = () if before is None else before.arriving
        if arriving or waiting:
            setattr(result, _EXCLUDED, Exclusion(mask, (*waiting, source)))
            return
        found = control.unrecorded(mask)
        setattr(result, _EXCLUDED, Exclusion(lambda: found, ()))
