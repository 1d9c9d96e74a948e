"""Says in sentences why a run is slower or larger than the first one: parts of the step, kernels, collectives, waits of
the host with their lines, parts of the memory with the lines that asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from phantora_async.comparison.figures import SAME, ComparedCalls, ComparedWork, Held, Part
from phantora_async.figures import STEP_TIME
from phantora_async.wording import size

if TYPE_CHECKING:
    from phantora_async.comparison.comparison import Comparison

LEAST_MS = 0.0005
"""The change in ms below which no change is shown: times are shown with three digits after the point."""
LEAST_NBYTES = 1 << 10
MOST_REASONS = 3
"""The most families, kernels, collectives, waits and parts of memory that are named."""


def of_time(found: Comparison, run: int) -> Iterator[str]:
    """Yields what has changed the step of a run against the first one's."""
    if step_change_ms(found, run) is None:
        return
    yield _listed("", _parts(found.parts, run))
    yield _listed("GPU work: ", _parts(found.families, run)[:MOST_REASONS])
    changed = sorted(found.kernels, key=lambda one: -abs(one.ms[run] - one.ms[0]))
    yield _listed("kernels: ", [_work_text(one, run) for one in changed[:MOST_REASONS] if _change(one, run)])
    yield _collectives(found, run)
    yield _listed("the host waits for the GPU: ", [_calls_text(one, run) for one in _most_changed(found.waits, run)])


def of_memory(found: Comparison, run: int) -> Iterator[str]:
    """Yields what has changed the memory of the fullest GPU of a run against the first one's."""
    parts = sorted(found.memory, key=lambda one: -abs(one.nbytes[run] - one.nbytes[0]))
    yield _listed("memory: ", [_size_text(one, run) for one in parts[:MOST_REASONS] if _is_larger(one, run)])
    holders = sorted(found.holders, key=lambda one: -abs(one.nbytes[run] - one.nbytes[0]))
    yield _listed("held by ", [_size_text(one, run) for one in holders[:MOST_REASONS] if _is_larger(one, run)])
    # What is sent stands in buffers, which are often free again at the peak: the part is then "cached or fragmented".
    if sum(one.nbytes[run] - one.nbytes[0] for one in found.calls) >= LEAST_NBYTES:
        yield _collectives(found, run)


def causes(found: Comparison, run: int) -> list[str]:
    """All of them: the sentences that are not empty, each once."""
    return list(dict.fromkeys(text for text in (*of_time(found, run), *of_memory(found, run)) if text))


def step_change_ms(found: Comparison, run: int) -> float | None:
    """The change of the step in ms; None if it is not known, or if there is none to show."""
    step = next((one for one in found.figures if one.name == STEP_TIME.title), None)
    if step is None or not step.comparable:
        return None
    first, value = step.values[0], step.values[run]
    if first is None or value is None or abs(value - first) < LEAST_MS:
        return None
    return value - first


def _collectives(found: Comparison, run: int) -> str:
    return _listed("collectives: ", [_calls_text(one, run) for one in _most_changed(found.calls, run)])


def _listed(title: str, texts: Sequence[str]) -> str:
    return f"{title}{', '.join(texts)}" if texts else ""


def _parts(parts: Sequence[Part], run: int) -> list[str]:
    """The parts that changed, those that changed most first."""
    changed = sorted(parts, key=lambda part: -abs(part.change_ms(run)))
    return [f"{one.name} {text} ms" for one in changed if (text := signed_ms(one.change_ms(run)))]


def _change(one: ComparedWork, run: int) -> str:
    return signed_ms(one.ms[run] - one.ms[0])


def _work_text(one: ComparedWork, run: int) -> str:
    status = "" if one.status == SAME else f" [{one.status}]"
    return f"{one.title}{status} {_change(one, run)} ms"


def _most_changed(rows: Sequence[ComparedCalls], run: int) -> list[ComparedCalls]:
    """The rows whose calls changed, those that change most bytes first, then those that change most calls."""

    def changed(one: ComparedCalls) -> tuple[float, float]:
        return -abs(one.nbytes[run] - one.nbytes[0]), -abs(one.calls[run] - one.calls[0])

    return sorted((one for one in rows if one.calls[run] != one.calls[0]), key=changed)[:MOST_REASONS]


def _calls_text(one: ComparedCalls, run: int) -> str:
    words = [one.title, f"at {one.site}" if one.site else "", f"`{one.code}`" if one.code else ""]
    return f"{' '.join(filter(None, words))} ({_count(one.calls[0])} -> {_count(one.calls[run])} a step)"


def _count(calls: float) -> str:
    return f"{calls:.0f}" if calls == round(calls) else f"{calls:.2g}"


def _is_larger(one: Held, run: int) -> bool:
    return abs(one.nbytes[run] - one.nbytes[0]) >= LEAST_NBYTES


def _size_text(one: Held, run: int) -> str:
    change = one.nbytes[run] - one.nbytes[0]
    of = f" ({one.part})" if one.part else ""
    return f"{one.title}{of} {'+' if change > 0 else '-'}{size(abs(change))}"


def ms_text(value: float) -> str:
    return f"{value:,.1f}" if value >= 1000 else f"{value:,.2f}" if value >= 10 else f"{value:.3f}"


def signed_ms(value: float) -> str:
    """A change in ms with its sign; empty for no change."""
    return "" if abs(value) < LEAST_MS else f"{'+' if value > 0 else '-'}{ms_text(abs(value))}"
