"""Reports the responses that programs generate: their lengths by `--lengths`, the time that others wait for the
longest, the requests of an engine, and what follows a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phantora_async.ingest.generated_responses import GeneratedResponses
from phantora_async.report.rollouts import rollouts_document, rollouts_notes
from phantora_async.report.serving import Notes, serving_document, serving_notes
from phantora_async.report.stated_values import EACH_ITS_OWN, Sharing, total_of
from phantora_async.virtual_time import RankSnapshot
from phantora_async.wording import seconds

Document = dict[str, Any]
SUMS = ("batches", "responses", "ended", "tokens", "places")


def generation_document(
    policy: str,
    generated: GeneratedResponses,
    ranks: Sequence[RankSnapshot],
    notes: Notes,
    until_ns: int,
    sharing: Sharing = EACH_ITS_OWN,
) -> Document:
    """The report's part on generated responses: sums over ranks; times are means of the ranks that generate. `policy`:
    "" without `--lengths`. `notes`: of ``Timeline.generation``.
    """
    programs = []
    for program, by_rank in sorted(generated.programs.items()):
        sums = {name: total_of(((rank, getattr(one, name)) for rank, one in by_rank.items()), sharing) for name in SUMS}
        longest = max(one.longest for one in by_rank.values())
        generating = total_of(((rank, 1) for rank in by_rank), sharing)
        programs.append({"program": program, "ranks": generating, "longest": longest} | sums)
    busy = [rank for rank in ranks if rank.generating_ns]
    rollouts = rollouts_document(notes, until_ns)
    return {
        **({"serving": serving_document(notes, until_ns, sharing)} if notes else {}),
        **({} if rollouts is None else {"rollouts": rollouts}),
        "policy": policy,
        "programs": programs,
        "ranks": len(busy),
        "generating_ns": sum(rank.generating_ns for rank in busy) // max(len(busy), 1),
        "partial_ns": sum(rank.partial_ns for rank in busy) // max(len(busy), 1),
    }


def generation_notes(generation: Mapping[str, Any], virtual_ns: int) -> list[str]:
    """The notes on responses for the terminal."""
    policy, programs = generation["policy"], generation["programs"]
    if policy and not programs:
        return [
            f"warning: --lengths {policy}: no rank has told of a response with a stated length. transformers' generate "
            "(greedy, sampling) and vLLM have them; a loop of the program's own decides by tokens that nobody has "
            "computed"
        ]
    follow = (
        f"follow the policy {policy}" if policy else "are the longest that the program allows; others can be stated"
    )
    notes = [f"responses: sampled tokens are not computed; lengths {follow} (--lengths)"]
    notes += [_program(one) for one in programs]
    busy_ns, partial_ns = generation["generating_ns"], generation["partial_ns"]
    if busy_ns and virtual_ns:
        ranks = f" on each of {generation['ranks']} ranks, on average" if generation["ranks"] > 1 else ""
        text = f"  generating takes {seconds(busy_ns)}, {busy_ns / virtual_ns:.1%} of the run{ranks}"
        if partial_ns:
            text += (
                f"; in {seconds(partial_ns)} of that, {partial_ns / virtual_ns:.1%} of the run, the batch is no longer "
                "full and waits for the longest"
            )
        notes.append(text)
    notes += serving_notes(generation["serving"]) if "serving" in generation else []
    notes += rollouts_notes(generation["rollouts"]) if "rollouts" in generation else []
    if not programs:
        return notes
    tokens, responses = (sum(one[name] for one in programs) for name in ("tokens", "responses"))
    other = f"fixed:{max(1, round(tokens / responses))}"
    if other != policy:
        notes.append(
            f"  run with --lengths {other}, too, and `compare` says what the run would take if all were as long"
        )
    return notes


def _program(one: Mapping[str, Any]) -> str:
    responses, cut = one["responses"], one["responses"] - one["ended"]
    text = (
        f"  {one['program']}: {responses:,} responses of {one['tokens'] / responses:,.1f} tokens on average, the "
        f"longest has {one['longest']:,}"
    )
    if cut:
        text += f"; the program cut {cut:,} before the end token"
    if one["places"] > one["tokens"]:
        empty = 1 - one["tokens"] / one["places"]
        text += f"; {empty:.1%} of the places in their batches stay empty behind shorter ones"
    return text
