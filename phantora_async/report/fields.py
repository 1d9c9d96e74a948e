"""The report's fields, as its readers need them: the text, the page and ``phantora_async.api``."""

from __future__ import annotations

from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.report.shapes import FLAG, NUMBER, TEXT, WHOLE, AnyObject, Each, Fields, Maybe, Named, Shape, Whole


def _fields(shape: Shape, *names: str) -> dict[str, Shape]:
    return dict.fromkeys(names, shape)


_UNRECOGNISED = Fields({"signatures": WHOLE, "reason": TEXT, "example": TEXT}, {"share": NUMBER, "at_least": FLAG})
_SOURCES = Fields(
    _fields(NUMBER, "measured", "interpolated", "roofline", "gpu_ns"),
    {"window": TEXT, "unrecognised": NUMBER, "unrecognised_signatures": Each(_UNRECOGNISED)},
)
_SIGNATURE = Fields(
    _fields(WHOLE, "launches", "mean_ns") | _fields(TEXT, "title", "source"),
    _fields(TEXT, "bound", "signature", "model", "site")
    | _fields(NUMBER, "share", "flops", "error")
    | _fields(WHOLE, "total_ns", "full_clock_ns", "contended_ns"),
)
_RANK = Fields(
    _fields(WHOLE, "rank", *(account.ns for account in TIME_ACCOUNTS if account.common))
    | {
        "window": TEXT,
        "memory": Fields(
            _fields(NUMBER, "allocated_peak_nbytes", "reserved_peak_nbytes"),
            {"device_peak_nbytes": NUMBER, "parts": Named(WHOLE), "allocated_least_nbytes": WHOLE},
        ),
    },
    _fields(WHOLE, "server", "steps", "window_ns", "host_work_ns", "communication_ns", "launches")
    | _fields(WHOLE, *(account.ns for account in TIME_ACCOUNTS if not account.common))
    | {"flops": NUMBER, "counted_steps": Maybe(Each(WHOLE, 2))},
)
_INTERVAL = Fields(
    _fields(
        NUMBER, "level", "low_ns", "high_ns", "kernel_error", "host_fast", "host_slow", "host_low_ns", "host_high_ns"
    )
    | {"bound": TEXT},
    {"scale": NUMBER, "host_slowest": NUMBER},
)
_STEP = Fields(
    _fields(WHOLE, "median_ns", "counted", "min_ns", "max_ns", "warm_up")
    | {"host_median_ns": Maybe(WHOLE), "source": TEXT, "interval": Maybe(_INTERVAL)},
    {"each_ns": Each(WHOLE), "turn_ns": Each(WHOLE)}
    | _fields(WHOLE, "mean_ns", "from_ns", "first_listed", "first_counted", "last_counted"),
)
_ROUTED = Fields(
    _fields(TEXT, "module", "line", "operation")
    | _fields(WHOLE, "chosen", "candidates")
    | {"layers": Each(Fields({"loads": Each(WHOLE, 1)}), 1)}
)
_GENERATED = Fields(
    {"program": TEXT} | _fields(WHOLE, "ranks", "batches", "responses", "ended", "tokens", "longest", "places")
)
_START = Fields(_fields(WHOLE, "communicators", "ranks", "low_ns", "high_ns"))
_CHANGES = Each(Each(WHOLE, 2))
_SPREAD = Maybe(Fields(_fields(NUMBER, "mean", "median", "p90", "p99")))
_LEVEL: dict[str, Shape] = {"mean": NUMBER, "most": WHOLE}
_SERVING = Fields(
    {
        **_fields(WHOLE, "requests", "prompt_tokens", "tokens"),
        **_fields(NUMBER, "requests_per_s", "tokens_per_s"),
        **_fields(_SPREAD, "first_token_ns", "per_token_ns", "latency_ns"),
        "batch": Fields(_LEVEL),
        "listed": Each(
            Fields(
                _fields(WHOLE, "rank", "arrived_ns", "first_token_ns", "latency_ns", "prompt_tokens", "tokens")
                | {"per_token_ns": Maybe(NUMBER)}
            )
        ),
        "over_time": Each(Fields({"rank": WHOLE, "batch": _CHANGES, "kv_blocks": _CHANGES})),
    },
    {"kv_blocks": Fields(_LEVEL | {"blocks": WHOLE})},
)
_ROLLOUT = _fields(WHOLE, "cycles", "generating_ns", "scoring_ns", "updating_ns", "between_ns")
_ROLLOUTS = Fields(_ROLLOUT | {"ranks": Each(Fields(_ROLLOUT | {"rank": WHOLE}, {"early_ns": WHOLE}))})
_GENERATION = Fields(
    {"policy": TEXT, "programs": Each(_GENERATED), **_fields(WHOLE, "ranks", "generating_ns", "partial_ns")},
    {"serving": _SERVING, "rollouts": _ROLLOUTS},
)
_OVER_TIME = [account.name for account in TIME_ACCOUNTS if account.common]
_RARE_OVER_TIME = [account.name for account in TIME_ACCOUNTS if not account.common]
_ACTIVITY = Fields(
    {
        "part_ns": Whole(1),
        "until_ns": WHOLE,
        "ranks": Each(
            Fields(
                {"ranks": Each(WHOLE, 1), "allocated": _CHANGES, "reserved": _CHANGES} | _fields(TEXT, *_OVER_TIME),
                _fields(TEXT, *_RARE_OVER_TIME),
            )
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
_CHECKPOINT = Fields(
    _fields(WHOLE, "files", "times", "written_nbytes", "uncomputed_nbytes") | {"path": TEXT, "ranks": Each(WHOLE, 1)}
)
_STATED = Fields({"text": TEXT} | _fields(WHOLE, "reads", "computed", "ranks"))
_CALLED = _fields(TEXT, "on", "site", "code") | {"calls": WHOLE}
_CALLS = Fields(
    {
        "window": TEXT,
        "collectives": Each(Fields(_CALLED | _fields(TEXT, "title", "op", "dtype") | {"nbytes": WHOLE})),
        "waits": Each(Fields(_CALLED)),
        "left_out": WHOLE,
    }
)
_MODULES = Fields(
    {
        "parts": Each(
            Fields(
                _fields(WHOLE, "forward_ns", "backward_ns")
                | {"path": Each(TEXT, 1), "launches": NUMBER}
                | _fields(TEXT, "class", "family")
            )
        ),
        "memory": Each(
            Fields(_fields(WHOLE, "nbytes", "blocks") | {"path": Each(TEXT, 1)} | _fields(TEXT, "class", "part"))
        ),
        **_fields(WHOLE, "ranks", "left_out"),
    }
)
_KERNEL = Fields(_fields(WHOLE, "launches", "gpu_ns", "path_ns") | _fields(TEXT, "title", "family"))
_COLLECTIVE = Fields(_fields(WHOLE, "calls", "gpu_ns", "waiting_ns", "path_ns") | {"title": TEXT})
REASONS = Fields(
    {"missing": TEXT},
    {
        **_fields(WHOLE, "step", "ns", "run_ns"),
        "parts": Each(Fields(_fields(TEXT, "kind", "name", "doing") | {"ns": WHOLE})),
        "path": Each(Fields(_fields(WHOLE, "rank", "start_ns", "end_ns") | _fields(TEXT, "kind", "name"))),
        "kernels": Fields({"gpu": Each(_KERNEL), "path": Each(_KERNEL)}),
        "collectives": Fields({"gpu": Each(_COLLECTIVE), "path": Each(_COLLECTIVE)}, {"left_out": WHOLE}),
        "what_if": Each(Fields({"resource": TEXT, "ns": WHOLE})),
    },
)
_MEMORY = Fields(
    _fields(NUMBER, "max_allocated_nbytes"),
    _fields(NUMBER, "capacity_nbytes", "total_nbytes", "max_reserved_nbytes", "least_allocated_nbytes")
    | {
        "verdict": Fields(
            _fields(WHOLE, "rank", "needed_nbytes") | {"fits": FLAG},
            _fields(WHOLE, "left_nbytes", "missing_nbytes", "asked_nbytes", "unused_nbytes", "failures")
            | _fields(WHOLE, "others_nbytes", "least_needed_nbytes")
            | {"site": TEXT, "fragmented": FLAG},
        ),
        "growth": Maybe(
            Fields(
                _fields(WHOLE, "rank", "ranks", "nbytes", "steps", "steps_left")
                | _fields(TEXT, "site", "op")
                | {"equal": FLAG}
            )
        ),
        "guests": Each(
            Fields(
                _fields(WHOLE, "server", "gpu", "owner", "nbytes", "context_nbytes")
                | {"ranks": Each(WHOLE, 1), "site": TEXT},
                {"children": FLAG},
            )
        ),
        "fullest": Fields(
            {
                "rank": WHOLE,
                "parts": Named(WHOLE),
                "holders": Each(Fields(_fields(WHOLE, "nbytes", "blocks") | _fields(TEXT, "part", "op", "site"))),
            },
            {
                "over_step": Maybe(
                    Fields({"allocations": WHOLE, "parts": Named(Each(WHOLE)), "most_nbytes": Each(WHOLE)})
                )
            },
        ),
    },
)
_SIZED = Fields(_fields(TEXT, "operation", "inner", "line") | _fields(WHOLE, "ranks", "calls", "most", "chosen"))
_SIMULATED = Fields(
    _fields(TEXT, "gpu", "cluster", "host", "host_mode")
    | _fields(WHOLE, "virtual_ns", "collectives", "warnings_left_out", "unmodelled_reads", "refused_calls")
    | {
        "world_size": Whole(1),
        "servers": Each(Whole(1), 1),
        "step": _STEP,
        "work": Fields(
            _fields(NUMBER, "flops", "tflops_per_gpu", "mfu"), _fields(NUMBER, "unknown_share", "peak_tflops")
        ),
        "ranks": Each(_RANK, 1),
        "kernels": Fields(
            {
                "window": TEXT,
                "gpu_ns": WHOLE,
                "signatures": Each(_SIGNATURE),
                "ranks": Each(Fields({"ranks": Each(WHOLE), "launches": Each(WHOLE)})),
            },
            _fields(WHOLE, "slowed_ns", "launch_gap_ns"),
        ),
        "cost_sources": _SOURCES,
        "warnings": Each(Fields({"ranks": Each(WHOLE, 1), "text": TEXT, "count": WHOLE})),
    },
    {
        "kernel_times": Each(Fields({"file": TEXT, "gpu": TEXT, "signatures": WHOLE, "carried_over": FLAG})),
        "assumed_links": TEXT,
        "congestion": TEXT,
        "read_attributes": Each(Fields(_fields(TEXT, "line", "attribute", "then", "now") | {"rank": WHOLE})),
        "routing": Fields({"policy": TEXT, "places": Each(_ROUTED)}),
        "generation": _GENERATION,
        "data_shapes": Fields({"policy": TEXT, "places": Each(_SIZED)}),
        "stated_values": Each(_STATED),
        "checkpoints": Each(_CHECKPOINT),
        "decided": Each(Fields({"place": TEXT, "reads": WHOLE, "ranks": WHOLE})),
        "overflow_checks": WHOLE,
        "logged": Each(Fields({"rank": WHOLE, "text": TEXT}, {"rate": TEXT, "value": NUMBER, "window": TEXT})),
        "cost_sources_whole_run": _SOURCES,
        "independent": FLAG,
        "gpu_use": Fields(
            {"unused_ranks": Each(WHOLE), "causes": Each(Fields({"text": TEXT, "ranks": Each(WHOLE, 1)}))}
        ),
        "restarts": Each(_RESTART),
        "faults": Each(Fields({"text": TEXT, "at_ns": WHOLE, "reached": FLAG})),
        "without_faults": Fields({"median_ns": WHOLE}),
        "played_steps": Fields({"step": WHOLE, "count": WHOLE, "inexact_ranks": Each(WHOLE)}),
        "memory": _MEMORY,
        "calls": _CALLS,
        "modules": _MODULES,
        "energy": Maybe(
            Fields(
                _fields(NUMBER, "gpu_w", "limit_w", "computing_j", "communicating_j", "waiting_j")
                | {"step_j": Maybe(NUMBER)}
            )
        ),
        "activity": _ACTIVITY,
        "links": _LINKS,
        "reasons": REASONS,
    },
)
_SPECULATION = Fields({}, _fields(WHOLE, "turns", "turns_taken_back", "rollbacks"))
_SIMULATOR = Fields(
    _fields(NUMBER, "wall_s", "coordinator_cpu_s", "coordinator_peak_rss_nbytes")
    | {
        "rank_private_nbytes": Maybe(Fields(_fields(NUMBER, "median", "max"), _fields(WHOLE, "ranks", "min", "sum"))),
        "speculation": _SPECULATION,
    },
    {
        "kept": Maybe(Fields(_fields(WHOLE, "peak_nbytes", "limit_nbytes", "refused_nbytes"))),
        "rank_cpu": Fields(_fields(NUMBER, "ranks", "user_s", "system_s"), {"hook_s": NUMBER}),
        "coordinator_system_s": NUMBER,
        **_fields(WHOLE, "cpus", "records", "record_nbytes", "passed_over", "facts", "emulated_calls", "emulated_ops"),
    },
)
_RUN = Fields(
    {},
    _fields(TEXT, "started", "kind", "script", "script_sha256", "machine")
    | dict.fromkeys(("options", "versions", "environment", "descriptions"), AnyObject())
    | {"arguments": Each(TEXT), "trace": Maybe(TEXT), "kept": Fields(_fields(TEXT, "began", "run_dir"))},
)
_LOADING = Fields(
    _fields(TEXT, "policy", "dataset")
    | _fields(WHOLE, "workers", "batches", "measured", "cpu_ns", "slept_ns", "waits", "waited_ns", "batch_ns")
    | _fields(NUMBER, "scale", "cpus_per_rank")
    | dict.fromkeys(("step_ns", "step_mean_ns", "asked_ns", "workers_enough"), Maybe(WHOLE))
    | {"batches_per_step": Maybe(NUMBER), "binds": FLAG},
    {"step_waited_ns": WHOLE},
)
_DIFFERENCE = Fields(
    _fields(WHOLE, "rank", "played_by", "launches", "played_launches", "gpu_ns", "played_gpu_ns")
    | _fields(
        WHOLE, "differing_launches", "differing_gpu_ns", "host_waits", "played_host_waits", "host_ns", "memory_nbytes"
    )
)
"""The differences in a folded run between a rank that really ran and the one that would have played it."""
SHAPE = Fields(
    {
        "schema": Whole(1),
        "exit_code": WHOLE,
        "failure": Maybe(Fields({"text": TEXT})),
        "simulated": _SIMULATED,
        "simulator": _SIMULATOR,
    },
    {
        "stopped": Maybe(
            Fields({"text": TEXT}, {"over_budget": Fields({"figure": TEXT, "step": WHOLE}, {"at_least_ns": WHOLE})})
        ),
        "run": _RUN,
        "loading": Maybe(_LOADING),
        "start": Maybe(_START),
        "folding": Maybe(
            Fields(
                _fields(TEXT, "mesh")
                | _fields(WHOLE, "ranks", "processes", "representatives", "mirrored", "timelines", "compared_calls")
                | _fields(WHOLE, "host_apart_ns", "memory_apart_nbytes")
                | {"apart": Each(WHOLE), "witnesses": Each(WHOLE), "warnings": Each(TEXT)},
                {
                    "differences": Each(_DIFFERENCE),
                    "answered_otherwise": Fields(_fields(WHOLE, "states", "times", "most_ns")),
                },
            )
        ),
    },
)
"""The fields that the text, the page and ``phantora_async.api`` read. A field that they are to show has to be added
here.
"""
