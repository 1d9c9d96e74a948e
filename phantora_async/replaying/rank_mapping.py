"""Maps the recorded ranks to those of a replay: each rank that has a timeline of its own does what a recorded rank did.

They are other ranks than those of the recording if another GPU or host is slow (a timeline splits), if each rank is
simulated though some shared timelines, or if there are more or fewer replicas. What names other ranks is changed, as
``folding`` does it in a run: communicators, their creations, roots and peers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from emu.contract import records
from emu.contract.folding import CannotFold
from emu.contract.records import NcclKind
from phantora_async.errors import UsageError
from phantora_async.recording import Recording
from phantora_async.recording.recording import Creation, OutsideSleep, Part, Recast
from phantora_async.recording.rows import Call, kernel_launches
from phantora_async.recording.rows import creations as creations_in
from phantora_async.replaying.width import Width
from phantora_async.virtual_time import Comm, Timelines
from phantora_async.virtual_time.facts import ROOTED


def map_ranks(
    recording: Recording, servers: tuple[int, ...], timelines: Timelines, width: Width | None = None
) -> Recording:
    """The recording for these ranks. `servers`: the number of GPUs of each server. `width`: None: there are as many
    ranks as there were. Raises UsageError, Damaged.
    """
    if width is None and not timelines.shared and recording.own == timelines.own:
        return recording
    return _RankMapping(recording, servers, timelines, width).recording()


class _RankMapping:
    def __init__(
        self, recording: Recording, servers: tuple[int, ...], timelines: Timelines, width: Width | None
    ) -> None:
        self._recording = recording
        self._timelines = timelines
        self._width = width
        self._servers = servers
        self._then = recording.timelines
        self._gpus_then = [gpu for gpus in recording.setup.servers for gpu in range(gpus)]
        self._gpus = [gpu for gpus in servers for gpu in range(gpus)]
        self._comms: dict[tuple[int, tuple[int, ...]], Comm] = {}
        self._ids: set[int] = set()
        self._next_id = max(recording.comms, default=0) + 1
        self._creations: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        """The creations by number and identity of the members."""
        self._images: dict[tuple[int, ...], tuple[int, ...]] = {}
        """One object for each list of members."""
        self._kernels = {kernel: number for number, kernel in enumerate(recording.kernels)}
        self._others: dict[tuple[tuple[int, int], ...], int] = {}

    def recording(self) -> Recording:
        recorded, timelines = self._recording, self._timelines
        if timelines.shared and not self._then.shared and self._width is None:
            self._check_alike()
        sources = {rank: self._source(rank) for rank in timelines.own}
        try:
            parts = {rank: self._part(rank, source) for rank, source in sources.items()}
        except CannotFold as error:
            raise UsageError(f"{error}: what other ranks than the recorded ones would do is not known") from None
        setup = replace(
            recorded.setup,
            servers=self._servers,
            folding=recorded.setup.folding if self._width is None else self._width.now,
            share_timelines=timelines.shared,
            slowed=tuple(sorted(timelines.slowed)),
        )
        tables = Recast(
            {comm.id: comm for comm in self._comms.values()},
            [
                Creation(recorded.creations[place].label, members)
                for (place, _), (_, members) in self._creations.items()
            ],
            list(self._kernels),
            self._sleeps(sources),
            [dict(changed) for changed in self._others],
            self._warnings(),
            self._width is None,
        )
        self._check_joined(parts, tables)
        return recorded.recast(setup, parts, tables)

    def _check_alike(self) -> None:
        """Raises UsageError if ranks that share a timeline now did different things in the recording."""
        recorded, of_each = self._recording, self._timelines.of_each
        for rank, own in enumerate(of_each):
            if recorded.key_of(rank) != recorded.key_of(own):
                raise UsageError(f"--replicas shared: rank {rank} did not do the same as rank {own}")

    def _warnings(self) -> list[tuple[str, tuple[int, ...], int]]:
        """The warnings, given by the ranks that do what the recorded ones did."""
        recorded, width = self._recording.warnings, self._width
        if width is None or not recorded:
            return recorded
        did = [width.recorded(rank) for rank in range(sum(self._servers))]
        found = []
        for text, ranks, count in recorded:
            gave = frozenset(ranks)
            if now := tuple(rank for rank, then in enumerate(did) if then in gave):
                found.append((text, now, count // len(ranks) * len(now)))
        return found

    def _source(self, rank: int) -> int:
        """The recorded rank that did what this one does."""
        return self._then.of(rank if self._width is None else self._width.recorded(rank))

    def _part(self, rank: int, source: int) -> Part:
        comms = [self._comm(comm, source, rank) for comm in self._recording.comms_of(source)]
        places = self._recording.creations_of(source)
        if self._width is not None:
            # How far peers are from each other is known for the recorded width only.
            rows = self._recording.stream(source).rows
            connects = np.repeat(rows["kind"] == records.CONNECT, creations_in(rows).astype(int))
            places = [place for place, connection in zip(places, connects, strict=True) if not connection]
        creations = [self._creation(place, source, rank) for place in places]
        return Part(source, [comm.id for comm in comms], creations, self._kernels_of(rank, source, comms))

    # ---- who takes whose place -------------------------------------------------------------------------------------

    def _image(self, members: tuple[int, ...], source: int, rank: int) -> tuple[int, ...]:
        """The members among whom the rank has the place that the source has among these. Raises CannotFold."""
        if self._width is not None:
            return self._width.image(members, rank)
        image = members
        if source != rank:
            folding = self._recording.setup.folding
            assert folding is not None, "without folding, each rank has a part of its own"
            image = folding.image(members, source, rank)
        return self._images.setdefault(image, image)

    def _comm(self, recorded: Comm, source: int, rank: int) -> Comm:
        members = self._image(recorded.members, source, rank)
        found = self._comms.get((recorded.id, members))
        if found is None:
            number = recorded.id
            if number in self._ids:
                number, self._next_id = self._next_id, self._next_id + 1
            self._ids.add(number)
            callers: tuple[int, ...] | None = None
            offsets: tuple[int, ...] = (0,)
            if self._timelines.shared:
                callers, offsets = self._timelines.having(members), self._timelines.offsets(members)
            places = {member: place for place, member in enumerate(members)}
            found = Comm(number, members, self._devices(recorded, members), places, recorded.label, callers, offsets)
            self._comms[recorded.id, members] = found
        return found

    def _devices(self, recorded: Comm, members: tuple[int, ...]) -> tuple[int, ...]:
        """The devices of the members. A member that used the GPU of its own number does so everywhere."""
        devices = dict(zip(recorded.members, recorded.devices, strict=True))
        if self._width is not None and self._width.spans(recorded.members):
            then = tuple(map(self._width.recorded, members))
        else:
            then = recorded.members
        return tuple(
            self._gpus[member] if devices.get(one, self._gpus_then[one]) == self._gpus_then[one] else devices[one]
            for member, one in zip(members, then, strict=True)
        )

    def _creation(self, place: int, source: int, rank: int) -> int:
        members = self._image(self._recording.creations[place].members, source, rank)
        number, _ = self._creations.setdefault((place, id(members)), (len(self._creations), members))
        return number

    # ---- roots and peers -------------------------------------------------------------------------------------------

    def _kernels_of(self, rank: int, source: int, comms: Sequence[Comm]) -> int:
        """The number of the rank's kernels, see ``Part.others``. Raises CannotFold."""
        rows = self._recording.stream(source).rows
        launched = np.unique(rows["values"][kernel_launches(rows), 0]).tolist()
        recorded = self._recording.comms_of(source)
        changed = {}
        for number in launched:
            kernel = self._recording.kernels[number]
            other = self._kernel(kernel, recorded, comms, source, rank)
            if other != kernel:
                changed[number] = self._kernels.setdefault(other, len(self._kernels))
        if not changed:
            return 0
        return self._others.setdefault(tuple(sorted(changed.items())), len(self._others) + 1)

    def _kernel(
        self, kernel: tuple[Call, ...], recorded: Sequence[Comm], comms: Sequence[Comm], source: int, rank: int
    ) -> tuple[Call, ...]:
        if kernel and _each_gives(kernel, recorded[kernel[0].comm]):
            return tuple(kernel[0]._replace(root=root) for root in range(len(comms[kernel[0].comm].members)))
        return tuple(self._call(call, recorded[call.comm], comms[call.comm], source, rank) for call in kernel)

    def _call(self, call: Call, then: Comm, now: Comm, source: int, rank: int) -> Call:
        if call.op == NcclKind.SEND and self._width is None and tuple(self._recording.own) == self._timelines.own:
            return call  # ranks share timelines as they did, so parts of gathers, too, are between the same ones
        if call.op == NcclKind.SEND and call.callers == 1:
            return self._exchange(call, then, now, source, rank)
        if call.op == NcclKind.SEND:
            pair = self._image((then.members[call.sender], then.members[call.receiver]), source, rank)
            self._timelines.offsets(pair)
            if len(pair) > 2 or any(self._timelines.of(one) != one for one in pair):
                raise CannotFold("a rank sends along a folded axis")
            return call._replace(sender=now.rank_of[pair[0]], receiver=now.rank_of[pair[1]])
        if call.op in ROOTED and self._width is not None:
            root = self._width.moved(then.members[call.root], self._width.constant(then.members), rank)
            return call._replace(root=now.rank_of[root])
        return call

    def _exchange(self, call: Call, then: Comm, now: Comm, source: int, rank: int) -> Call:
        """The message of a rank that sent its peer what that sent it: the two differ along axes of two coordinates.
        Raises CannotFold.
        """
        folding = self._recording.setup.folding
        assert folding is not None, "ranks share timelines"
        before, mesh = folding.mesh, (folding if self._width is None else self._width.now).mesh
        sends = then.members[call.sender] == source
        recorded, peer = then.members[call.receiver if sends else call.sender], rank
        for at, axis in enumerate(mesh.axes):
            if before.coordinate(source, at) != before.coordinate(recorded, at):
                if axis.size != 2:
                    raise CannotFold(f"a rank sends along {axis.name}, which has {axis.size} ranks now")
                peer += (1 - 2 * mesh.coordinate(rank, at)) * mesh.strides[at]
        exchanges = self._timelines.exchange(rank, peer)
        if not exchanges and self._timelines.of(peer) != peer:
            raise CannotFold("a rank sends along a folded axis")
        sender, receiver = (now.rank_of[one] for one in ((rank, peer) if sends else (peer, rank)))
        return call._replace(sender=sender, receiver=receiver, callers=1 if exchanges else 2)

    # ---- what belongs together -------------------------------------------------------------------------------------

    def _sleeps(self, sources: Mapping[int, int]) -> list[OutsideSleep]:
        """The sleeps of all ranks. The rank that wakes another one is one that does what the recorded one did."""
        doing: dict[int, list[int]] = {}
        for rank, source in sources.items():
            doing.setdefault(source, []).append(rank)
        return [
            sleep._replace(rank=rank, cause=-1 if sleep.cause < 0 else self._waking(doing, sleep, rank))
            for sleep in self._recording.sleeps
            for rank in doing.get(sleep.rank, ())
        ]

    def _waking(self, doing: Mapping[int, Sequence[int]], sleep: OutsideSleep, rank: int) -> int:
        """The rank that wakes this one: if there are several, the one beside it. A recorded one may have been a witness
        whose place none takes.
        """
        causes = doing.get(sleep.cause)
        if causes is None:
            causes = [self._timelines.of(self._width.moved(sleep.cause, (), rank) if self._width else sleep.cause)]
        return min(causes, key=lambda one: abs(one - rank))

    def _check_joined(self, parts: Mapping[int, Part], tables: Recast) -> None:
        """Raises UsageError unless all members of a communicator have it."""
        joined: dict[int, int] = {}
        for part in parts.values():
            for number in part.comms:
                joined[number] = joined.get(number, 0) + 1
        for number, comm in tables.comms.items():
            callers = comm.members if comm.callers is None else comm.callers
            if joined[number] != len(callers):
                raise UsageError(
                    f"the {comm.label} was used by {joined[number]} of {len(callers)} ranks that would use it now: "
                    "ranks of one role differ",
                    "replay with the replicas and the slow GPUs of the run",
                )


def _each_gives(kernel: tuple[Call, ...], comm: Comm) -> bool:
    """Returns true if the kernel is one broadcast of each member, in order."""
    first = kernel[0]
    return (
        first.op == NcclKind.BROADCAST
        and len(kernel) == len(comm.members)
        and all(call == first._replace(root=root) for root, call in enumerate(kernel))
    )
