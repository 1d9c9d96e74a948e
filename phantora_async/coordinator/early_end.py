"""The end of a run before its script's: after --steps, or at --until.

Both are instants of virtual time, so that the report does not depend on the speed of this machine. With --steps each
rank's script is held when it has done its steps. The run ends when nothing is left to simulate, or when the ranks that
have no steps at all have come as far as the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from phantora_async.report import Document
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import Host, HostState, Stop, Timeline
from phantora_async.wording import duration, named


class EarlyEnd:
    def __init__(self, spec: RunSpec, timeline: Timeline) -> None:
        self._spec = spec
        self._timeline = timeline
        if spec.until_ns:
            timeline.limit_ns = spec.until_ns

    def reached(self, stop: Stop) -> bool:
        """Has the run come to its end? `stop`: why the last turn of virtual time ended."""
        if stop is Stop.LIMIT:
            return True
        held = self._held()
        if not held:
            return False
        others = [host for host in self._timeline.hosts if host.state not in (HostState.HELD, HostState.FINISHED)]
        if stop is Stop.DRAINED or not others:
            return stop is Stop.DRAINED
        return not any(host.steps for host in others) and self._timeline.now_ns > max(host.clock_ns for host in held)

    def explains(self) -> bool:
        """Ranks are held, so that others wait for them for ever: that is no deadlock."""
        return bool(self._held())

    def document(self) -> Document:
        """For the report: which option ended the run, and what the user should know."""
        spec, hosts = self._spec, self._timeline.hosts
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
        """Why the run went to its script's end in spite of --steps, if the user should know; else ""."""
        if not self._spec.steps or any(host.steps for host in self._timeline.hosts):
            return ""
        return (
            f"--steps {self._spec.steps} had no effect: no optimizer steps were found. "
            'torch.cuda.nvtx.mark("phantora.step") in the script tells where one ends'
        )

    def _held(self) -> Sequence[Host]:
        if not self._spec.steps:
            return ()
        return [host for host in self._timeline.hosts if host.state == HostState.HELD]
