"""Routing: what is chosen by scores that are not computed follows the policy of `--moe`.

A router scores experts with floating-point kernels, and an operation such as `topk` chooses by these scores. If nobody
computed the scores, the choice comes from `expert_choice` and counts as known: everything that follows from it (counts,
offsets, permutations, sizes of collectives) is computed like all integers.

Which calls are a choice: an operation of CHOICES over a matrix (two dimensions or more) of floating-point numbers that
are not known, with 2 to 1,024 candidates, or any number if some are excluded by what is known (score_masks.py). A class
in a metric and the next token of a text are chosen in the same way: the report names every place, and calls it routing
if a module chose and the first use is no comparison with labels. A router written in Triton chooses unseen: its indices
are chosen where an operation of COUNTS counts them.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...contract.policies.routing_policy import RoutingPolicy
from ...interpreter.code_owner import Owner, owner_of
from ...private.access import schema_of
from ..computed_op import Kernel, as_tuple
from ..control_tensors import ASSUMED, KEPT, KNOWN, UNKNOWN, ControlTensors
from ..host_views import Place
from . import expert_choice, groups
from .loads import CountedChoice, RouterLayer, RoutingLoads
from .score_masks import MAX_NUMEL, Exclusion, ScoreMasks, excluded_of

if TYPE_CHECKING:
    from torch import Tensor

MAX_CANDIDATES = 1024
_MODULE_CALLS = ("_call_impl", "_wrapped_call_impl")
_RECOMPUTED = "torch/utils/checkpoint.py"
_STEPS = ("_step", "compute", "update")
"""Ends of names of methods by which frameworks have a module train, or a metric (a module, too) count."""
_CACHED = 256


@dataclass(frozen=True, slots=True)
class _Choice:
    """The way in which an operation chooses."""

    result: int
    """The place of the indices among its results."""
    count: str = ""
    """The argument that says how many are chosen; "" for one."""
    ordered: bool = False
    """True if it orders all candidates."""


_ONE, _TOP, _ALL = _Choice(0), _Choice(1, "k"), _Choice(1, ordered=True)
CHOICES = {
    f"aten::{name}": choice
    for names, choice in (
        ("topk topk.values", _TOP),
        ("argmax argmin argmax.out argmin.out", _ONE),
        ("max.dim min.dim max.dim_max min.dim_min", _Choice(1)),
        ("sort sort.stable sort.values sort.values_stable", _ALL),
        ("argsort.stable", _Choice(0, ordered=True)),
        ("multinomial multinomial.out", _Choice(0, "num_samples")),
    )
    for name in names.split()
}


COUNTS = {"aten::histc": "bins", "aten::bincount": "minlength"}
"""Operations that count how often each integer occurs, and the argument that says how many there are."""


def _in_compiled_code() -> bool:
    """Tells whether the operation is called by code that Inductor wrote. Some functions of torch's are in between."""
    frame: Any = sys._getframe(2)
    for _ in range(8):
        if frame is not None and owner_of(frame.f_code.co_filename) is Owner.GENERATED:
            return True
        frame = frame and frame.f_back
    return False


class Routing:
    """The routing of one process: its policy, and what was chosen."""

    policy: RoutingPolicy
    """Set when the run's job is known, before the first choice."""

    def __init__(self, control: ControlTensors) -> None:
        import torch

        self.loads = RoutingLoads(control.hook)
        self._control = control
        self._scores = ScoreMasks(control)
        self._layers: dict[int, weakref.WeakKeyDictionary[Any, dict[int, int]]] = {}
        """Numbers of layers, by candidates, module and place among the choices of a compiled graph."""
        self._compiled: dict[tuple[int, Any], dict[int, int]] = {}
        """Places among the choices of compiled code, by their lines."""
        self._steps: dict[tuple[int, int], int] = {}
        """The steps of the layers' last choices in a forward pass, by candidates and layer."""
        self._module = torch.nn.Module
        self._cache: OrderedDict[tuple[Any, ...], tuple[Tensor, list[int]]] = OrderedDict()

    def before(self, operation: Any, call: Kernel) -> Kernel:
        """Returns the function to call in the place of `call`, which computes the operation on small tensors."""
        schema = schema_of(operation)
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if name in CHOICES:
            return self._choosing(CHOICES[name], schema, call)
        if name in groups.PRODUCTS:
            return groups.told(self._control, operation, call)
        if schema.name in COUNTS:
            return self._counting(schema, call)
        return self._scores.before(name, call)

    # ---- choices ---------------------------------------------------------------------------------------------------
    def _choosing(self, choice: _Choice, schema: Any, call: Kernel) -> Kernel:
        places = {argument.name: i for i, argument in enumerate(schema.arguments)}
        defaults = {argument.name: argument.default_value for argument in schema.arguments}
        control = self._control
        verb = schema.name.removeprefix("aten::")

        def argument(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name in kwargs:
                return kwargs[name]
            return args[places[name]] if places[name] < len(args) else defaults[name]

        def choose(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            result = call(keyset, *args, **kwargs)
            scores = args[0]
            if not scores.is_floating_point() or scores.dim() < 2:
                return result
            dim = argument("dim", args, kwargs) if "dim" in places else -1
            count = 1 if not choice.count else argument(choice.count, args, kwargs)
            indices = as_tuple(result)[choice.result]
            if dim is None or not 0 < indices.numel() <= MAX_NUMEL:
                return result
            candidates = scores.size(dim)
            excluded = excluded_of(scores)
            if candidates < 2 or (candidates > MAX_CANDIDATES and excluded is None):
                return result
            arriving = self._computed_from(scores)
            if arriving is True or control.peek(Place(indices)) in (KNOWN, KEPT):
                return result
            last = indices
            if choice.count == "" and not choice.ordered and indices.dim() < scores.dim():
                last = indices.unsqueeze(dim)
            last = last.movedim(dim, -1)
            counted = self.fill(last, candidates, None if choice.ordered else count, excluded, dim, arriving, verb)
            if counted is not None and dim in (-1, scores.dim() - 1):  # others choose tokens, not experts
                if _in_compiled_code():
                    counted.used()  # by kernels, which cannot be seen
                else:
                    self._when_used(indices, counted.used)
            return result

        return choose

    def _counting(self, schema: Any, call: Kernel) -> Kernel:
        """Integers that nobody computed (a router of Triton's wrote them) are chosen where they are counted."""
        names = [argument.name for argument in schema.arguments]
        place, default = names.index(COUNTS[schema.name]), {a.name: a.default_value for a in schema.arguments}
        verb, integers = schema.name.removeprefix("aten::"), self._control.integers

        def count(keyset: Any, indices: Tensor, *args: Any, **kwargs: Any) -> Any:
            control = self._control
            name = names[place]
            candidates = kwargs.get(name, args[place - 1] if place <= len(args) else default[name])
            if (
                indices.dtype in integers
                and 2 <= candidates <= MAX_CANDIDATES
                and 0 < indices.numel() <= MAX_NUMEL
                and control.small([indices])
                and control.state([Place(indices)]) in (UNKNOWN, ASSUMED)
            ):
                rows = indices if indices.dim() > 1 and indices.size(-1) <= candidates else indices.reshape(-1, 1)
                counted = self.fill(rows, candidates, rows.size(-1), None, -1, False, verb)
                if counted is not None:
                    counted.used()
            return call(keyset, indices, *args, **kwargs)

        return count

    def _computed_from(self, scores: Tensor) -> Place | bool:
        """True if the operation is computed from the scores; else the memory of scores that have yet to arrive from
        another rank and may be known then, or False if there is none.
        """
        control = self._control
        if not control.small([scores]):
            return False
        if control.pending([scores]):
            return Place(scores)
        return control.known([scores])

    def fill(
        self,
        indices: Tensor,
        candidates: int,
        count: int | None,
        excluded: Exclusion | None,
        dim: int,
        arriving: Place | bool,
        verb: str,
        form: Callable[[Tensor], Tensor] | None = None,
        groups: tuple[int, int] | None = None,
    ) -> CountedChoice | None:
        """Writes the indices, whose last dimension is that of the candidates; None if they cannot be written. `form`
        makes of them what is written in their place. `groups`: how many groups of candidates there are, and of how many
        of them the candidates are. Called by the function that the program's operation calls.
        """
        control = self._control
        module, layer, routes = self._place(candidates)
        rows, chosen_by_row = indices.numel() // indices.size(-1), 1 if count is None else count
        view = control.unrecorded(lambda: control.find_view(indices))
        if view is None:
            return None
        counts = f"aten::{verb}" in COUNTS
        router = RouterLayer(module if routes or counts else "", verb, layer, chosen_by_row, candidates)
        counted = CountedChoice(self.loads, router, control.hook.line())
        step = self._step(candidates, layer) if routes or counts else 0

        def fill(_: bool) -> None:
            if isinstance(arriving, Place) and control.state_of(arriving) == KNOWN:
                return
            mask = None if excluded is None else excluded.mask().movedim(dim, -1).reshape(rows, candidates)
            if groups is not None:
                mask = expert_choice.outside(self.policy, rows, candidates, *groups, layer)
            chosen, loads = self._chosen(rows, candidates, count, layer, mask, step)
            view.copy_((chosen if form is None else form(chosen)).view(view.shape))
            counted.known(loads)

        self._scores.chosen(indices)
        arriving_masks = [] if excluded is None else list(excluded.arriving)
        control.compute_when_arrived(arriving_masks, [indices], fill, chosen=not routes)
        return counted

    def _when_used(self, indices: Tensor, report: Callable[[bool], None]) -> None:
        """A choice is reported when its indices are used: of many a maximum the program needs the value alone."""
        waiting = self._control.unused_choices
        waiting[indices.untyped_storage().data_ptr()] = weakref.ref(indices), report
        if len(waiting) > _CACHED:
            del waiting[next(iter(waiting))]

    def _chosen(
        self, rows: int, candidates: int, count: int | None, layer: int, excluded: Tensor | None, step: int
    ) -> tuple[Tensor, list[int]]:
        """Returns the indices, and how often each candidate was chosen (where all are ordered, how often it came
        first).
        """
        import torch

        key = (rows, candidates, count, layer, step)
        if excluded is None and (found := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return found
        if count is None:
            chosen = expert_choice.order(self.policy, rows, candidates, layer)
            counted = chosen[:, 0]
        else:
            allowed = None if excluded is None else ~excluded
            chosen = counted = expert_choice.choose(self.policy, rows, candidates, count, layer, allowed, step)
        loads = torch.bincount(counted.flatten(), minlength=candidates).tolist()
        if excluded is None:
            self._cache[key] = chosen, loads
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return chosen, loads

    def _step(self, candidates: int, layer: int) -> int:
        """Returns the number of training steps that had ended when the layer last chose in a forward pass. Activations
        that are computed again in a backward pass are routed as before, even if an optimizer has stepped meanwhile.
        """
        ended = self._control.hook.steps_ended()
        if ended < 0:
            return self._steps.get((candidates, layer), 0)
        self._steps[candidates, layer] = ended
        return ended

    def _place(self, candidates: int) -> tuple[str, int, bool]:
        """Returns the class of the innermost module whose code chooses, and the number of this layer among those that
        choose from so many candidates, in the order of their first choice. ("", 0) if there is none. A graph that
        Inductor compiled may have the routers of many layers. Then: is it a router's choice, as far as can be seen?
        """
        frame: Any = sys._getframe(3)
        ordinal = 0
        for _ in range(64):
            if frame is None:
                break
            code = frame.f_code
            if owner_of(code.co_filename) is Owner.GENERATED:
                lines = self._compiled.setdefault((candidates, code), {})
                ordinal = lines.setdefault(frame.f_lineno, len(lines))
            if code.co_varnames[:1] == ("self",):
                owner = frame.f_locals.get("self")
                if isinstance(owner, self._module):
                    layers = self._layers.setdefault(candidates, weakref.WeakKeyDictionary())
                    of_owner = layers.setdefault(owner, {})
                    if ordinal not in of_owner:
                        of_owner[ordinal] = sum(map(len, layers.values()))
                    return type(owner).__name__, of_owner[ordinal], self._routes(frame)
            frame = frame.f_back
        return "", ordinal, False

    def _routes(self, frame: Any) -> bool:
        """Tells whether a module is being called. Else the program chooses by itself: a class in a metric, an action,
        the next word. Frames below the script's are those of its start.
        """
        for _ in range(64):
            if frame is None:
                return False
            code = frame.f_code
            if code.co_name == "<module>":
                return False
            if owner_of(code.co_filename) is Owner.GENERATED or code.co_name in _MODULE_CALLS:
                return True
            if code.co_filename.endswith(_RECOMPUTED):
                return True  # a method of a module, which was called before
            if code.co_varnames[:1] == ("self",) and code.co_name.endswith(_STEPS):
                owner = frame.f_locals.get("self")
                if isinstance(owner, self._module):
                    return False
            frame = frame.f_back
        return False
