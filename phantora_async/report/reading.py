"""Reading a report that may be damaged or written by another program: every field that the text or the
Python API shows is checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netsim import SpecError
from netsim.json_files import Place, line_of, name_of, parse, read_text
from phantora_async.over_time import KINDS
from phantora_async.report.document import SCHEMA, Document
from phantora_async.wording import printable

MOST = 2**63 - 1
MOST_SHOWN = 60
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True)
class Whole:
    least: int = 0

    def __str__(self) -> str:
        return f"a whole number of at least {self.least}" if self.least else "a whole number that is not negative"


@dataclass(frozen=True, slots=True)
class Number:
    def __str__(self) -> str:
        return "a number that is not negative"


@dataclass(frozen=True, slots=True)
class Text:
    def __str__(self) -> str:
        return "text"


@dataclass(frozen=True, slots=True)
class Maybe:
    """Null, or this shape."""

    shape: Shape

    def __str__(self) -> str:
        return f"null or {self.shape}"


@dataclass(frozen=True, slots=True)
class Each:
    """A list whose elements all have this shape."""

    shape: Shape
    least: int = 0
    """How many there are."""

    def __str__(self) -> str:
        return f"a list of at least {self.least}" if self.least else "a list"


@dataclass(frozen=True, slots=True)
class Fields:
    """An object that has these fields, and any others."""

    fields: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)

    def __str__(self) -> str:
        return "an object"


@dataclass(frozen=True, slots=True)
class AnyObject:
    """An object with any fields, all of which are kept."""

    def __str__(self) -> str:
        return "an object"


@dataclass(frozen=True, slots=True)
class Flag:
    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Named:
    """An object whose values all have this shape."""

    shape: Shape

    def __str__(self) -> str:
        return "an object"


Shape = Flag | Named | Whole | Number | Text | Maybe | Each | Fields | AnyObject
WHOLE, NUMBER, TEXT, FLAG = Whole(), Number(), Text(), Flag()


def _fields(shape: Shape, *names: str) -> dict[str, Shape]:
    return dict.fromkeys(names, shape)


_SIGNATURE = Fields(
    _fields(WHOLE, "launches", "mean_ns") | _fields(TEXT, "title", "source"),
    _fields(TEXT, "bound", "signature", "model") | _fields(NUMBER, "share", "flops") | {"total_ns": WHOLE},
)
_RANK = Fields(
    _fields(WHOLE, "rank", "compute_ns", "transfer_ns", "peers_ns", "host_bound_ns", "idle_ns")
    | {
        "window": TEXT,
        "memory": Fields(
            _fields(NUMBER, "allocated_peak_nbytes", "reserved_peak_nbytes"),
            {"device_peak_nbytes": NUMBER, "parts": Named(WHOLE)},
        ),
    },
    _fields(WHOLE, "server", "steps", "window_ns", "host_work_ns", "launches") | {"flops": NUMBER},
)
_INTERVAL = Fields(
    _fields(
        NUMBER, "level", "low_ns", "high_ns", "kernel_error", "host_fast", "host_slow", "host_low_ns", "host_high_ns"
    )
    | {"bound": TEXT}
)
_STEP = Fields(
    _fields(WHOLE, "median_ns", "counted", "min_ns", "max_ns", "warm_up")
    | {"host_median_ns": Maybe(WHOLE), "source": TEXT, "interval": Maybe(_INTERVAL)},
    {"each_ns": Each(WHOLE), "from_ns": WHOLE},
)
_ROUTED = Fields(
    _fields(TEXT, "module", "line", "operation")
    | _fields(WHOLE, "chosen", "candidates")
    | {"layers": Each(Fields({"loads": Each(WHOLE, 1)}), 1)}
)
_CHANGES = Each(Each(WHOLE, 2))
_ACTIVITY = Fields(
    {
        "part_ns": Whole(1),
        "until_ns": WHOLE,
        "ranks": Each(
            Fields({"ranks": Each(WHOLE, 1), "allocated": _CHANGES, "reserved": _CHANGES} | _fields(TEXT, *KINDS))
        ),
    }
)
_LINKS = Fields(
    {
        "part_ns": Whole(1),
        **_fields(WHOLE, "until_ns", "links"),
        "kinds": Each(
            Fields(
                _fields(NUMBER, "links", "gbps", "nbytes", "mean_share", "max_share") | _fields(TEXT, "kind", "busy")
            )
        ),
        "listed": Each(Fields(_fields(NUMBER, "gbps", "nbytes", "share") | _fields(TEXT, "name", "busy"))),
    }
)
_RESTART = Fields(_fields(WHOLE, "rank", "exit_code", "at_ns"))
_UNRECOGNISED = Fields({"signatures": WHOLE, "reason": TEXT, "example": TEXT}, {"share": NUMBER})
_STATED = Fields({"text": TEXT} | _fields(WHOLE, "reads", "computed", "ranks"))
_KERNEL = Fields(_fields(WHOLE, "launches", "gpu_ns", "path_ns") | _fields(TEXT, "title", "family"))
_COLLECTIVE = Fields(_fields(WHOLE, "calls", "gpu_ns", "waiting_ns", "path_ns") | {"title": TEXT})
_REASONS = Fields(
    {"missing": TEXT},
    {
        **_fields(WHOLE, "step", "ns", "run_ns"),
        "parts": Each(Fields(_fields(TEXT, "kind", "name", "doing") | {"ns": WHOLE})),
        "path": Each(Fields(_fields(WHOLE, "rank", "start_ns", "end_ns") | _fields(TEXT, "kind", "name"))),
        "kernels": Fields({"gpu": Each(_KERNEL), "path": Each(_KERNEL)}),
        "collectives": Fields({"gpu": Each(_COLLECTIVE), "path": Each(_COLLECTIVE)}),
        "what_if": Each(Fields({"resource": TEXT, "ns": WHOLE})),
    },
)
_MEMORY = Fields(
    _fields(NUMBER, "max_allocated_nbytes"),
    _fields(NUMBER, "capacity_nbytes", "total_nbytes", "max_reserved_nbytes")
    | {
        "verdict": Fields(
            _fields(WHOLE, "rank", "needed_nbytes") | {"fits": FLAG},
            _fields(WHOLE, "left_nbytes", "missing_nbytes", "asked_nbytes", "unused_nbytes", "failures")
            | {"site": TEXT},
        ),
        "fullest": Fields(
            {
                "rank": WHOLE,
                "parts": Named(WHOLE),
                "holders": Each(Fields(_fields(WHOLE, "nbytes", "blocks") | _fields(TEXT, "part", "op", "site"))),
            }
        ),
    },
)
_SIMULATED = Fields(
    _fields(TEXT, "gpu", "cluster", "host", "host_mode")
    | _fields(WHOLE, "virtual_ns", "collectives", "warnings_left_out", "unmodelled_reads", "refused_calls")
    | {
        "world_size": Whole(1),
        "servers": Each(Whole(1), 1),
        "step": _STEP,
        "work": Fields(_fields(NUMBER, "flops", "tflops_per_gpu", "mfu"), {"unknown_share": NUMBER}),
        "ranks": Each(_RANK, 1),
        "kernels": Fields(
            {
                "window": TEXT,
                "gpu_ns": WHOLE,
                "signatures": Each(_SIGNATURE),
                "ranks": Each(Fields({"ranks": Each(WHOLE), "launches": Each(WHOLE)})),
            },
            {"slowed_ns": WHOLE},
        ),
        "cost_sources": Fields(
            _fields(NUMBER, "measured", "interpolated", "roofline", "gpu_ns"),
            {"unrecognised": NUMBER, "unrecognised_signatures": Each(_UNRECOGNISED)},
        ),
        "warnings": Each(Fields({"ranks": Each(WHOLE, 1), "text": TEXT, "count": WHOLE})),
    },
    {
        "kernel_times": Each(Fields({"file": TEXT, "gpu": TEXT, "signatures": WHOLE, "carried_over": FLAG})),
        "routing": Fields({"policy": TEXT, "places": Each(_ROUTED)}),
        "stated_values": Each(_STATED),
        "logged": Each(Fields({"rank": WHOLE, "text": TEXT}, {"rate": TEXT, "value": NUMBER})),
        "restarts": Each(_RESTART),
        "memory": _MEMORY,
        "activity": _ACTIVITY,
        "links": _LINKS,
        "reasons": _REASONS,
    },
)
_SPECULATION = Fields(
    _fields(WHOLE, "early_answers", "revised_answers", "revised_states", "revised_max_ns", "revised_sum_ns")
)
_SIMULATOR = Fields(
    _fields(NUMBER, "wall_s", "coordinator_cpu_s", "coordinator_peak_rss_nbytes")
    | {"rank_private_nbytes": Maybe(Fields(_fields(NUMBER, "median", "max"))), "speculation": _SPECULATION},
    {
        "kept": Maybe(Fields(_fields(WHOLE, "peak_nbytes", "limit_nbytes", "refused_nbytes"))),
        "rank_cpu": Fields(_fields(NUMBER, "ranks", "user_s", "system_s")),
    },
)
_RUN = Fields(
    {},
    _fields(TEXT, "started", "kind", "script", "script_sha256", "machine")
    | dict.fromkeys(("options", "versions", "environment", "descriptions"), AnyObject())
    | {"arguments": Each(TEXT), "trace": Maybe(TEXT)},
)
SHAPE = Fields(
    {
        "exit_code": WHOLE,
        "failure": Maybe(Fields({"text": TEXT})),
        "simulated": _SIMULATED,
        "simulator": _SIMULATOR,
    },
    {"stopped": Maybe(Fields({"text": TEXT})), "run": _RUN},
)
"""All that the text, the page and ``phantora_async.api`` read. A field that they are to show has to be added."""


class ReportError(Exception):
    """A report that cannot be shown. The message names file, line and field, and says what is allowed."""


@dataclass(frozen=True, slots=True)
class _Fault:
    place: Place
    problem: str


def read(path: Path) -> Document:
    """The document, checked, with those fields alone that ``SHAPE`` has. Raises ReportError."""
    return dict(_only(read_whole(path), SHAPE))


def read_whole(path: Path) -> Document:
    """The document with all its fields, of which those that ``SHAPE`` has are checked. Raises ReportError."""
    try:
        text = read_text(path)
        document = parse(text, path)
    except SpecError as error:
        raise ReportError(str(error)) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ReportError(f"{path}: not a report, or written by another version of phantora-async")
    fault = _fault(document, SHAPE, ()) or _disagreement(document["simulated"])
    if fault is not None:
        raise ReportError(f"{path}:{line_of(text, fault.place)}: {name_of(fault.place)}: {fault.problem}")
    return document


def _fault(value: Any, shape: Shape, place: tuple[str | int, ...]) -> _Fault | None:
    """The first part of the value that does not have its shape; None if all have."""
    match shape:
        case Maybe():
            return None if value is None else _fault(value, shape.shape, place)
        case Fields() if isinstance(value, dict):
            for name, inner in [*shape.fields.items(), *shape.optional.items()]:
                if name not in value:
                    if name in shape.fields:
                        return _Fault((*place, name), "missing")
                elif (fault := _fault(value[name], inner, (*place, name))) is not None:
                    return fault
            return None
        case Named() if isinstance(value, dict):
            faults = (_fault(one, shape.shape, (*place, name)) for name, one in value.items())
            return next((fault for fault in faults if fault is not None), None)
        case Flag() if isinstance(value, bool):
            return None
        case Each() if isinstance(value, list) and len(value) >= shape.least:
            faults = (_fault(one, shape.shape, (*place, number)) for number, one in enumerate(value))
            return next((fault for fault in faults if fault is not None), None)
        case Whole() if type(value) is int and shape.least <= value <= MOST:
            return None
        case Number() if type(value) in (int, float) and 0 <= value <= MOST:
            return None
        case Text() if isinstance(value, str):
            return None
        case AnyObject() if isinstance(value, dict):
            return None
    shown = printable(json.dumps(value, ensure_ascii=False))
    shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
    return _Fault(place, f"expected {shape}, found {shown}")


def _only(value: Any, shape: Shape) -> Any:
    """The value without the fields that its shape does not have."""
    match shape:
        case Maybe() if value is not None:
            return _only(value, shape.shape)
        case Fields():
            inner = {**shape.fields, **shape.optional}
            return {name: _only(value[name], inner[name]) for name in inner if name in value}
        case Each():
            return [_only(one, shape.shape) for one in value]
    return value


def _disagreement(simulated: Document) -> _Fault | None:
    """Fields that each have their shape, but contradict each other."""
    world_size, ranks, kernels = simulated["world_size"], simulated["ranks"], simulated["kernels"]
    at: tuple[str | int, ...] = ("simulated",)
    if len(ranks) != world_size:
        return _Fault((*at, "ranks"), f"expected {world_size} ranks as in world_size, found {len(ranks)}")
    reasons = simulated.get("reasons", {"missing": "not asked for"})
    if not reasons["missing"]:
        for name in _REASONS.optional:
            if name not in reasons:
                return _Fault((*at, "reasons", name), "missing")
    signatures = len(kernels["signatures"])
    for number, group in enumerate(kernels["ranks"]):
        if len(group["launches"]) != signatures:
            place = (*at, "kernels", "ranks", number, "launches")
            found = len(group["launches"])
            return _Fault(place, f"expected {signatures} numbers, one for each of kernels.signatures, found {found}")
    return None
