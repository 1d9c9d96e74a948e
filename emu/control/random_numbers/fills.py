"""Functions before the CUDA kernels that draw random numbers: small results get the numbers that a GPU would draw.

`bernoulli` with a tensor of probabilities, `multinomial` with replacement and dropout have kernels of their own, with
other orders of the numbers. Distributions that are drawn by rejection (Poisson, gamma, binomial) come from a CPU
generator with the seed and offset of the CUDA generator: the same numbers in every run, but not those of a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...private.access import schema_of
from ..computed_op import Kernel, as_tuple
from ..control_tensors import KNOWN, ControlTensors
from ..host_views import Layout, NoHostView, Place
from ..references import Recipe
from ..references import shared as references_of
from .distributions import AT_ANY_SIZE, IN_PLACE, Distributions, Draw, Given, Output
from .philox import BLOCK, GeneratorState, Philox, state_of

if TYPE_CHECKING:
    from torch import Tensor

MOST = 1 << 31
"""The most elements of a tensor: PyTorch splits larger ones among several launches."""
_FEW = 4
"""The number of elements for which a thread draws at once: fewer elements of a piece are drawn one by one."""


class RandomOps:
    """The state that the functions of random operations share."""

    def __init__(self, control: ControlTensors) -> None:
        self.control = control
        self._distributions: dict[Any, Distributions] = {}

    def generator_of(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor) -> Any:
        import torch

        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator):
                return value
        return torch.cuda.default_generators[tensor.device.index]

    def state(self, generator: Any) -> GeneratorState | None:
        """Returns the generator's state; None while a graph is captured: the numbers are those of the launches of the
        graph.
        """
        import torch

        if torch.cuda.is_current_stream_capturing() or generator.device.type != "cuda":
            return None
        return state_of(generator)

    def distributions(self, device: Any) -> Distributions:
        import torch

        found = self._distributions.get(device)
        if found is None:
            properties = torch.cuda.get_device_properties(device)
            threads = properties.max_threads_per_multi_processor // BLOCK * BLOCK * properties.multi_processor_count
            found = self._distributions[device] = Distributions(Philox(self.control.hook, threads))
        return found

    def drawn(
        self,
        distributions: Distributions,
        draw: Draw,
        state: GeneratorState,
        output: Output,
        given: Given,
        first: int = 0,
        last: int | None = None,
    ) -> Tensor:
        """Returns the numbers of a large output from the first up to the last, in the order of memory."""
        import torch

        end = output.numel if last is None else last
        values = torch.empty(end - first, dtype=output.dtype, device="cpu")
        at = 0
        for begin, part, count in distributions.parts(state, output):
            low, high = max(at, first), min(at + count, end)
            if low < high:
                if (high - low) * _FEW > count:
                    numbers = draw(distributions, begin, part, given)[low - at : high - at]
                else:
                    numbers = torch.cat([*distributions.some(draw, begin, part, given, low - at, high - at)])
                values[low - first : high - first] = numbers
            at += count
        return values

    def fill(self, output: Tensor, values: Callable[[], Tensor]) -> None:
        """Writes `values()`, in the order of memory, once no earlier write is pending."""
        control = self.control
        place = Place(output)
        try:
            view = control.unrecorded(lambda: control.host_view(output))
        except NoHostView:
            control.overwrite([output])
            return
        order = memory_order(view)

        def write() -> None:
            target = view.permute(order)
            target.copy_(values().reshape(target.shape))
            control.mark(place, KNOWN)

        control.perform(output.device.index, [], [place], write, later=control.in_use([place]))


def in_place(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before an operation of `IN_PLACE`."""
    ops, references = shared(control), references_of(control)
    name = _name(operation)
    draw, at_any_size = IN_PLACE[name], name in AT_ANY_SIZE

    def given_by(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
        return lambda place, name, default: (
            kwargs[name] if name in kwargs else args[place] if place < len(args) else default
        )

    def numbers(kwargs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in kwargs.items() if name != "generator"}

    def drawn(
        layout: Layout,
        seed: int,
        offset: int,
        threads: int,
        numel: int,
        args: Any,
        kwargs: Any,
        first: int = 0,
        last: int | None = None,
    ) -> Tensor:
        """Returns the numbers of a large output, in the order of memory."""
        return ops.drawn(
            Distributions(Philox(control.hook, threads)),
            draw,
            GeneratorState(seed, offset),
            Output(numel, layout.dtype),
            given_by(args, kwargs),
            first,
            last,
        )

    references.kinds[name] = references.parts[name] = drawn

    def call(keyset: Any, output: Tensor, *args: Any, **kwargs: Any) -> Any:
        small = control.is_small(output)
        if not (small or (at_any_size and output.numel() <= MOST)) or not output.numel() or output.is_complex():
            result = kernel(keyset, output, *args, **kwargs)
            control.overwrite([output])
            return result
        # The kernel moves the generator on: the numbers are those of its state before.
        state = ops.state(ops.generator_of(args, kwargs, output))
        result = kernel(keyset, output, *args, **kwargs)
        if state is None:
            control.overwrite([output])
            return result
        distributions = ops.distributions(output.device)
        shape = Output(output.numel(), output.dtype)

        given = given_by(args, kwargs)
        if not small:
            # Large outputs are remembered by the generator's state, and drawn only if somebody reads them.
            threads = distributions.threads_at_once
            references.computed(
                output, Recipe(name, (state.seed, state.offset, threads, shape.numel, args, numbers(kwargs)))
            )
            return result
        ops.fill(output, lambda: draw(distributions, state, shape, given))
        return result

    return call


def bernoulli_of_tensor(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `bernoulli_(probabilities)`: each thread draws four numbers for four elements in a
    row."""
    ops = shared(control)

    def call(keyset: Any, output: Tensor, p: Tensor, *args: Any, **kwargs: Any) -> Any:
        small = control.is_small(output) and control.is_small(p) and output.numel() > 0
        state = ops.state(ops.generator_of(args, kwargs, output)) if small else None
        result = kernel(keyset, output, p, *args, **kwargs)
        if state is None or (p.is_cuda and control.state_of(Place(p)) != KNOWN):
            control.overwrite([output])
            return result

        def values() -> Tensor:
            numel = output.numel()
            drawn = ops.distributions(output.device).groups(state, -(-numel // 4)).flatten()[:numel]
            probabilities = control.host_view(p) if p.is_cuda else p
            expanded = probabilities.expand(output.shape).permute(memory_order(output))
            return drawn <= expanded.reshape(-1)

        ops.fill(output, values)
        return result

    return call


def dropout(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `native_dropout`: a thread draws for four elements in a row if their number allows
    that.
    """
    import torch

    ops = shared(control)

    def call(keyset: Any, x: Tensor, p: float, train: Any = None) -> Any:
        small = control.is_small(x) and x.numel() > 0
        state = ops.state(ops.generator_of((), {}, x)) if small else None
        result = kernel(keyset, x, p, train)
        if state is None:
            return result
        out, mask = result
        if (train is not None and not train) or p in (0, 1):
            # No numbers are drawn where everything is kept or dropped.
            drawn = None
        elif x.numel() % 4 == 0 and x.is_contiguous():
            drawn = ops.distributions(x.device).groups(state, x.numel() // 4).flatten()
        elif x.numel() % 2 and x.is_contiguous():
            drawn = ops.distributions(x.device).unit(state, Output(x.numel(), torch.float32))
        else:
            # In other cases the kernel gives the elements numbers in an order that is not modelled.
            return result
        ops.fill(mask, lambda: _mask(x, p, train, drawn))
        if control.state_of(Place(x)) == KNOWN:
            scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
            ops.fill(
                out,
                lambda: (
                    control.host_view(x).reshape(-1)
                    if train is not None and not train
                    else control.host_view(x).reshape(-1) * _mask(x, p, train, drawn) * scale
                ),
            )
        return result

    def _mask(x: Tensor, p: float, train: Any, drawn: Tensor | None) -> Tensor:
        import torch

        if drawn is None:
            keep = (train is not None and not train) or p == 0
            return torch.full((x.numel(),), keep, dtype=torch.bool, device="cpu")
        return drawn < 1.0 - p

    return call


def other(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before any other random operation: it is computed by its CPU kernel, with a generator of the
    same seed and offset.
    """
    from ..computed_op import ComputedOp

    ops = shared(control)
    op = ComputedOp(control, operation, kernel)
    takes_generator = any(a.name == "generator" for a in schema_of(operation).arguments)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        tensors = control.all_tensors((*args, *kwargs.values()))
        small = tensors and control.small((*args, *kwargs.values())) is not None
        state = ops.state(ops.generator_of(args, kwargs, tensors[0])) if small else None
        result = kernel(keyset, *args, **kwargs)
        written = op.written(args, kwargs)
        if state is None or written or not takes_generator or control.state(map(Place, tensors)) != KNOWN:
            control.overwrite(written)
            return result
        # A generator for CPUs has no offset: a seed made of both makes the same call draw the same numbers in every
        # run.
        generator = torch.Generator().manual_seed((state.seed * 0x9E3779B1 + state.offset) % 2**63)
        cpu_args = tuple(generator if isinstance(value, torch.Generator) else value for value in args)
        cpu_kwargs = {k: v for k, v in kwargs.items() if not isinstance(v, torch.Generator)}
        if generator not in cpu_args:
            names = [a.name for a in schema_of(operation).arguments]
            place = names.index("generator")
            if place < len(cpu_args):
                cpu_args = (*cpu_args[:place], generator, *cpu_args[place + 1 :])
            else:
                cpu_kwargs["generator"] = generator

        def compute() -> Any:
            views = [control.host_view(v) if isinstance(v, torch.Tensor) and v.is_cuda else v for v in cpu_args]
            return operation(*views, **cpu_kwargs)

        try:
            values = control.unrecorded(compute)
        except (NotImplementedError, NoHostView, RuntimeError):
            return result
        for target, value in zip(as_tuple(result), as_tuple(values), strict=True):
            if value.shape == target.shape:
                ordered = value.permute(memory_order(target)).reshape(-1)
                ops.fill(target, functools.partial(ordered.clone))
        return result

    return call


def memory_order(tensor: Tensor) -> list[int]:
    """Returns the dimensions, the one with the largest stride first."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def _name(operation: Any) -> str:
    schema = schema_of(operation)
    return str(schema.name + (f".{schema.overload_name}" if schema.overload_name else ""))


_instances: dict[int, RandomOps] = {}


def shared(control: ControlTensors) -> RandomOps:
    return _instances.setdefault(id(control), RandomOps(control))
