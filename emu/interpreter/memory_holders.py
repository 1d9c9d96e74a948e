"""Tells the hook library which device memory holds parameters, gradients and the optimizer's state.

The hook library knows the blocks of the peak (emu/hook/holders/holders.c). At the end of a step that has brought a new
peak, the tensors of all modules and optimizers of this process are looked up: a few times in a run, as later steps
repeat the peak. Nothing of it takes virtual time or device memory.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..contract.records import HeldKind
from ..private.changes import Names, changes
from .hook_library import Hook

_LONG_S = 1000.0
_DEEPEST = 4
"""The depth to which tensors within tensors are looked for: a parameter may be a DTensor of a tensor in fp8."""
Found = dict[int, set[int]]
"""Addresses of storages by what they hold; 0: other tensors."""


class MemoryHolders:
    """Finds the holders of one rank's memory."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._may_look = False

    def install(self) -> None:
        """Makes it look when an allocation fails, before the exception takes the script's frames away. Called once, in
        the rank.
        """
        self._may_look = changes.usable("memory holders") is not None
        if self._may_look:
            changes.install("memory that was missing", self._observe)

    def _observe(self, names: Names) -> None:
        attach = names.get("_cuda_attach_out_of_memory_observer")
        # As torch.cuda._lazy_call, which would also keep the text of this stack.
        names.get("_queued_calls").append((lambda: self._attach(attach), []))

    def _attach(self, attach: Callable[[Callable[[int, int, int, int], None]], None]) -> None:
        if sys.modules["torch"].cuda.get_allocator_backend() == "native":  # others have no observers, and raise
            attach(self._out_of_memory)

    def step_ends(self) -> None:
        if self._may_look and self._hook.memory_step():
            self._look(True)

    def report(self) -> None:
        """Looks at the rank's end, if memory has reached a new peak since the last look."""
        if self._may_look and self._hook.memory_grew():
            self._look(False)

    def _out_of_memory(self, device: int, nbytes: int, total: int, free: int) -> None:
        self._look(False)

    def _look(self, step_ends: bool) -> None:
        self._hook.uncounted(1)
        # No other thread may run while the objects are in a list: the list would free a tensor that it has dropped.
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_LONG_S)
        try:
            found, of_modules = find()
            sys.setswitchinterval(interval_s)
            for held_as, addresses in found.items():
                self._hook.memory_held(held_as, sorted(addresses))
            for module, addresses in of_modules.items():
                self._hook.memory_of(self._hook.module_number(module) if module else 0, sorted(addresses))
            self._hook.memory_tell(step_ends)
        finally:
            sys.setswitchinterval(interval_s)
            self._hook.uncounted(-1)


def find() -> tuple[Found, Found]:
    """Returns the storages on the device of all tensors that the garbage collector knows. What is a parameter and
    something else, too, is a parameter; then gradients count, then the optimizer's state. And those that belong to the
    parameters of one module, by its address; 0: of several modules.
    """
    torch = sys.modules["torch"]
    bases = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    objects: dict[Any, list[Any]] = {base: [] for base in bases}
    kinds: dict[type, list[Any] | None] = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind not in kinds:
            kinds[kind] = next((objects[base] for base in bases if issubclass(kind, base)), None)
        if (known := kinds[kind]) is not None:
            known.append(one)
    tensors, modules, optimizers = (objects[base] for base in bases)
    with torch._C.DisableTorchFunctionSubclass():
        parameters, buffers = _of_modules(modules)
        stepped = [one for optimizer in optimizers for one in _tensors_in(getattr(optimizer, "param_groups", []))]
        state = [one for optimizer in optimizers for one in _tensors_in(getattr(optimizer, "state", {}))]
        attributes = [pair for one in (*parameters, *stepped) for pair in vars(one).items()]
        gradients = [_gradient(one) for one in (*parameters, *stepped)]
        gradients += [value for name, value in attributes if "grad" in name]  # Megatron's main_grad
        held = [value for name, value in attributes if "grad" not in name]  # DeepSpeed's ds_tensor
        found = {
            0: _addresses(tensors),
            HeldKind.OPTIMIZER_STATE: _addresses((*state, *stepped)),
            HeldKind.GRADIENTS: _addresses(_tensors_in(gradients)),
            HeldKind.PARAMETERS: _addresses((*parameters, *buffers, *_tensors_in(held))),
        }
        owned = _owned(modules, optimizers)
    return {int(held_as): addresses for held_as, addresses in found.items()}, owned


def _owned(modules: Iterable[Any], optimizers: Iterable[Any]) -> Found:
    """Returns the storages of parameters, of their gradients and of what optimizers keep for them, by the address of
    the module that has them.
    """
    states = [state for one in optimizers if isinstance(state := getattr(one, "state", None), dict)]
    owners: dict[int, int] = {}
    for module in modules:
        own = [*vars(module).get("_parameters", {}).values(), *vars(module).get("_buffers", {}).values()]
        for one in _tensors_in(own):
            kept = [state[one] for state in states if one in state]
            attributes = [value for _, value in vars(one).items()]
            for address in _addresses(_tensors_in([one, _gradient(one), *attributes, *kept])):
                owners[address] = id(module) if owners.get(address, id(module)) == id(module) else 0
    found: Found = {}
    for address, module_at in owners.items():
        found.setdefault(module_at, set()).add(address)
    return found


def _of_modules(modules: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Returns parameters and buffers; a module may not have been initialised."""
    parameters = [one for module in modules for one in vars(module).get("_parameters", {}).values()]
    buffers = [one for module in modules for one in vars(module).get("_buffers", {}).values()]
    return list(_tensors_in(parameters)), list(_tensors_in(buffers))


def _gradient(tensor: Any) -> Any:
    return tensor.grad if tensor.is_leaf else None  # others warn


def _tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yields the tensors in dictionaries, lists and tuples."""
    if isinstance(value, sys.modules["torch"].Tensor):
        yield value
    elif depth <= _DEEPEST and isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(one, depth + 1)


def _addresses(tensors: Iterable[Any]) -> set[int]:
    return {address for tensor in tensors for address in _storages(tensor)}


def _storages(tensor: Any, depth: int = 0) -> Iterator[int]:
    """Yields the addresses of a tensor's storages. A tensor that is made of others (a DTensor) has theirs."""
    if hasattr(type(tensor), "__tensor_flatten__") and depth < _DEEPEST:
        inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        for one in inner:
            if isinstance(one, sys.modules["torch"].Tensor):  # from torch 2.15 on, a DTensor names its mesh, too
                yield from _storages(one, depth + 1)
    elif tensor.is_cuda:
        try:
            storage = tensor.untyped_storage()
            if storage.device.type == "meta":  # a FakeTensor, which says it is on the device: asking it warns
                return
            address = storage.data_ptr()
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):  # sparse ones, and classes of packages
            return  # that let nobody ask for their storage: their blocks stay what the hook library takes them for
        if address:
            yield address
