"""The report's part ``reasons``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from phantora_async.faults import paces_of
from phantora_async.ingest.costs import Costs
from phantora_async.reasons.contents import Contents
from phantora_async.reasons.critical_path import walk
from phantora_async.reasons.last_steps import LastSteps
from phantora_async.reasons.parts import collectives, kernels, parts, path
from phantora_async.reasons.replay import play, step_instants
from phantora_async.reasons.waits import waits
from phantora_async.reasons.what_if import NetworkOf, what_if
from phantora_async.reasons.window import NoStepError, window
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import StepFigures
from phantora_async.virtual_time.results import LOGGED_RANK

Document = dict[str, Any]


def reasons_document(
    kept: LastSteps,
    figures: Sequence[Sequence[StepFigures]],
    spec: RunSpec,
    costs: Costs,
    told: Mapping[int, Counter[int]],
    network_of: NetworkOf,
) -> Document:
    """The report's part ``reasons``. `figures`: the last step ends of each rank; `told`: the contents of segments."""
    try:
        return _document(kept, figures, spec, Contents(told, costs), network_of)
    except NoStepError as error:
        return {"missing": str(error)}


def _document(
    kept: LastSteps,
    figures: Sequence[Sequence[StepFigures]],
    spec: RunSpec,
    contents: Contents,
    network_of: NetworkOf,
) -> Document:
    chosen = window(kept, figures)
    network, paces = network_of(spec.cluster, chosen.begin_ns), paces_of(spec.faults, spec.servers)
    recorder = play(chosen, chosen.facts, network, spec.host.queue_depth, paces)
    between = from_ns, to_ns = step_instants(chosen, recorder)
    if from_ns == to_ns:
        raise NoStepError("the last step takes no time")
    pieces = walk(recorder, recorder.steps[LOGGED_RANK, chosen.last], from_ns, waits(recorder, from_ns, to_ns))
    return {
        "missing": "",
        "step": chosen.step,
        "ns": to_ns - from_ns,
        "run_ns": chosen.step_ns,
        "parts": parts(pieces, contents),
        "path": path(pieces, contents, from_ns),
        "kernels": kernels(recorder, pieces, contents, between),
        "collectives": collectives(recorder, pieces, between),
        "what_if": what_if(chosen, spec, contents, network_of),
    }
