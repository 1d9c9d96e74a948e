"""Counts the tokens of a step from the sizes of what is done once for each token: the loss, and the embedding.

A log that says tokens/s is rounded, and many count another time than that of a step, so sizes come first where they
say how many tokens there are. Two things stand between sizes and tokens:

* Not everything with a loss or an embedding has tokens. So they count if one call of the loss has as many rows as one
  call of the embedding has indices (2 % fewer at most: some models predict nothing for the last token of a sequence).
* Ranks of tensor or context parallelism share tokens. So rows are added up if all collectives are of all ranks and the
  model is in DDP or FSDP; else they are divided as the script's log says, and without a log they are not taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from phantora_async.figures.counted import counted_in

Simulated = Mapping[str, Any]
_OF_ONE_GPU = re.compile(r"\btps:|per_gpu|/gpu", re.IGNORECASE)
"""Matches log lines whose rate is that of one GPU, as torchtitan's `tps` is."""
UNPREDICTED = 0.02
"""The share of tokens for which a model may predict nothing."""
OFF = 0.05
"""The relative difference up to which a log and sizes are taken to mean the same number of tokens."""
DATA_PARALLEL = re.compile(r"DistributedDataParallel|FullyShardedDataParallel|FSDP.*")
"""Matches the names of modules whose ranks have different tokens. FSDP2 puts FSDP in front of a module's own name."""


@dataclass(frozen=True, slots=True)
class PerToken:
    """An operation that is done once for each token."""

    op: str
    argument: int
    """The argument whose sizes tell how many tokens there are."""
    last_is_width: bool
    """True if the last of these sizes is none of tokens."""

    def rows(self, sizes: str) -> int:
        """The tokens of a call. `sizes`: of all arguments, as signatures have them. Raises ValueError."""
        try:
            of_argument = json.loads(sizes)[self.argument]
            return int(prod(of_argument[:-1] if self.last_is_width else of_argument))
        except (LookupError, TypeError) as error:
            raise ValueError(f"{self.op}: no sizes of argument {self.argument} in {sizes}") from error


LOSS = PerToken("aten::nll_loss_forward", 0, last_is_width=True)
EMBEDDING = PerToken("aten::embedding_dense_backward", 1, last_is_width=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a step of all GPUs together."""

    of_step: float
    source: str
    """Says how this is known."""


def tokens_of_step(simulated: Simulated) -> Tokens | None:
    """The tokens of a step: counted by sizes, else as the script has logged them; None if neither says them."""
    logged = _logged(simulated)
    counted = _counted(simulated)
    if not counted:
        return logged
    gpus = int(simulated["world_size"])
    if gpus == 1:
        return Tokens(counted, "counted by the sizes of its loss and embedding")
    if _own_tokens(simulated):
        return Tokens(counted, f"counted by the sizes of its loss and embedding on {gpus} GPUs")
    if logged is None:
        return None
    same = max(round(counted / logged.of_step), 1)
    if gpus % same or abs(counted / same / logged.of_step - 1) > OFF:
        return logged
    beside = f", of which {same} have the same tokens as {logged.source} tells" if same > 1 else ""
    return Tokens(counted / same, f"counted by the sizes of its loss and embedding on {gpus} GPUs{beside}")


def times_the_tokens(before: Simulated, now: Simulated) -> float | None:
    """The factor by which all ranks together have more tokens in a step, those that ranks share counted on each of
    them; None: no operation of both runs tells it.
    """
    for one in (LOSS, EMBEDDING):
        had, has = (sum(rows * calls for rows, calls in _calls(run, one).items()) for run in (before, now))
        if had and has:
            return has / had
    return None


def _logged(simulated: Simulated) -> Tokens | None:
    """The tokens of a step as the script's log has them."""
    for one in simulated.get("logged", []):
        if one.get("rate") == "tokens/s" and "value" in one:
            times = int(simulated["world_size"]) if _OF_ONE_GPU.search(one["text"]) else 1
            step_s = float(simulated["step"]["median_ns"]) / 1e9
            return Tokens(one["value"] * times * step_s, f"the script's log: {one['text']}")
    return None


def _counted(simulated: Simulated) -> float:
    """The tokens of all ranks in a step, those that ranks share counted on each of them; 0 if it is not known."""
    if simulated.get("kernels", {}).get("window") != "steps":
        return 0.0
    looked_up, lost = _calls(simulated, EMBEDDING), _calls(simulated, LOSS)
    for rows in sorted(looked_up, reverse=True):
        like = [one for one in lost if rows * (1 - UNPREDICTED) <= one <= rows]
        if like:
            # Embeddings of one size may be several, as those of words and of segments; so may losses.
            return rows * min(looked_up[rows], sum(lost[one] for one in like))
    return 0.0


def _calls(simulated: Simulated, one: PerToken) -> dict[int, float]:
    """The calls of the operation in a step of all GPUs, by their number of tokens."""
    signatures = simulated.get("kernels", {}).get("signatures", ())
    launches: dict[str, float] = {}
    for signature in signatures:
        _, found, sizes = str(signature.get("signature", "")).partition(f";{one.op};")
        if found:
            # Several kernels of one call have the same sizes: one of them counts.
            launches[sizes] = max(launches.get(sizes, 0.0), signature["launches"])
    calls: dict[int, float] = {}
    for sizes, count in launches.items():
        rows = one.rows(sizes)
        calls[rows] = calls.get(rows, 0.0) + count / counted_in(simulated) * int(simulated["world_size"])
    return calls


def _own_tokens(simulated: Simulated) -> bool:
    """Returns true if each rank is known to have tokens of its own."""
    calls, modules = simulated.get("calls", {}), simulated.get("modules", {})
    everybody = f"{simulated['world_size']} ranks"
    groups = {one["on"] for one in calls.get("collectives", ())}
    names = {name for part in modules.get("parts", ()) for name in (part["class"], part["path"][0])}
    return groups == {everybody} and not calls.get("left_out") and any(map(DATA_PARALLEL.fullmatch, names))
