"""The responses that a program generates in one process: their lengths, and what the coordinator is told of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...contract import records
from ...contract.policies.length_policy import LengthPolicy, prompt_key
from ...interpreter.hook_library import Hook

_EVENT = records.ResponseEventKind
Word = tuple[str, tuple[int | str, ...]]
"""A message to the coordinator: the hook's function and its arguments."""


@dataclass(slots=True)
class _Total:
    """The sums over all batches of one program since the rank's start."""

    batches: int = 0
    responses: int = 0
    ended: int = 0
    """The responses whose end token was sampled; the others were cut."""
    tokens: int = 0
    longest: int = 0
    places: int = 0
    """The tokens that there would be if each response were as long as the longest of its batch."""
    sent: int = 0
    """The number of batches that the coordinator knows of."""


class Responses:
    """The lengths of responses, by the policy of `--lengths`; None: the program decides."""

    def __init__(self, hook: Hook, policy: LengthPolicy | None = None) -> None:
        self._hook = hook
        self._untold: list[Word] | None = None
        self.policy = policy
        """Set when the run's job is known."""
        self.rank = 0
        """The rank whose process this is."""
        self.is_rank = False
        """True if this process is a rank's, which has virtual time."""
        self._before: Counter[tuple[bytes, int]] = Counter()
        """The number of responses that prompts have had, by prompt and replica."""
        self._totals: dict[str, _Total] = {}
        self._free: list[int] = []
        """The numbers of responses that have ended, to be given again: a step then tells what the step before told."""
        self._numbers = 0
        self._kv_blocks = (0, 0)

    def length(self, policy: LengthPolicy, prompt: Iterable[int], replica: int) -> int:
        """Returns the length of the next response to this prompt. `replica`: processes that generate the same responses
        have the same number.
        """
        key = prompt_key(prompt)
        before = self._before[key, replica]
        self._before[key, replica] += 1
        return policy.length(key, before, replica)

    # ---- telling ---------------------------------------------------------------------------------------------------
    def _tell(self, function: str, *values: int | str) -> None:
        if self.is_rank or self._untold is None:
            getattr(self._hook, function)(*values)
        else:
            self._untold.append((function, values))

    def keep_untold(self) -> None:
        """Keeps for ``take_untold`` what is told from now on, as long as this process is no rank."""
        if self._untold is None:
            self._untold = []

    def take_untold(self) -> list[Word]:
        """Returns what this process has had to tell since the last call. Ranks to which it gives work tell it for this
        process (``tell_for``).
        """
        self.report()
        taken, self._untold = self._untold or [], []
        return taken

    def tell_for(self, words: Iterable[Word]) -> None:
        """Tells what another process has had to tell until now."""
        for function, values in words:
            getattr(self._hook, function)(*values)

    # ---- instants, for the report ----------------------------------------------------------------------------------
    def running(self, responses: int) -> None:
        """Tells that the program generates so many responses from now on."""
        self._tell("batch", responses)

    def arrived(self, prompt_tokens: int) -> int:
        """Tells that the program is asked for a response now, and returns the response's number."""
        if not self._free:
            heapq.heappush(self._free, self._numbers)
            self._numbers += 1
        number = heapq.heappop(self._free)
        self._tell("response", _EVENT.ARRIVED, number, prompt_tokens)
        return number

    def first(self, number: int) -> None:
        """Tells that the program knows the first token of a response now."""
        self._tell("response", _EVENT.FIRST, number, 1)

    def ended(self, number: int, tokens: int) -> None:
        """Tells that the program knows the last token of a response now."""
        self._tell("response", _EVENT.ENDED, number, tokens)
        heapq.heappush(self._free, number)

    def dropped(self, number: int, tokens: int) -> None:
        """Tells that a response will not be complete."""
        self._tell("response", _EVENT.DROPPED, number, tokens)
        heapq.heappush(self._free, number)

    def kv_blocks(self, used: int, blocks: int) -> None:
        """Tells how many blocks of keys and values are in use from now on."""
        if (used, blocks) != self._kv_blocks:
            self._kv_blocks = used, blocks
            self._tell("kv_blocks", used, blocks)

    # ---- lengths, for the report -----------------------------------------------------------------------------------
    def warn(self, text: str) -> None:
        text = f"--lengths: {text}"
        self._tell("warn_once", text, text)

    def complete(self, program: str, lengths: Iterable[tuple[int, bool]], *, together: bool) -> None:
        """Notes responses that are complete: how many tokens each has, and whether its end token was sampled.
        `together`: they are a batch in which the places of shorter ones stay empty until the last one is complete.
        """
        lengths = list(lengths)
        if not lengths:
            return
        total = self._totals.setdefault(program, _Total())
        tokens, longest = sum(length for length, _ in lengths), max(length for length, _ in lengths)
        total.batches += 1
        total.responses += len(lengths)
        total.ended += sum(ended for _, ended in lengths)
        total.tokens += tokens
        total.longest = max(total.longest, longest)
        total.places += longest * len(lengths) if together else tokens
        if total.batches >= 2 * total.sent:
            self._send(program, total)

    def report(self) -> None:
        """Sends all totals, at the rank's end."""
        for program, total in self._totals.items():
            if total.batches != total.sent:
                self._send(program, total)

    def _send(self, program: str, total: _Total) -> None:
        total.sent = total.batches
        self._tell(
            "generation",
            total.batches,
            total.responses,
            total.ended,
            total.tokens,
            total.longest,
            total.places,
            program,
        )
