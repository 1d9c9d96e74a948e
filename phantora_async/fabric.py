"""netsim as virtual time uses it: a meeting becomes a plan, the plan's groups become flows."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import netsim
from emu.records import NcclKind
from netsim.collectives import Params, Plan
from phantora_async.virtual_time.facts import Meeting

_SIZED_BY_MEMBERS = (
    NcclKind.ALL_GATHER,
    NcclKind.REDUCE_SCATTER,
    NcclKind.ALL_TO_ALL,
    NcclKind.GATHER,
    NcclKind.SCATTER,
)
"""NCCL's count is one member's part; netsim wants the whole."""


class NetsimFabric:
    """``virtual_time.Fabric`` over a netsim network. ``servers``: GPUs in use on each server, in the order of ranks."""

    def __init__(self, topology: netsim.Topology, params: Params, servers: Sequence[int]) -> None:
        self._network = netsim.Network(topology)
        self._topology = topology
        self._params = params
        self._server_of = [server for server, gpus in enumerate(servers) for _ in range(gpus)]
        self._members: dict[int, tuple[int, ...]] = {}
        self._under_way: dict[int, tuple[int, int]] = {}
        """Flow -> (key, its plan's number of groups)"""
        self._left: dict[int, int] = {}
        """Key -> flows that have not completed"""
        self._silent: list[tuple[int, int]] = []
        """Heap of (at_ns, key): completions that need no flow."""
        self._committed_ns = 0

    def plan(self, meeting: Meeting) -> Plan:
        """How the network carries the meeting."""
        if meeting.op == NcclKind.SEND:
            members = tuple(self._endpoint(meeting, rank) for rank in meeting.ranks)
            if members[0] == members[1]:
                return self._plan("broadcast", meeting.nbytes, members[:1], 0)
            return self._plan("send_recv", meeting.nbytes, members, 0)
        number = meeting.comm.id
        known = self._members.get(number)
        if known is None:
            known = self._members[number] = tuple(self._endpoint(meeting, rank) for rank in meeting.ranks)
        nbytes = meeting.nbytes * (len(known) if meeting.op in _SIZED_BY_MEMBERS else 1)
        return self._plan(NcclKind(meeting.op).name.lower(), nbytes, known, max(meeting.root, 0))

    def _plan(self, op: str, nbytes: int, members: tuple[int, ...], root: int) -> Plan:
        return netsim.collectives.plan(op, nbytes, members, self._topology, self._params, root)

    def _endpoint(self, meeting: Meeting, rank: int) -> int:
        device = meeting.comm.devices[meeting.comm.place[rank]]
        return self._topology.gpu(self._server_of[rank], device)

    def begin(self, key: int, meeting: Meeting, at_ns: int) -> None:
        """See ``virtual_time.Fabric``."""
        plan = self.plan(meeting)
        start_ns = at_ns + plan.latency_ns
        if not plan.groups:
            heappush(self._silent, (start_ns, key))
            return
        self._left[key] = len(plan.groups)
        for number, group in enumerate(plan.groups):
            changes = self._network.add(group, start_ns, key=(key, number))
            self._under_way[changes.flow] = key, number
            # A flow without bytes that starts at the present has completed already, and no later advance tells.
            for moved in changes.moved:
                if moved.flow == changes.flow and moved.after_ns is not None:
                    self._flow_done(moved.flow, moved.after_ns)

    def _flow_done(self, flow: int, at_ns: int) -> None:
        key, _ = self._under_way.pop(flow)
        self._left[key] -= 1
        if not self._left[key]:
            del self._left[key]
            heappush(self._silent, (at_ns, key))

    def next_ns(self) -> int | None:
        """See ``virtual_time.Fabric``."""
        flow = self._network.next_completion() if self._left else None
        silent_ns = self._silent[0][0] if self._silent else None
        if flow is None:
            return silent_ns
        return flow[0] if silent_ns is None else min(flow[0], silent_ns)

    def complete(self, at_ns: int) -> list[int]:
        """See ``virtual_time.Fabric``."""
        for done_ns, flow in self._network.advance(at_ns):
            self._flow_done(flow, done_ns)
        keys = []
        while self._silent and self._silent[0][0] <= at_ns:
            keys.append(heappop(self._silent)[1])
        return sorted(keys)

    def commit(self, at_ns: int) -> None:
        """See ``virtual_time.Fabric``. The network's own present may be earlier: nothing has completed since."""
        horizon_ns = min(at_ns, self._network.now_ns)
        if horizon_ns > self._committed_ns:
            self._network.commit(horizon_ns)
            self._committed_ns = horizon_ns
