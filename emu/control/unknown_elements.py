"""Finds the elements of an operation's results that follow from unknown elements of its arguments, where others are
known.

There are four rules. Arithmetic, sums and moves are called once more with NaN in place of what is unknown, and what
becomes NaN follows from it. An element of a comparison, or of another function of single elements, follows from those
at its place. What an operation finds in a row, its largest element for example, follows from the whole row. What it
takes from a row of equal elements does not depend on the index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..private.access import schema_of
from ..reads.elements import MOST, Flags

if TYPE_CHECKING:
    from torch import Tensor

Unknown = Callable[["Tensor"], "bool | Flags"]
"""`unknown(tensor)` says whether nobody computed the tensor's elements; flags say so of each element."""
_COMPARING = "eq ge gt isclose le lt logical_and logical_not ne"
COMPARING = frozenset((*_COMPARING.split(), "equal", "is_nonzero"))
_ARITHMETIC = """
    _foreach_add _foreach_div _foreach_lerp _foreach_mul _foreach_neg _foreach_sqrt _foreach_sub _index_put_impl
    _local_scalar_dense _log_softmax _softmax abs acos add addcdiv addcmul addmm addmv amax amin aminmax asin atan atan2
    baddbmm bmm cat ceil clamp clamp_max clamp_min cos cosh cummax cummin cumprod cumsum div dot erf erfc exp exp2 expm1
    flip floor floor_divide fmod frac gather hypot index index_add index_copy index_fill index_put index_select lerp
    linalg_vector_norm log log10 log1p log2 logaddexp logcumsumexp logsumexp masked_fill max maximum mean median min
    minimum mm mul mv neg norm pow prod reciprocal relu remainder repeat roll round rsqrt rsub scatter scatter_add
    sigmoid sin sinh sqrt square stack std std_mean sub sum tan tanh tril triu trunc var var_mean where
"""
ARITHMETIC = frozenset(_ARITHMETIC.split())
"""Names of operations whose results are NaN where a number that they follow from is NaN."""
HIDING = frozenset(("nan_to_num", "nanmedian", "nansum", "sign"))
"""Names of operations that skip or replace NaN."""
_ELEMENTWISE = "bitwise_and bitwise_not bitwise_or bitwise_xor copy isinf isnan logical_or logical_xor nan_to_num sign"
_OF_ELEMENTS = frozenset((*_COMPARING.split(), *_ELEMENTWISE.split()))
_SORTING = frozenset(("argsort", "sort", "topk"))
_FINDING = "all any argmax argmin count_nonzero kthvalue mode nanmedian nansum"
_OF_ROWS = _SORTING.union(_FINDING.split())
_TAKING = frozenset(("gather", "index_select"))
_PUTTING = "_index_put_impl cat index_add index_copy index_fill index_put masked_fill scatter scatter_add stack where"
_JOINING = _TAKING.union(_PUTTING.split())
"""Names of operations of which an element of the result may follow from one argument alone."""


class UnknownElements:
    """Finds, by the rule of one operation, which elements of its results follow from unknown elements."""

    def __init__(self, operation: Any, unknown: Unknown) -> None:
        schema = schema_of(operation)
        self._base = schema.name.removeprefix("aten::").rstrip("_")
        self._places = {one.name: i for i, one in enumerate(schema.arguments)}
        self._unknown = unknown

    @staticmethod
    def has_rule(operation: Any) -> bool:
        """Says whether there is a rule for this operation."""
        base = schema_of(operation).name.removeprefix("aten::").rstrip("_")
        return base in ARITHMETIC or base in _OF_ELEMENTS or base in _OF_ROWS

    def may_tell(self, tensors: Sequence[Tensor]) -> bool:
        """Says whether an element of the results can be known although not all elements of these tensors are, which the
        operation reads.
        """
        found = [self._unknown(one) for one in tensors]
        if sum(one.numel() for one in tensors) > MOST:
            return False
        return any(one is not True and one is not False for one in found) or (
            self._base in _JOINING and True in found and False in found
        )

    def of(
        self, read: Sequence[Tensor], args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., list[Any]]
    ) -> list[Flags | None]:
        """Returns flags of each result, before the operation is called; None, or nothing for a result: all of its
        elements follow. `read`: the tensors that the operation reads. `call` is the operation: it gets copies.
        """
        if not self.may_tell(read):
            return []
        if self._base in _TAKING:
            return self._of_taken(*args[:3]) if len(args) > 2 else []
        if self._base in ARITHMETIC:
            if any(self._unknown(one) is not False for one in read if not _has_nan(one)):
                return []
            if 0 in (self._argument("p", args, kwargs, None), self._argument("ord", args, kwargs, None)):
                return []  # such a norm counts elements, NaN among them
            return self._of_arithmetic(
                call(*map(self._with_nan, args), **{k: self._with_nan(v) for k, v in kwargs.items()})
            )
        return self._of_elements(args, read) if self._base in _OF_ELEMENTS else self._of_rows(args, kwargs)

    # ---- the rules ---------------------------------------------------------------------------------------------------
    def _of_arithmetic(self, results: list[Any]) -> list[Flags | None]:
        import torch

        numbers = next((one for one in results if isinstance(one, torch.Tensor) and _has_nan(one)), None)
        found: list[Flags | None] = []
        for one in results:
            if not isinstance(one, torch.Tensor) or numbers is None:
                found.append(None)
            elif _has_nan(one):
                found.append(torch.isnan(one).flatten().tolist())
            else:  # where the largest numbers are, beside these numbers
                found.append(torch.isnan(numbers).flatten().tolist() if one.shape == numbers.shape else None)
        return found

    def _of_elements(self, args: Sequence[Any], read: Sequence[Tensor]) -> list[Flags | None]:
        import torch

        shape = args[0].shape if self._base == "copy" else torch.broadcast_shapes(*(one.shape for one in read))
        found = torch.zeros(shape, dtype=torch.bool, device="cpu")
        for one in read:
            found |= self._mask(one)
        return [found.flatten().tolist()]

    def _of_rows(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Flags | None]:
        dim = self._argument("dim", args, kwargs, -1 if self._base in _SORTING else None)
        if dim is None or isinstance(dim, (list, tuple)):
            return []
        mask = self._mask(args[0])
        found = mask.any(dim, keepdim=True)
        if self._base in _SORTING and mask.dim():
            sizes = list(mask.shape)
            sizes[dim] = args[1] if self._base == "topk" else sizes[dim]
            found = found.expand(sizes)
        return [found.flatten().tolist()] * 2

    def _of_taken(self, taken_from: Tensor, dim: int, index: Tensor) -> list[Flags | None]:
        """`gather` has an index for each element of the result, `index_select` one for all rows."""
        import torch

        mask, of_index = self._mask(taken_from), self._mask(index)
        if not taken_from.dim() or not taken_from.size(dim):
            return []
        known_index = index.masked_fill(of_index, 0)
        rows = (taken_from != taken_from.narrow(dim, 0, 1)).any(dim, keepdim=True) | mask.any(dim, keepdim=True)
        if self._base == "gather":
            for other, size in enumerate(index.shape):
                if other != dim % taken_from.dim():
                    rows = rows.narrow(other, 0, size)
            found = torch.where(of_index, rows.expand(index.shape), mask.gather(dim, known_index))
        else:
            shape = [1] * taken_from.dim()
            shape[dim] = -1
            found = torch.where(of_index.view(shape), rows, mask.index_select(dim, known_index))
        return [found.flatten().tolist()]

    def _argument(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], default: Any) -> Any:
        place = self._places.get(name, len(args))
        return args[place] if place < len(args) else kwargs.get(name, default)

    def _mask(self, tensor: Tensor) -> Tensor:
        import torch

        found = self._unknown(tensor)
        if isinstance(found, bool):
            return torch.full(tensor.shape, found, device="cpu")
        return torch.tensor(found, device="cpu").view(tensor.shape)

    def _with_nan(self, value: Any) -> Any:
        import torch

        if isinstance(value, (list, tuple)):
            return type(value)(map(self._with_nan, value))
        if not isinstance(value, torch.Tensor):
            return value
        found = self._unknown(value) if _has_nan(value) else False
        copied = value.clone()
        if isinstance(found, bool):
            return copied.fill_(math.nan) if found else copied
        return copied.masked_fill_(self._mask(value), math.nan)


def _has_nan(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def tensors(result: Any) -> list[Tensor]:
    """Returns the tensors among an operation's results."""
    import torch

    return [one for one in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(one, torch.Tensor)]


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yields the tensors among an operation's arguments, also those in lists."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
