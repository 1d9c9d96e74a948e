"""The loop of transformers' `generate` that samples: begins a batch of responses, tells when its tokens are
known, and ends it.

Loops that choose several tokens at a time (beam search, assisted decoding) are not followed. With `--lengths` that is
told.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...private.changes import Names, changes
from .sampled_tokens import Batch, SampledTokens, Stated

PURPOSE = "responses of transformers"
LOOP = "GenerationMixin._sample"
TURN = "GenerationMixin._has_unfinished_sequences"
"""The loop calls it before each turn: with what it has learned of the tokens of the turn before."""
OTHERS = {"GenerationMixin._beam_search": "beam search", "GenerationMixin._assisted_decoding": "assisted decoding"}
_PROGRAM = "transformers' generate"


def follow(tokens: SampledTokens) -> None:
    """Tells of responses of transformers' `generate` from now on, and makes them have their lengths. Called once, in
    the forker.
    """

    def change(names: Names) -> None:
        names.change(LOOP, lambda loop: _followed(loop, tokens))
        names.change(TURN, lambda turn: _looking(turn, tokens))
        if tokens.responses.policy is not None:
            for path, what in OTHERS.items():
                names.change(path, functools.partial(_told, tokens=tokens, what=what))

    changes.when_imported(PURPOSE, change)


def _followed(loop: Callable[..., Any], tokens: SampledTokens) -> Callable[..., Any]:
    code = loop.__code__

    @functools.wraps(loop)
    def sample(
        model: Any,
        input_ids: Any,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if getattr(generation_config, "is_assistant", False):  # its tokens are proposals
            return loop(model, input_ids, logits_processor, stopping_criteria, generation_config, *args, **kwargs)
        stated = _stated(tokens, model, input_ids, stopping_criteria, generation_config, kwargs)
        tokens.begin(Batch(code, input_ids.size(0), input_ids.size(1), _PROGRAM, stated))
        try:
            return loop(model, input_ids, logits_processor, stopping_criteria, generation_config, *args, **kwargs)
        finally:
            tokens.end()

    return sample


def _told(loop: Callable[..., Any], *, tokens: SampledTokens, what: str) -> Callable[..., Any]:
    @functools.wraps(loop)
    def generate(*args: Any, **kwargs: Any) -> Any:
        tokens.responses.warn(f"{what} of transformers is not followed: its responses have other lengths")
        return loop(*args, **kwargs)

    return generate


def _looking(turn: Callable[..., Any], tokens: SampledTokens) -> Callable[..., Any]:
    @functools.wraps(turn)
    def look(model: Any, this_peer_finished: bool, *args: Any, **kwargs: Any) -> Any:
        tokens.look(this_peer_finished)
        return turn(model, this_peer_finished, *args, **kwargs)

    return look


def _stated(
    tokens: SampledTokens, model: Any, input_ids: Any, criteria: Any, config: Any, arguments: Any
) -> Stated | None:
    """Returns the tokens of the batch that the loop begins; None if no policy states them, or it knows no end token."""
    policy = tokens.responses.policy
    if policy is None:
        return None
    ends = tuple(dict.fromkeys(_ends(tokens, criteria)))
    if not ends:
        tokens.responses.warn(
            "a call of transformers' generate names no end token (eos_token_id): its responses have other lengths"
        )
        return None
    pad = getattr(config, "pad_token_id", None)
    other = next(token for token in itertools.count() if token not in ends and token != pad)
    prompts = _prompts(tokens, input_ids, arguments.get("attention_mask"))
    replica = _replica(tokens, model)
    # Before so many tokens transformers samples no end token; the number includes the prompt.
    least = (getattr(config, "min_length", None) or 0) - input_ids.size(1) + 1
    lengths = [max(tokens.responses.length(policy, prompt, replica), least) for prompt in prompts]
    return Stated(lengths, ends, other)


def _ends(tokens: SampledTokens, criteria: Any) -> Iterator[int]:
    for one in criteria:
        value = getattr(one, "eos_token_id", None)
        if hasattr(value, "tolist"):
            value = tokens.known(value)
        for token in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(token, int) and token >= 0:
                yield token


def _prompts(tokens: SampledTokens, input_ids: Any, mask: Any) -> Sequence[Sequence[int]]:
    """Returns the ids of each prompt's tokens, without padding. Prompts whose ids are not known are all the same."""
    rows = tokens.known(input_ids)
    if rows is None:
        return [()] * input_ids.size(0)
    masks = tokens.known(mask) if mask is not None and mask.shape == input_ids.shape else None
    if masks is None:
        return rows
    return [list(itertools.compress(row, kept)) for row, kept in zip(rows, masks, strict=True)]


def _replica(tokens: SampledTokens, model: Any) -> int:
    """Returns the rank; the first one of its group if the model's tensors are divided among ranks, which then all have
    the same prompts.
    """
    mesh = getattr(model, "_device_mesh", None)
    ranks = getattr(mesh, "mesh", None)
    if ranks is None or math.prod(ranks.shape) < 2:
        return tokens.responses.rank
    return int(min(tokens.known(ranks.flatten()) or [tokens.responses.rank]))
