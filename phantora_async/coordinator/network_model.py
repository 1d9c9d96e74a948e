"""netsim as virtual time uses it: a collective becomes a plan, and the plan's groups become flows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import CommunicatorMemory, NcclSettings, Params, Plan, slower
from netsim.units import MAX_NS
from phantora_async.coordinator.joined_flows import Joined, as_one, may_join
from phantora_async.coordinator.replicated_collectives import ReplicatedCollectives
from phantora_async.errors import ClockEnded
from phantora_async.faults.links import Change, LinkChanges
from phantora_async.faults.pace import NEVER
from phantora_async.over_time import Carried, LinkTraffic, Traffic, parts_for
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time.facts import Collective, Comm
from phantora_async.virtual_time.network import Revised
from profiles import Cluster

_SIZED_BY_MEMBERS = (
    NcclKind.ALL_GATHER,
    NcclKind.REDUCE_SCATTER,
    NcclKind.ALL_TO_ALL,
    NcclKind.GATHER,
    NcclKind.SCATTER,
)
"""NCCL counts one member's part of these operations; netsim takes the whole."""


NCCLS_OWN = NcclSettings()
MOST_KINDS = 10_000
"""The most kinds of collectives whose shortest durations are remembered."""


def network_of(spec: RunSpec, cluster: Cluster, since_ns: int = 0) -> NetsimNetworkModel:
    """The network between the run's servers, as if they stood in this cluster. Its time begins at `since_ns`."""
    rules = spec.nccl.traffic_rules(netsim.build(cluster.network).server.nics)
    topology = netsim.build(cluster.network, cluster.network_servers(len(spec.servers)), rules)
    params = netsim.collectives.load_params(cluster.nccl)
    faults = LinkChanges(spec.faults, topology, spec.servers, since_ns) if spec.faults else None
    return NetsimNetworkModel(topology, params, spec.servers, spec.nccl, cluster.servers_per_nvlink_domain, faults)


class NetsimNetworkModel:
    """Implements ``virtual_time.NetworkModel`` with a netsim network.

    ``servers``: the number of GPUs in use on each server; the first server has the first ranks. ``servers_per_domain``
    of them are one server of the topology.
    """

    def __init__(
        self,
        topology: netsim.Topology,
        params: Params,
        servers: Sequence[int],
        settings: NcclSettings = NCCLS_OWN,
        servers_per_domain: int = 1,
        faults: LinkChanges | None = None,
    ) -> None:
        self.link_names = [link.name for link in topology.links]
        self._network = netsim.Network(topology)
        self._topology = topology
        self._params = params
        self._settings = settings
        gpus_per_server = topology.server.gpus // servers_per_domain
        self._place_of = [
            (server // servers_per_domain, server % servers_per_domain * gpus_per_server)
            for server, gpus in enumerate(servers)
            for _ in range(gpus)
        ]
        """By rank: its server in the topology, and the number there of the first GPU of the rank's own server."""
        self._gpu_of = [gpu for gpus in servers for gpu in range(gpus)]
        """By rank: the number of its GPU on its own server."""
        places = [(server, first + gpu) for (server, first), gpu in zip(self._place_of, self._gpu_of, strict=True)]
        self.replicated = ReplicatedCollectives(places, self.plan, self._ends, topology)
        self._members: dict[tuple[int, int], tuple[int, ...]] = {}
        """The endpoints of members, by communicator and offset."""
        self._flows: dict[Collective, dict[int, int | None]] = {}
        """The flows of each collective, and when each completes; None if that is not known."""
        self._collectives_of: dict[int, Collection[Collective]] = {}
        """The collectives whose data each flow moves: one, if it is not joined."""
        self._joining: Joined | None = None
        """Collectives of which the network is told when it is asked next: others may join them."""
        self._joined: list[Joined] = []
        """The collectives that the network has as one flow, until they are committed."""
        self._done: dict[Collective, int] = {}
        """The instants at which collectives complete, as far as they are known."""
        self._unreported: list[tuple[int, Collective]] = []
        """Heap of known completions that ``complete`` has not returned; an entry is valid while ``_done`` agrees."""
        self._reported: dict[Collective, int] = {}
        """Completions that ``complete`` has returned, until they are committed."""
        self._begun: dict[Collective, list[tuple[Plan, int]]] = {}
        """For each collective with flows, until it is committed: its plan, and when its data begins to move; then those
        of the collectives that run at the same instants, in the order of their flows."""
        self._traffic = LinkTraffic(parts_for(sum(servers)))
        self._moving = 0
        """The number of collectives that have no known completion."""
        self._committed_ns = 0
        self._shortest_ns: dict[tuple[object, ...], int] = {}
        self._faults = faults
        self._stuck = False
        """True if the data that moves now never arrives, whatever faults still change."""

    def shortest_ns(self, collective: Collective) -> int:
        """See ``virtual_time.NetworkModel``: no flow is faster than its protocol's limit."""
        if collective.op == NcclKind.SEND and len(collective.joined) < 2:
            return 0  # whether it is part of an exchange is not known yet
        members = collective.ranks if collective.op == NcclKind.SEND else collective.comm.id
        kind = (collective.op, collective.dtype, collective.count, collective.root, collective.exchange, members)
        shortest_ns = self._shortest_ns.get(kind)
        if shortest_ns is None:
            if len(self._shortest_ns) >= MOST_KINDS:
                self._shortest_ns.clear()
            plan = self.plan(collective)
            groups_ns = max((_shortest_ns(group) for group in plan.groups), default=0)
            shortest_ns = self._shortest_ns[kind] = plan.latency_ns + groups_ns
        return shortest_ns

    def plan(self, collective: Collective, offset: int = 0) -> Plan:
        """The plan by which the network carries the collective, or the one whose ranks are larger by `offset`."""
        if collective.op == NcclKind.SEND:
            members = self._ends(collective, offset)
            if members[0] == members[1]:
                return self._plan("broadcast", collective.nbytes, members[:1])
            return self._plan(
                _operation(collective),
                collective.nbytes,
                members,
                ranks=len(collective.comm.members),
                exchange=collective.exchange,
            )
        key = collective.comm.id, offset
        known = self._members.get(key)
        if known is None:
            known = self._members[key] = self._ends(collective, offset)
        nbytes = collective.nbytes * (len(known) if collective.op in _SIZED_BY_MEMBERS else 1)
        return self._plan(_operation(collective), nbytes, known, root=max(collective.root, 0))

    def _plan(
        self,
        op: str,
        nbytes: int,
        members: tuple[int, ...],
        root: int = 0,
        ranks: int | None = None,
        exchange: bool = False,
    ) -> Plan:
        return netsim.collectives.plan(
            op, nbytes, members, self._topology, self._params, root, ranks, exchange, self._settings
        )

    def _ends(self, collective: Collective, offset: int) -> tuple[int, ...]:
        return tuple(self._endpoint(collective.comm, rank, offset) for rank in collective.ranks)

    def communicator_memory(self, comm: Comm, rank: int) -> CommunicatorMemory:
        """The bytes that NCCL takes of the GPU of one of the communicator's members, by its world rank."""
        known = self._members.get((comm.id, 0))
        if known is None:
            known = self._members[comm.id, 0] = tuple(self._endpoint(comm, member, 0) for member in comm.members)
        place = comm.rank_of[rank]
        return netsim.collectives.communicator_memory(known, place, self._topology, self._params, self._settings)

    def _endpoint(self, comm: Comm, rank: int, offset: int) -> int:
        device = comm.devices[comm.rank_of[rank]]
        if device == self._gpu_of[rank]:
            device = self._gpu_of[rank + offset]
        server, first = self._place_of[rank + offset]
        return self._topology.gpu(server, first + device)

    def begin(self, collective: Collective, at_ns: int, beside_compute: bool = False) -> Sequence[Revised]:
        """See ``virtual_time.NetworkModel``."""
        self._stuck = False
        slow = beside_compute and self._in_one_server(collective)
        flows: dict[int, int | None] = {}
        begun: list[tuple[Plan, int]] = []
        moved: list[netsim.Moved] = []
        revised: list[Revised] = []
        for plan, carrying in self._plans(collective):
            moves = slower(plan, self._params.kernel.beside_compute[_operation(collective)]) if slow else plan
            start_ns = self._start_ns(collective, moves, at_ns)
            if not plan.groups:
                self._done[collective] = max(start_ns, self._done.get(collective, 0))
                continue
            begun.append((carrying, start_ns))
            if len(collective.offsets) == 1 and self._join(collective, moves, start_ns):
                continue
            revised += self._set_apart(start_ns)
            for group in moves.groups:
                changes = self._network.add(group, start_ns, key=(collective, len(flows)))
                self._collectives_of[changes.flow] = (collective,)
                flows[changes.flow] = None
                moved += changes.moved
        if not begun:
            heappush(self._unreported, (self._done[collective], collective))
            return ()
        self._done.pop(collective, None)
        self._begun[collective] = begun
        self._flows[collective] = flows
        self._moving += 1
        return [*revised, *self._note(moved)] if moved else revised

    def _join(self, collective: Collective, plan: Plan, start_ns: int) -> bool:
        """Has the collective join others that begin now, or be the first that others may join. False: it moves its data
        alone.
        """
        (group, *others) = plan.groups
        if others or not may_join(group) or self._faults is not None or self._topology.congestion is not None:
            return False
        if self._joining is None:
            if self._moving or start_ns <= self._network.now_ns or self._joined_after(start_ns):
                return False
            self._joining = Joined(start_ns)
        elif not self._joining.fits(group, start_ns):
            return False
        self._joining.groups[collective] = group
        return True

    def _joined_after(self, at_ns: int) -> list[Joined]:
        """Joined collectives that move data behind this instant. Others that begin then may set them apart."""
        found = []
        for joined in self._joined:
            done_ns = self._done.get(next(iter(joined.groups)))
            if done_ns is None or at_ns < done_ns:
                found.append(joined)
        return found

    def _tell_joining(self) -> None:
        """Tells the network of collectives that have begun since it was asked: as one flow, if they have one rate."""
        joined, self._joining = self._joining, None
        if joined is None:
            return
        one = as_one(joined.groups.values(), self._topology) if len(joined.groups) > 1 else None
        if one is None:
            self._add_each(joined)
            return
        changes = self._network.add(one, joined.start_ns, key=(next(iter(joined.groups)), 0))
        joined.flow = changes.flow
        self._collectives_of[changes.flow] = joined.groups
        self._joined.append(joined)
        for collective in joined.groups:
            self._flows[collective] = {changes.flow: None}

    def _add_each(self, joined: Joined) -> list[netsim.Moved]:
        """Adds a flow for each of the collectives."""
        moved: list[netsim.Moved] = []
        for collective, group in joined.groups.items():
            changes = self._network.add(group, joined.start_ns, key=(collective, 0))
            self._collectives_of[changes.flow] = (collective,)
            self._flows[collective] = {changes.flow: None}
            moved += changes.moved
        return moved

    def _set_apart(self, at_ns: int) -> list[Revised]:
        """Gives each of the joined collectives that move data behind this instant a flow of its own."""
        self._tell_joining()
        revised: list[Revised] = []
        for joined in self._joined_after(at_ns):
            assert joined.flow is not None
            self._joined.remove(joined)
            del self._collectives_of[joined.flow]
            moved = [*self._network.retract(joined.flow).moved, *self._add_each(joined)]
            revised += self._note(moved, joined.groups)
        return revised

    def _plans(self, collective: Collective) -> Iterator[tuple[Plan, Plan]]:
        """Yields two plans for each group of flows of the collective: how its data moves, and what its links carry."""
        own = self.plan(collective)
        if len(collective.offsets) == 1:
            yield own, own
            return
        if together := self.replicated.together(collective, own):
            yield from zip(together, together, strict=True)
            return
        for offset in self.replicated.moving(collective):
            plan = self.plan(collective, offset)
            yield plan, plan if offset else self.replicated.carrying(collective, plan)

    def _start_ns(self, collective: Collective, plan: Plan, at_ns: int) -> int:
        """The instant at which the data begins to move. Raises ClockEnded."""
        latency_ns = plan.latency_ns
        if not latency_ns and collective.ranks[0] != collective.ranks[-1]:
            latency_ns = 1
        start_ns = at_ns + latency_ns
        if plan.groups and start_ns + max(group.latency_ns for group in plan.groups) > MAX_NS:
            raise ClockEnded(
                f"{collective.describe()} at {at_ns / 1e9:,.0f} s: networks are simulated for the first "
                f"{MAX_NS / 1e9:,.0f} s of virtual time; --until and --steps end a run earlier"
            )
        return start_ns

    def _in_one_server(self, collective: Collective) -> bool:
        """Returns true if all members are on one server. Between servers the NICs are the bottleneck, whatever the GPUs
        do.
        """
        servers = {self._place_of[rank][0] for rank in collective.ranks}
        return len(servers) == 1

    def retract(self, collective: Collective) -> Sequence[Revised]:
        """See ``virtual_time.NetworkModel``."""
        self._stuck = False
        begun = self._begun.get(collective, ())
        revised = self._set_apart(min(start_ns for _, start_ns in begun)) if begun else []
        revised = [one for one in revised if one.collective != collective]
        if self._done.pop(collective, None) is None:
            self._moving -= 1
        self._reported.pop(collective, None)
        self._begun.pop(collective, None)
        moved: list[netsim.Moved] = []
        for flow in self._flows.pop(collective, {}):
            del self._collectives_of[flow]
            moved += self._network.retract(flow).moved
        return [*revised, *self._note(moved)] if moved else revised

    def _note(self, moved: Sequence[netsim.Moved], of: Iterable[Collective] = ()) -> Sequence[Revised]:
        """Records new completion times of flows, and returns the collectives whose completion changes with them. `of`:
        those that have new flows.
        """
        changed: dict[Collective, None] = dict.fromkeys(of)
        for change in moved:
            for collective in self._collectives_of.get(change.flow, ()):
                self._flows[collective][change.flow] = change.after_ns
                changed[collective] = None
        revised: list[Revised] = []
        for collective in changed:
            before_ns, after_ns = self._done.get(collective), _last(self._flows[collective].values())
            if before_ns == after_ns:
                continue
            if after_ns is None:
                del self._done[collective]
            else:
                self._done[collective] = after_ns
                heappush(self._unreported, (after_ns, collective))
            self._moving += (after_ns is None) - (before_ns is None)
            reported_ns = self._reported.pop(collective, None)
            if reported_ns is not None:
                revised.append(Revised(collective, reported_ns, after_ns))
        return revised

    def next_ns(self) -> int | None:
        """See ``virtual_time.NetworkModel``."""
        self._tell_joining()
        flow = self._next_completion() if self._moving else None
        known_ns = self._next_unreported_ns()
        if flow is None:
            return known_ns
        flow_ns, _ = flow
        return flow_ns if known_ns is None else min(flow_ns, known_ns)

    def _next_completion(self) -> tuple[int, int] | None:
        """The network's next completion. The network is told only the changes by faults before it. Links that flap for
        ever are taken to end nothing if nothing has completed in two turns.
        """
        flow, faults = self._network.next_completion(), self._faults
        stalled_ns = -1
        while faults is not None and not self._stuck and (flow is None or faults.first_ns < flow[0]):
            if flow is not None:
                stalled_ns = -1
            elif stalled_ns < 0:
                stalled_ns = max(faults.settled_ns, faults.first_ns)
            elif faults.first_ns > stalled_ns + 2 * faults.cycle_ns:
                self._stuck = True
            if faults.first_ns == NEVER:
                self._stuck = True
            if not self._stuck:
                self._tell(faults.take())
                flow = self._network.next_completion()
        return flow

    def _tell(self, change: Change) -> None:
        self._network.set_capacity(change.link, change.at_ns, change.gbps)

    def _next_unreported_ns(self) -> int | None:
        """The earliest valid entry of ``_unreported``; invalid ones before it are dropped."""
        heap = self._unreported
        while heap:
            done_ns, collective = heap[0]
            if self._done.get(collective) == done_ns and collective not in self._reported:
                return done_ns
            heappop(heap)
        return None

    def complete(self, at_ns: int) -> list[Collective]:
        """See ``virtual_time.NetworkModel``."""
        self._tell_joining()
        if at_ns > self._network.now_ns:
            while self._faults is not None and self._faults.first_ns <= at_ns:
                self._tell(self._faults.take())
            for done_ns, flow in self._network.advance(at_ns):
                for collective in self._collectives_of[flow]:
                    flows = self._flows[collective]
                    flows[flow] = done_ns
                    last_ns = done_ns if len(flows) == 1 else _last(flows.values())
                    if last_ns is not None:
                        self._moving -= 1
                        self._done[collective] = last_ns
                        heappush(self._unreported, (last_ns, collective))
        done = []
        while (due_ns := self._next_unreported_ns()) is not None and due_ns <= at_ns:
            _, collective = heappop(self._unreported)
            self._reported[collective] = due_ns
            done.append(collective)
        return sorted(done) if len(done) > 1 else done

    def commit(self, at_ns: int) -> None:
        """See ``virtual_time.NetworkModel``. The network's own present may be earlier: nothing has completed since."""
        self._tell_joining()
        horizon_ns = min(at_ns, self._network.now_ns)
        # Joined collectives can be set apart as long as others may begin before they end.
        horizon_ns = min([horizon_ns, *(joined.start_ns for joined in self._joined_after(horizon_ns))])
        if horizon_ns > self._committed_ns:
            for collective in [collective for collective, done_ns in self._reported.items() if done_ns < horizon_ns]:
                begun = self._begun.pop(collective, None)
                for plan, start_ns in begun or ():
                    self._traffic.add(Carried(plan, start_ns, self._done[collective]))
                if begun is not None and len(begun) > 1:
                    self._compare(collective, begun)
                del self._reported[collective], self._done[collective]
                for flow in self._flows.pop(collective, ()):
                    self._collectives_of.pop(flow, None)
            self._joined = [joined for joined in self._joined if next(iter(joined.groups)) in self._begun]
            self._network.commit(horizon_ns)
            self._committed_ns = horizon_ns

    def _compare(self, collective: Collective, begun: Sequence[tuple[Plan, int]]) -> None:
        """Compares the completion times of collectives that were simulated as one."""
        instants_ns = iter(self._flows[collective].values())
        done_ns = [max(at_ns or 0 for at_ns in islice(instants_ns, len(plan.groups))) for plan, _ in begun]
        self.replicated.note(done_ns)

    def links_of(self, numbers: Sequence[int]) -> list[netsim.Link]:
        return [self._topology.links[number] for number in numbers]

    def traffic(self) -> Traffic:
        """The bytes that links have carried for all collectives that are complete."""
        done = self._reported.items()
        more = [
            Carried(plan, start_ns, at_ns)
            for collective, at_ns in done
            for plan, start_ns in self._begun.get(collective, ())
        ]
        return self._traffic.traffic(more)


def _operation(collective: Collective) -> str:
    """The name of the operation in netsim."""
    return "send_recv" if collective.op == NcclKind.SEND else NcclKind(collective.op).name.lower()


def _shortest_ns(group: netsim.Group) -> int:
    """The group's duration alone in the network in ns, less 1 ns because netsim's rates are rounded."""
    moving_ns = int(8 * group.nbytes / group.cap_gbps) - 1 if group.cap_gbps else 0
    return group.latency_ns + max(moving_ns, 0)


def _last(instants_ns: Iterable[int | None]) -> int | None:
    """The latest instant; None if one of them is not known."""
    last_ns = 0
    for at_ns in instants_ns:
        if at_ns is None:
            return None
        last_ns = max(last_ns, at_ns)
    return last_ns
