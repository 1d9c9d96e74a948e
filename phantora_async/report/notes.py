"""Makes the report's lines of text beside its tables, warnings among them, from the JSON document alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from phantora_async.report.document import MOST_WARNINGS
from phantora_async.report.generation import generation_notes
from phantora_async.report.guests import guest_notes
from phantora_async.report.loading import loading_notes
from phantora_async.report.routing import routing_notes
from phantora_async.report.start import start_notes
from phantora_async.report.stated_values import decided_notes, sizes_notes, stated_notes
from phantora_async.report.steps import counted_steps, window
from phantora_async.wording import named, seconds

WARNINGS = 10
"""The most warnings that are shown. The JSON report has all."""
LEAST_SHARE = 0.01
"""The share of the GPU time from which unrecognised work is named."""
EXAMPLE = 160
"""The characters of a signature that are shown."""
ALIKE = 0.005
"""The relative difference below which rates of arithmetic count as equal."""
FAR = 5
"""The factor above which two rates do not mean the same: one is a rate of all GPUs, for example."""
LEAST_KIND = 0.01
MISSING = 3
"""The number of kernels without a measured time that are named ..."""
MATTERS = 0.01
"""... if they take this share of the GPU time together."""
SOURCES = ("measured", "interpolated", "roofline", "unrecognised")


def notes(document: Mapping[str, Any], verbose: bool = True) -> list[str]:
    """All notes; without `verbose` only those that change the meaning of figures, warnings among them."""
    simulated = document["simulated"]
    some = [] if used_no_gpu(simulated) else unused_notes(simulated)
    some += _details(simulated) if verbose else []
    some += _folding(document.get("folding"))
    some += _remarks(simulated)
    some += loading_notes(document.get("loading"))
    some += start_notes(document.get("start"))
    return some


def _folding(folding: Mapping[str, Any] | None) -> list[str]:
    """The notes on folding: which ranks really ran, and what is known of the others."""
    if folding is None:
        return []
    apart, witnesses = len(folding["apart"]), folding["witnesses"]
    text = (
        f"folded ({folding['mesh']}): {folding['processes']:,} of {folding['ranks']:,} ranks really ran "
        f"({folding['representatives']:,} for their role, {apart:,} for themselves, {len(witnesses):,} as witnesses); "
        f"{folding['mirrored']:,} were mirrored; {folding['timelines']:,} timelines"
    )
    warnings = [f"warning: {warning}" for warning in folding["warnings"]]
    if "answered_otherwise" in folding:
        warnings += _answered_otherwise(folding["answered_otherwise"])
    if folding.get("differences"):
        return [text, *map(_difference, folding["differences"]), *warnings]
    if not folding["mirrored"]:
        return [text, *warnings]
    if not witnesses:
        unchecked = "warning: --witnesses 0: nothing checks that mirrored ranks would have done the same"
        return [text, unchecked, *warnings]
    same = f"{named(witnesses)} did what was predicted in {folding['compared_calls']:,} calls"
    apart_by = [
        f"host times by up to {seconds(folding['host_apart_ns'])}" * bool(folding["host_apart_ns"]),
        f"peaks of memory by up to {folding['memory_apart_nbytes']:,} bytes" * bool(folding["memory_apart_nbytes"]),
    ]
    differing = " and ".join(filter(None, apart_by))
    return [text, f"{same}{f'; {differing} differ' if differing else ''}", *warnings]


def _answered_otherwise(differing: Mapping[str, int]) -> list[str]:
    """The notes on mirrored ranks that got the answers of the rank of their role that asked first."""
    states, times = differing["states"], differing["times"]
    parts = [
        f"{states:,} times whether work is complete" * bool(states),
        f"{times:,} times about the time, by up to {seconds(differing['most_ns'])}" * bool(times),
    ]
    if not any(parts):
        return []
    return [f"ranks of one role would have been answered otherwise: {' and '.join(filter(None, parts))}"]


def _difference(one: Mapping[str, Any]) -> str:
    """The note on a rank under `--roles similar`: how it differs from the rank that would have played it."""
    of_gpu = 100 * one["differing_gpu_ns"] / max(one["gpu_ns"], one["played_gpu_ns"], 1)
    waits = f", {one['host_waits']:,} waits for {one['played_host_waits']:,}"
    return (
        f"approximate (--roles similar): rank {one['rank']} launched {one['launches']:,} pieces of GPU work of "
        f"{seconds(one['gpu_ns'])}, where rank {one['played_by']}, which would play it, launched "
        f"{one['played_launches']:,} of {seconds(one['played_gpu_ns'])}; {one['differing_launches']:,} differ, "
        f"{of_gpu:.2f}% of the GPU time{waits * (one['host_waits'] != one['played_host_waits'])}; host times are "
        f"{seconds(one['host_ns'])} apart at most, peaks of memory {one['memory_nbytes']:,} bytes"
    )


def used_no_gpu(simulated: Mapping[str, Any]) -> bool:
    """Returns true if no rank used an emulated GPU."""
    return len(simulated.get("gpu_use", {}).get("unused_ranks", ())) == len(simulated["ranks"])


def unused_notes(simulated: Mapping[str, Any]) -> list[str]:
    """The notes on unused GPUs. If no rank used one, they come before all figures; else they are ordinary notes."""
    use = simulated.get("gpu_use", {"unused_ranks": [], "causes": []})
    if not use["unused_ranks"]:
        return []
    if used_no_gpu(simulated):
        notes = [
            "NO EMULATED GPU WAS USED: only the script's time on the host was simulated, which tells nothing about a "
            "cluster. No step time is given."
        ]
    else:
        notes = [f"warning: {named(use['unused_ranks'])} used no emulated GPU; their shares are empty"]
    causes = [f"{one['text']} ({named(one['ranks'])})" for one in use["causes"]]
    guess = "the script moves no tensor to a CUDA device, or runs its work in a program that is not Python"
    return [*notes, f"likely cause: {'; '.join(causes) or guess}"]


def _measured(simulated: Mapping[str, Any], since: str) -> list[str]:
    """The notes on measured times: which were used, and which GPU work without one takes most time."""
    notes = []
    for times in simulated.get("kernel_times", []):
        how = f"carried over from {times['gpu']} by the models' ratio" if times["carried_over"] else times["gpu"]
        notes.append(f"measured times: {times['file']}, {times['signatures']:,} kernels, {how}")
    if not notes:
        return []
    estimated = [one for one in simulated["kernels"]["signatures"] if one["source"] != "measured"]
    estimated = sorted(estimated, key=lambda one: -one["share"])[:MISSING]
    if sum(one["share"] for one in estimated) >= MATTERS:
        listed = ", ".join(f"{one['title']} ({one['share']:.1%})" for one in estimated)
        notes.append(f"most GPU time without a measured one in {since}: {listed}; see phantora-async profile --missing")
    return notes


def _unrecognised(reasons: Sequence[Mapping[str, Any]], since: str) -> list[str]:
    """The notes on signatures whose cost is an estimate because the cost model does not recognise them. Those that
    hardly take time are summed up in one line. `since`: the window of the shares.
    """
    notes = []
    large = sorted(
        (one for one in reasons if one.get("share", 1.0) >= LEAST_SHARE), key=lambda one: -one.get("share", 1)
    )
    small = [one for one in reasons if one.get("share", 1.0) < LEAST_SHARE]
    for one in large[:WARNINGS]:
        count = f"{one['signatures']} cost signatures are" if one["signatures"] > 1 else "1 cost signature is"
        what = f"{count} not recognised ({one['reason']}) and estimated"
        if "share" in one:
            what += f", {one['share']:.0%} of the GPU time in {since}"
        notes.append(f"warning: {what}: {one['example'][:EXAMPLE]}")
    if len(large) > WARNINGS:
        notes.append(f"{len(large) - WARNINGS} more reasons in the JSON report")
    if small:
        count = sum(one["signatures"] for one in small)
        what = f"{count} cost signatures are" if count > 1 else "1 cost signature is"
        total = sum(one["share"] for one in small)
        notes.append(
            f"{what} not recognised and estimated, {total:.1%} of the GPU time in {since}; the JSON report lists them"
        )
    return notes


def _logged(simulated: Mapping[str, Any]) -> list[str]:
    """The script's own rates, and how the report's count differently."""
    rates, step = simulated.get("logged", []), counted_steps(simulated["step"])
    windows = {"steps": f"in {step}", "training": "of its whole training", "run": "in the whole run"}
    by_window: dict[str, list[str]] = {}
    for one in rates:
        by_window.setdefault(windows.get(one.get("window", ""), "last"), []).append(one["text"])
    notes = [f"rank {rates[0]['rank']}'s script logged {since}: {', '.join(said)}" for since, said in by_window.items()]
    return notes + _mfu_differs(simulated)


def _mfu_differs(simulated: Mapping[str, Any]) -> list[str]:
    """Reasons why the script's arithmetic per second is not the report's, as far as figures show them."""
    said = {one["rate"]: one["value"] for one in simulated.get("logged", []) if "rate" in one and "value" in one}
    work, step = simulated["work"], simulated["step"]
    rate, mfu = said.get("TFLOP/s"), said.get("MFU")
    ours = rate / work["tflops_per_gpu"] if rate and work["tflops_per_gpu"] else None
    if ours is None and mfu and work["mfu"]:
        ours = mfu / 100 / work["mfu"]
    if ours is None or abs(ours - 1) < ALIKE:
        return []
    per_step = work["tflops_per_gpu"] * step["median_ns"] / 1e9
    text = f"the report counts {per_step:.1f} TFLOP a GPU and step{_kinds(simulated)}"
    if rate and 1 / FAR < ours < FAR:
        text += f", the script's {rate:g} TFLOP/s are {rate * step['median_ns'] / 1e9:.1f} in that time"
    text += "; it counts what the GPUs executed (causal attention half, recomputed work twice), scripts use a formula"
    if mfu and rate and work.get("peak_tflops"):
        peak = rate / mfu * 100
        same = abs(peak / work["peak_tflops"] - 1) < 0.02
        text += f"; peak {work['peak_tflops']:.1f} TFLOP/s (bf16, dense)"
        text += "" if same else f", the script's {peak:.1f}"
    return [text]


def _kinds(simulated: Mapping[str, Any]) -> str:
    """The kinds of work that the FLOPs belong to: `(gemm 90%, attention 10%)`."""
    by_kind: Counter[str] = Counter()
    for one in simulated["kernels"]["signatures"]:
        by_kind[one.get("model", "").partition(" ")[0] or "other"] += one.get("flops", 0.0) * one["launches"]
    total = sum(by_kind.values())
    shares = [f"{kind} {flops / total:.0%}" for kind, flops in by_kind.most_common() if flops >= total * LEAST_KIND]
    return f" ({', '.join(shares)})" if shares and total else ""


def _details(simulated: Mapping[str, Any]) -> list[str]:
    """The notes on the sources and parts of figures; the figures keep their meaning without them."""
    sources = simulated["cost_sources"]
    shares = ", ".join(f"{sources[name]:.1%} {name}" for name in SOURCES if name in sources)
    since = window(simulated, sources.get("window", "run"))
    notes = [f"kernel times in {since}: {shares}"] if sources["gpu_ns"] else []
    notes += _measured(simulated, since)
    notes += _logged(simulated)
    if slowed_ns := simulated["kernels"].get("slowed_ns", 0):
        full_clock_ns = simulated["kernels"]["gpu_ns"] - slowed_ns
        notes.append(
            f"the GPUs' power limit makes GPU work {slowed_ns / full_clock_ns:.1%} longer than at the full clock "
            f"in {window(simulated, simulated['kernels']['window'])}"
        )
    return notes


def _remarks(simulated: Mapping[str, Any]) -> list[str]:
    """The notes that change the meaning of figures: faults, values that were not computed, refused calls, warnings."""
    sources = simulated["cost_sources"]
    since = window(simulated, sources.get("window", "run"))
    notes = _played(simulated) + _faults(simulated)
    if kind := simulated.get("congestion"):
        notes.append(
            f"the network's links have queues ({kind}): transfers between two ranks fill them and wait in them; the "
            "hops of a collective go at one rate, wait in queues, but fill none"
        )
    notes += guest_notes(simulated.get("memory", {}).get("guests", []), len(simulated["servers"]))
    for restart in simulated.get("restarts", []):
        end = f"rank {restart['rank']} ended with exit code {restart['exit_code']}"
        notes.append(f"restart: {end}; its launcher started the ranks again at {seconds(restart['at_ns'])}")
    notes += _unrecognised(sources.get("unrecognised_signatures", []), since)
    if simulated["unmodelled_reads"]:
        stated = any(one["reads"] for one in simulated.get("stated_values", []))
        got = "0, or what --value states" if stated else "0"  # a bool that follows from such numbers may be true
        reads = simulated["unmodelled_reads"]
        values = f"{reads:,} value{'s' * (reads != 1)}"
        notes.append(f"in the whole run the script read {values} that no GPU computed: unknown numbers count as {got}")
    notes += decided_notes(simulated.get("decided", []))
    if simulated.get("overflow_checks"):
        checks = simulated["overflow_checks"]
        notes.append(f"{checks} of them check for overflow, or arguments of distributions: taken as passed")
    if simulated["refused_calls"]:
        notes.append(f"{simulated['refused_calls']} calls were refused as not supported")
    notes += stated_notes(simulated.get("stated_values", []))
    notes += routing_notes(simulated["routing"]) if "routing" in simulated else []
    notes += sizes_notes(simulated["data_shapes"]) if "data_shapes" in simulated else []
    notes += generation_notes(simulated["generation"], simulated["virtual_ns"]) if "generation" in simulated else []
    for warning in simulated["warnings"][:WARNINGS]:
        who = "rank" if len(warning["ranks"]) == 1 else f"{len(warning['ranks'])} ranks, first"
        notes.append(f"warning ({who} {warning['ranks'][0]}): {warning['text']}")
    more = len(simulated["warnings"]) - WARNINGS + simulated["warnings_left_out"]
    if more > 0:
        notes.append(f"{more} more warnings in the ranks' logs; the JSON report has up to {MOST_WARNINGS}")
    return notes


def _played(simulated: Mapping[str, Any]) -> list[str]:
    """The notes on steps of a replay that no script has done."""
    played = simulated.get("played_steps")
    if played is None:
        return []
    step, last = played["step"], played["step"] + played["count"]
    which = f"steps {step + 1} to {last} were" if played["count"] > 1 else f"step {last} was"
    text = (
        f"{which} not run: each is step {step} once more, in virtual time alone; what the script does only in some "
        "steps (logging, checkpoints, evaluation) is not in them"
    )
    if played["inexact_ranks"]:
        text += (
            f"; PyTorch of {named(played['inexact_ranks'])} asked otherwise in step {step - 1} whether work is "
            "complete, to let go of memory: a run would differ a little"
        )
    return [text]


def _faults(simulated: Mapping[str, Any]) -> list[str]:
    """The note on the faults of the machine, and on their effect as far as it is known."""
    faults = simulated.get("faults", [])
    if not faults:
        return []
    listed = [one["text"] + ("" if one["reached"] else " (the run ended before)") for one in faults[:WARNINGS]]
    text = f"with faults: {', '.join(listed)}"
    text += f" and {len(faults) - WARNINGS} more" if len(faults) > WARNINGS else ""
    if without_ns := simulated.get("without_faults", {}).get("median_ns"):
        change = simulated["step"]["median_ns"] / without_ns - 1
        text += f"; a step takes {change:+.1%} beside the same run without them ({seconds(without_ns)})"
    return [text]
