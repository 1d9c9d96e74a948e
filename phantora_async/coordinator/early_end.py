"""The end of a run before its script's: after --steps, at --until, or when a limit is exceeded.

With --steps each rank's script is held when it has done its steps; with a limit of memory, when a step ends in which
its memory exceeded it. The run ends when nothing is left to simulate, or when the ranks that have no steps at all have
come as far as the others. These are instants of virtual time, so that the report does not depend on the speed of this
machine. With a limit of the step's time and --steps, a run ends as soon as so many steps have exceeded it that the
median will: which step that is, and the time that is told, do not depend on this machine either, but ranks may have
gone on, and the rest of the report says how far.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

from phantora_async.report import Document
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import NO_MEMORY, Host, HostState, MemoryPeaks, Stop, Timeline
from phantora_async.virtual_time.results import WARM_UP
from phantora_async.wording import duration, named, seconds, size


class EarlyEnd:
    def __init__(self, spec: RunSpec, timeline: Timeline) -> None:
        self._spec = spec
        self._timeline = timeline
        self._most: MemoryPeaks | None = None
        if spec.until_ns:
            timeline.limit_ns = spec.until_ns
        if spec.most_allocated_nbytes or spec.most_reserved_nbytes:
            unlimited = sys.maxsize
            self._most = MemoryPeaks(
                spec.most_allocated_nbytes or unlimited, spec.most_reserved_nbytes or unlimited, unlimited
            )
            timeline.limit_memory(self._most, spec.steps)

    def reached(self, stop: Stop) -> bool:
        """Returns true if the run has come to its end. `stop`: why the last turn of virtual time ended."""
        if stop is Stop.LIMIT or self._too_slow() is not None:
            return True
        held = self._held()
        if not held:
            return False
        others = [host for host in self._timeline.own_hosts if host.state not in (HostState.HELD, HostState.FINISHED)]
        if stop is Stop.DRAINED or not others:
            return stop is Stop.DRAINED
        return not any(host.steps for host in others) and self._timeline.now_ns > max(host.clock_ns for host in held)

    def explains(self) -> bool:
        """Returns true if ranks are held: others wait for them for ever then, which is no deadlock."""
        return bool(self._held())

    def document(self) -> Document:
        """The part of the report: which option ended the run, and what the user should know."""
        spec, hosts = self._spec, self._timeline.hosts
        if over := self._over() or self._too_slow():
            return over
        if self._timeline.now_ns >= self._timeline.limit_ns:
            option = f"--until {duration(spec.until_ns)}"
            return {"option": option, "text": f"stopped by {option} of virtual time; the script did not end"}
        option = f"--steps {spec.steps}"
        text = f"stopped by {option}; the script did not end"
        if behind := [rank for rank, host in enumerate(hosts) if 0 < host.steps < spec.steps]:
            text += f"; {named(behind)} had done fewer steps and waited for the others"
        if without := [rank for rank, host in enumerate(hosts) if not host.steps]:
            text += f"; {named(without)} {'has' if len(without) == 1 else 'have'} no optimizer steps"
        return {"option": option, "text": text}

    def missed(self) -> str:
        """The reason why the run went to its script's end in spite of --steps, if the user should know it; else ""."""
        if not self._spec.steps or any(host.steps for host in self._timeline.own_hosts):
            return ""
        return (
            f"--steps {self._spec.steps} had no effect: no optimizer steps were found. "
            'torch.cuda.nvtx.mark("phantora.step") in the script tells where one ends'
        )

    def _over(self) -> Document | None:
        """The rank with the most memory, if a rank is held because of its memory; the other ranks are judged by it,
        too.
        """
        most = self._most
        if most is None:
            return None
        peaks = {host.rank: reduce(MemoryPeaks.largest, host.memory.values(), NO_MEMORY) for host in self._held()}
        if not any(of.exceed(most) for of in peaks.values()):
            return None
        figures = {
            "memory": ("reserved", "--max-memory", most.reserved, {rank: of.reserved for rank, of in peaks.items()}),
            "allocated": (
                "allocated",
                "--max-allocated",
                most.allocated,
                {rank: of.allocated for rank, of in peaks.items()},
            ),
        }
        for figure, (name, option, limit, of_ranks) in figures.items():
            rank = max(of_ranks, key=lambda one: (of_ranks[one], -one))
            if of_ranks[rank] > limit:
                step = self._timeline.hosts[rank].steps
                text = (
                    f"stopped after step {step} by {option}: rank {rank} has {name} {size(of_ranks[rank])} of "
                    f"{size(limit)} so far; the script did not end, and figures of time are incomplete"
                )
                return {"option": option, "text": text, "over_budget": {"figure": figure, "rank": rank, "step": step}}
        return None

    def _too_slow(self) -> Document | None:
        """The excess, if more than half of the steps that will count have exceeded the limit: then the median is at
        least the shortest of these.
        """
        limit_ns, steps = self._spec.most_step_ns, self._spec.steps
        counted = steps - 1 - WARM_UP  # as many as in a run that goes on to its end
        if not limit_ns or counted < 1:
            return None
        instants = self._timeline.results.step_instants[WARM_UP : steps - 1]
        slow: list[int] = []
        for number, (before, after) in enumerate(pairwise(instants), WARM_UP + 2):
            for_ns = after.device_ns - before.device_ns
            slow += [for_ns] if for_ns > limit_ns else []
            if 2 * len(slow) > counted:
                option, least_ns = "--max-step-time", min(slow)
                text = (
                    f"stopped after step {number} by {option}: {len(slow)} of the {counted} steps that would count "
                    f"took {seconds(least_ns)} at least, of {seconds(limit_ns)}; figures of time are incomplete"
                )
                over = {"figure": "step", "rank": 0, "step": number, "at_least_ns": least_ns}
                return {"option": option, "text": text, "over_budget": over}
        return None

    def _held(self) -> Sequence[Host]:
        return self._timeline.hosts_in(HostState.HELD)
