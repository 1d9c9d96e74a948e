"""netsim as virtual time uses it: a collective becomes a plan, and the plan's groups become flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import Params, Plan
from phantora_async.virtual_time.collectives import Revised
from phantora_async.virtual_time.facts import Collective

_SIZED_BY_MEMBERS = (
    NcclKind.ALL_GATHER,
    NcclKind.REDUCE_SCATTER,
    NcclKind.ALL_TO_ALL,
    NcclKind.GATHER,
    NcclKind.SCATTER,
)
"""NCCL counts one member's part of these operations; netsim takes the whole."""


class NetsimNetworkModel:
    """``virtual_time.NetworkModel`` over a netsim network. ``servers``: GPUs in use on each server, by rank."""

    def __init__(self, topology: netsim.Topology, params: Params, servers: Sequence[int]) -> None:
        self._network = netsim.Network(topology)
        self._topology = topology
        self._params = params
        self._server_of = [server for server, gpus in enumerate(servers) for _ in range(gpus)]
        self._members: dict[int, tuple[int, ...]] = {}
        self._flows: dict[Collective, dict[int, int | None]] = {}
        """Key -> its flows, and when each completes, if that is known."""
        self._key_of: dict[int, Collective] = {}
        """Flow -> key"""
        self._done: dict[Collective, int] = {}
        """Key -> when it completes, if that is known."""
        self._unreported: list[tuple[int, Collective]] = []
        """Heap of known completions that ``complete`` has not returned; an entry is valid while ``_done`` agrees."""
        self._reported: dict[Collective, int] = {}
        """Completions that ``complete`` has returned, until they are committed."""
        self._moving = 0
        """Keys whose completion is not known."""
        self._committed_ns = 0

    def plan(self, collective: Collective) -> Plan:
        """How the network carries the collective."""
        if collective.op == NcclKind.SEND:
            members = tuple(self._endpoint(collective, rank) for rank in collective.ranks)
            if members[0] == members[1]:
                return self._plan("broadcast", collective.nbytes, members[:1], 0)
            return self._plan("send_recv", collective.nbytes, members, 0)
        number = collective.comm.id
        known = self._members.get(number)
        if known is None:
            known = self._members[number] = tuple(self._endpoint(collective, rank) for rank in collective.ranks)
        nbytes = collective.nbytes * (len(known) if collective.op in _SIZED_BY_MEMBERS else 1)
        return self._plan(NcclKind(collective.op).name.lower(), nbytes, known, max(collective.root, 0))

    def _plan(self, op: str, nbytes: int, members: tuple[int, ...], root: int) -> Plan:
        return netsim.collectives.plan(op, nbytes, members, self._topology, self._params, root)

    def _endpoint(self, collective: Collective, rank: int) -> int:
        device = collective.comm.devices[collective.comm.place[rank]]
        return self._topology.gpu(self._server_of[rank], device)

    def begin(self, key: Collective, collective: Collective, at_ns: int) -> Revised:
        """See ``virtual_time.NetworkModel``."""
        plan = self.plan(collective)
        latency_ns = plan.latency_ns
        if not latency_ns and collective.ranks[0] != collective.ranks[-1]:
            latency_ns = 1
        start_ns = at_ns + latency_ns
        if not plan.groups:
            self._done[key] = start_ns
            heappush(self._unreported, (start_ns, key))
            return ()
        flows: dict[int, int | None] = {}
        moved: list[netsim.Moved] = []
        for number, group in enumerate(plan.groups):
            changes = self._network.add(group, start_ns, key=(key, number))
            self._key_of[changes.flow] = key
            flows[changes.flow] = None
            moved += changes.moved
        self._flows[key] = flows
        self._moving += 1
        return self._note(moved) if moved else ()

    def retract(self, key: Collective) -> Revised:
        """See ``virtual_time.NetworkModel``."""
        if self._done.pop(key, None) is None:
            self._moving -= 1
        self._reported.pop(key, None)
        moved: list[netsim.Moved] = []
        for flow in self._flows.pop(key, {}):
            del self._key_of[flow]
            moved += self._network.retract(flow).moved
        return self._note(moved) if moved else ()

    def _note(self, moved: Sequence[netsim.Moved]) -> Revised:
        """Flows complete at other times than before: so may their collectives."""
        keys: dict[Collective, None] = {}
        for change in moved:
            key = self._key_of.get(change.flow)
            if key is not None:
                self._flows[key][change.flow] = change.after_ns
                keys[key] = None
        revised: list[tuple[Collective, int, int | None]] = []
        for key in keys:
            before_ns, after_ns = self._done.get(key), _last(self._flows[key].values())
            if before_ns == after_ns:
                continue
            if after_ns is None:
                del self._done[key]
            else:
                self._done[key] = after_ns
                heappush(self._unreported, (after_ns, key))
            self._moving += (after_ns is None) - (before_ns is None)
            reported_ns = self._reported.pop(key, None)
            if reported_ns is not None:
                revised.append((key, reported_ns, after_ns))
        return revised

    def next_ns(self) -> int | None:
        """See ``virtual_time.NetworkModel``."""
        flow = self._network.next_completion() if self._moving else None
        heap = self._unreported
        while heap and (self._done.get(heap[0][1]) != heap[0][0] or heap[0][1] in self._reported):
            heappop(heap)
        known_ns = heap[0][0] if heap else None
        if flow is None:
            return known_ns
        return flow[0] if known_ns is None else min(flow[0], known_ns)

    def complete(self, at_ns: int) -> list[Collective]:
        """See ``virtual_time.NetworkModel``."""
        if at_ns > self._network.now_ns:
            for done_ns, flow in self._network.advance(at_ns):
                key = self._key_of[flow]
                flows = self._flows[key]
                flows[flow] = done_ns
                last_ns = done_ns if len(flows) == 1 else _last(flows.values())
                if last_ns is not None:
                    self._moving -= 1
                    self._done[key] = last_ns
                    heappush(self._unreported, (last_ns, key))
        keys = []
        while self._unreported and self._unreported[0][0] <= at_ns:
            done_ns, key = heappop(self._unreported)
            if self._done.get(key) == done_ns and key not in self._reported:
                self._reported[key] = done_ns
                keys.append(key)
        return sorted(keys) if len(keys) > 1 else keys

    def commit(self, at_ns: int) -> None:
        """See ``virtual_time.NetworkModel``. The network's own present may be earlier: nothing has completed since."""
        horizon_ns = min(at_ns, self._network.now_ns)
        if horizon_ns > self._committed_ns:
            for key in [key for key, done_ns in self._reported.items() if done_ns < horizon_ns]:
                del self._reported[key], self._done[key]
                for flow in self._flows.pop(key, ()):
                    del self._key_of[flow]
            self._network.commit(horizon_ns)
            self._committed_ns = horizon_ns


def _last(instants_ns: Iterable[int | None]) -> int | None:
    """The latest; None if one is not known."""
    last_ns = 0
    for at_ns in instants_ns:
        if at_ns is None:
            return None
        last_ns = max(last_ns, at_ns)
    return last_ns
