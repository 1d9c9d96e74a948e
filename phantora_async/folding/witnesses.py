"""Compares witnesses, ranks that really run although a representative could play them, so that folding is checked.

A witness' op stream is compared with what its representative's would be in its place. What either has sent first waits
for the other. The first difference ends the run; amounts that differ a little are noted. Ranks that are apart for
themselves are compared, too: there a difference is a warning, because scripts log and save on them. Rank 0 is left out:
most scripts do so there. If ranks of a role need only be similar, other work between the same calls is counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.folding import CannotFold, Folding, Mesh
from phantora_async.errors import NotFoldable, Side
from phantora_async.folding.differences import Difference, Launches
from phantora_async.folding.stream_form import OWN_GPU, Form, StreamForm, described
from phantora_async.ingest.call_sites import Site, from_record
from phantora_async.ingest.communicators import Communicators
from phantora_async.ingest.costs import Costs
from phantora_async.virtual_time import Timelines
from profiles import ProfileError, title
from profiles.signature import Copy, Memset, parse

SMALL_BLOCKS_NBYTES = 2 << 20
"""The bytes that PyTorch's caching allocator asks for at a time for small blocks. Peaks that differ by less differ in
control data, such as texts with a rank's number.
"""
SMALL_COPY_NBYTES = 4096
"""The size up to which copies and fills move control data, such as objects that are gathered, whose lengths differ.
They are not compared.
"""
HOST_COPIES = ("h2d", "d2h")
OBJECTS_SHARE = 1 / 8
"""The share of what is copied between host and GPU by which the length of larger objects, such as plans of checkpoints,
may differ: numbers in them have other numbers of digits.
"""
_OWN_AFFAIRS = records.marked("OWN")
"""Records of which no other rank is told. Ranks that are similar may differ in them: a rank that updates more pieces
waits more often.
"""
SHOWN = 3
"""The most kernels that are named."""


@dataclass(slots=True)
class Compared:
    """The comparison of the witnesses with their representatives, for the report."""

    calls: int = 0
    """The number of calls of witnesses that were found equal to their representatives'."""
    host_ns: int = 0
    """The largest difference between the host times before one of them."""
    memory_nbytes: int = 0
    """The largest difference between peaks of allocated memory."""


class _Call(NamedTuple):
    form: Form
    host_ns: int
    """The instant on the rank's clock, without waits."""
    site: int
    """The site of the call, or of the latest one before it that has one."""
    record: Any = None
    """The record; None: it stands for launches."""
    launches: Launches | None = None
    host_waits: int = 0
    """The waits for GPU work before it, if only similar ranks are compared."""
    copied: int = 0
    """The bytes between host and GPU until then, see `_Content`."""


class _Content(NamedTuple):
    """The content of a segment."""

    launches: Launches
    copied: int = 0
    """The bytes between host and GPU that are not among the launches, because ranks of one role may differ in them."""


@dataclass(slots=True)
class _Stream:
    """The calls that one of the two ranks has sent and the other has not yet."""

    form: StreamForm
    similar: bool
    left: deque[_Call] = field(default_factory=deque)
    launched: dict[Form, Launches] = field(default_factory=dict)
    """The launches since the latest call, by stream."""
    host_ns: int = 0
    host_waits: int = 0
    site: int = 0
    copied: int = 0
    agreed: int = 0
    """The part of ``copied`` that has been compared."""

    @property
    def rank(self) -> int:
        return self.form.rank

    def add(self, arrived: Sequence[Any], contents: Mapping[int, _Content]) -> None:
        """Adds records of the rank. Raises CannotFold."""
        for record in arrived:
            self.host_ns += record.host_ns
            if record.kind == records.SEGMENT:
                launches, copied = contents.get(record.content) or _Content(Counter({0: record.launches}))
                self.copied += copied
                if launches:
                    self.launched.setdefault(self.form.stream(record.stream), Counter()).update(launches)
                continue
            form = self.form.of(record)
            if form is None:
                continue
            if self.similar and record.kind in _OWN_AFFAIRS:
                self.host_waits += record.kind == records.HOST_WAIT
                continue
            for stream, launches in sorted(self.launched.items()):
                work = records.SEGMENT, stream, frozenset(launches.items())
                self.left.append(_Call(work, self.host_ns, self.site, launches=launches, copied=self.copied))
            self.launched = {}
            self.site = record.site or self.site
            self.left.append(
                _Call(form, self.host_ns, self.site, record, host_waits=self.host_waits, copied=self.copied)
            )


class Witnesses:
    """Compares all witnesses: ``look`` at all records; then ``check`` raises what was found."""

    def __init__(self, folding: Folding, timelines: Timelines, communicators: Communicators, costs: Costs) -> None:
        self._folding = folding
        self._timelines = timelines
        self._communicators = communicators
        self._costs = costs
        self._pairs: dict[int, list[tuple[_Stream, _Stream]]] = {}
        """For each rank with a process: the streams of a representative and of its witness; the rank is one of the
        two.
        """
        self._sites: dict[tuple[int, int], Site] = {}
        """The call sites by rank and number."""
        self._contents: dict[int, _Content] = {}
        """The contents of segments by their number."""
        self._found: NotFoldable | None = None
        self._differing: set[int] = set()
        """The ranks that are apart for themselves, and were found to differ: they are not compared any more."""
        self._warnings: list[str] = []
        """The warnings on ranks that are apart for themselves."""
        self.compared = Compared()
        self._differences: dict[int, Difference] = {}
        """The differences by rank that is compared, if roles need only be similar."""
        plays = {rank: others for rank, others in folding.mirrored.items() if others}
        for witness in sorted(folding.apart - {0}):
            played_by = folding.witnessed(witness)
            if played_by is None or (played_by not in plays and witness not in folding.witnesses):
                continue
            pair = (
                _Stream(StreamForm(played_by, witness, folding, timelines.gpus, communicators), folding.similar),
                _Stream(StreamForm(witness, witness, folding, timelines.gpus, communicators), folding.similar),
            )
            if folding.similar:
                self._differences[witness] = Difference(witness, played_by)
            for rank in (played_by, witness):
                self._pairs.setdefault(rank, []).append(pair)

    def look(self, rank: int, arrived: Sequence[Any]) -> None:
        """Takes records of a rank, in order. Communicators that they name exist."""
        pairs = self._pairs.get(rank)
        if pairs is None or self._found is not None:
            return
        for record in arrived:
            if record.kind == records.SEGMENT_CONTENT and record.content not in self._contents:
                costs = records.SegmentCost.decode_all(record.payload, 0, record.entries)
                self._contents[record.content] = self._compared(costs)
            elif record.kind == records.SITE and (site := from_record(record)) is not None:
                self._sites[rank, record.number] = site
        for pair in pairs:
            self._take(pair, rank, arrived)
            if pair[1].rank in self._differing:
                for stream in pair:
                    self._pairs[stream.rank] = [other for other in self._pairs[stream.rank] if other is not pair]

    def _take(self, pair: tuple[_Stream, _Stream], rank: int, arrived: Sequence[Any]) -> None:
        expected, own = pair
        try:
            (own if own.rank == rank else expected).add(arrived, self._contents)
        except CannotFold as error:
            if own.rank in self._folding.witnesses:
                self._found = NotFoldable.of(error, f"rank {own.rank} cannot be played by rank {expected.rank}")
            else:
                self._differing.add(own.rank)
            return
        self._compare(expected, own)

    def _compared(self, costs: Sequence[records.SegmentCost]) -> _Content:
        """The content of a segment without what moves control data."""
        launches: Launches = Counter()
        copied = 0
        for one in costs:
            what = self._copy(one.key)
            if what is None or (what.nbytes > SMALL_COPY_NBYTES and self._folding.similar):
                launches[one.key] += one.launches
            elif isinstance(what, Copy) and what.direction in HOST_COPIES:
                copied += what.nbytes * one.launches
            elif what.nbytes > SMALL_COPY_NBYTES:
                launches[one.key] += one.launches
        return _Content(launches, copied)

    def _copy(self, key: int) -> Copy | Memset | None:
        if key not in self._costs.known:
            return None
        try:
            what = parse(self._costs.known[key].signature)
        except ProfileError:
            return None
        return what if isinstance(what, Copy | Memset) else None

    def check(self) -> None:
        """Raises NotFoldable if a witness does something else than its representative."""
        if self._found is not None:
            raise self._found

    def document(self) -> dict[str, Any]:
        """The part of the report: who has a process, and how far witnesses are from their representatives."""
        folding, compared = self._folding, self.compared
        world_size, live = folding.mesh.world_size, len(folding.live)
        return {
            "mesh": str(folding.mesh),
            "ranks": world_size,
            "processes": live,
            "representatives": live - len(folding.apart),
            "apart": sorted(folding.apart - folding.witnesses),
            "witnesses": sorted(folding.witnesses),
            "mirrored": world_size - live,
            "timelines": len(self._timelines.own),
            "compared_calls": compared.calls,
            "host_apart_ns": compared.host_ns,
            "memory_apart_nbytes": compared.memory_nbytes,
            "differences": [one.document() for one in self._differences.values()],
            "warnings": list(self._warnings),
        }

    def _compare(self, expected: _Stream, own: _Stream) -> None:
        is_witness = own.rank in self._folding.witnesses
        difference = self._differences.get(own.rank)
        while expected.left and own.left:
            if difference is not None and self._work_is_counted(expected, own, difference):
                continue
            theirs, its = expected.left.popleft(), own.left.popleft()
            alike = theirs.form == its.form and _copies_agree(expected, theirs, own, its)
            if alike and self._amounts_agree(theirs, its, is_witness, difference):
                continue
            sides = self._sides((expected, theirs), (own, its))
            if is_witness and (finer := self._with_gpu_apart(theirs.form, its.form)) is not None:
                self._found = NotFoldable(
                    f"rank {own.rank} uses its own GPU where rank {expected.rank} uses another one of its server, so "
                    "ranks of one role differ",
                    sides=sides,
                )
                self._found.finer = str(finer)
            elif is_witness:
                role = self._folding.mesh.role_name(own.rank)
                self._found = NotFoldable(
                    f"rank {own.rank} is a witness, and does not do what rank {expected.rank} does, which would play it"
                    f"{f' ({role})' if role else ''}: ranks of one role differ, so this mesh cannot be folded",
                    sides=sides,
                    details="to fold parts of an axis, in each of which ranks are alike: --fold dp=100+28; "
                    "to fold ranks that launch other kernels, and be told how far they are apart: "
                    "--roles similar; to fold as if mirrored ranks did what their representative does: --witnesses 0",
                )
            else:
                self._differing.add(own.rank)
                self._warnings.append(self._warning(*sides))
            return

    def _with_gpu_apart(self, form: Form, other: Form) -> Mesh | None:
        """The mesh that tells apart the ranks whose own GPU a call uses, if two calls differ in nothing else; None if
        they do. A thread that chooses no GPU uses the first one of its server, which is some ranks' own.
        """
        sides = [*_flat(form)], [*_flat(other)]
        apart = [pair for pair in zip(*sides, strict=False) if pair[0] != pair[1]]
        numbers = {one for pair in apart for one in pair} - {OWN_GPU}
        if len(sides[0]) != len(sides[1]) or len(numbers) != 1 or not all(OWN_GPU in pair for pair in apart):
            return None
        (gpu,) = numbers
        mesh = self._folding.mesh
        finer = mesh.told_apart([one == gpu for one in self._timelines.gpus])
        return None if finer == mesh else finer

    def _work_is_counted(self, expected: _Stream, own: _Stream, difference: Difference) -> bool:
        """Takes the work that one of them has launched before their next call, and the work that the other has on that
        stream.
        """
        heads = [stream.left[0].form for stream in (expected, own)]
        work = [form for form in heads if form[0] == records.SEGMENT]
        if not work:
            return False
        on_stream = min(form[1] for form in work)
        played, launched = (
            stream.left.popleft().launches or Counter() if form[:2] == (records.SEGMENT, on_stream) else Counter()
            for stream, form in zip((expected, own), heads, strict=True)
        )
        difference.add(launched, played, self._costs.known)
        return True

    def _amounts_agree(self, theirs: _Call, its: _Call, is_witness: bool, difference: Difference | None) -> bool:
        apart_nbytes = 0
        if theirs.record is not None and theirs.record.kind == records.MEMORY:
            apart_nbytes = abs(theirs.record.allocated_peak - its.record.allocated_peak)
        if is_witness:
            self.compared.calls += 1
            self.compared.host_ns = max(self.compared.host_ns, abs(theirs.host_ns - its.host_ns))
            self.compared.memory_nbytes = max(self.compared.memory_nbytes, apart_nbytes)
        if difference is not None:
            difference.host_waits, difference.played_host_waits = its.host_waits, theirs.host_waits
            difference.add_amounts(abs(theirs.host_ns - its.host_ns), apart_nbytes)
            return True
        return apart_nbytes < SMALL_BLOCKS_NBYTES

    def _warning(self, theirs: Side, own: Side) -> str:
        texts = []
        for side in (own, theirs):
            (rank,), (number,) = side.ranks, side.sites
            site = self._sites.get((rank, number))
            texts.append(f"rank {rank} {side.call}{f' at {site}' if site else ''}")
        return (
            f"{texts[0]}, but {texts[1]}. Rank {own.ranks[0]} is apart and plays nobody; unless only such ranks do "
            "this (logging, saving), mirrored ranks may differ, too"
        )

    def _sides(self, expected: tuple[_Stream, _Call], own: tuple[_Stream, _Call]) -> tuple[Side, Side]:
        (played_by, witness), (theirs, its) = (expected[0].rank, own[0].rank), (expected[1], own[1])
        texts = [self._described(*expected, its), self._described(*own, theirs)]
        if texts[0] == texts[1]:
            texts = [
                f"{text}, after {call.copied - stream.agreed:,} bytes between host and GPU"
                for text, (stream, call) in zip(texts, (expected, own), strict=True)
            ]
        if texts[0] == texts[1]:
            texts = [f"{text}, as call {call.form[1:]}" for text, call in zip(texts, (theirs, its), strict=True)]
        return Side(texts[0], (played_by,), (theirs.site,)), Side(texts[1], (witness,), (its.site,))

    def _described(self, stream: _Stream, call: _Call, other: _Call) -> str:
        rank = stream.rank
        if call.record is None:
            sites = (self._sites.get((rank, later.record.site)) for later in stream.left if later.record is not None)
            site = next(filter(None, sites), None)
            text = f"launches {', '.join(self._titles(call.launches or Counter(), other.launches or Counter()))}"
            return f"{text}{f' before {site}' if site else ''}; the latest call before"
        if call.record.kind == records.MEMORY:
            return f"has a peak of {call.record.allocated_peak:,} bytes of allocated memory"
        text = described(rank, call.record, self._communicators)
        return text if other.record is not None else f"{text}, without launching this"

    def _titles(self, launches: Launches, others: Launches) -> Iterator[str]:
        """Yields the work of which it has more than the other."""
        more = launches - others
        known = self._costs.known
        for key, count in sorted(more.items())[:SHOWN]:
            what = title(known[key].signature) if key in known else "work of the host"
            yield f"{count:,} x {what}"
        if len(more) > SHOWN:
            yield f"{len(more) - SHOWN:,} others"
        if not more:
            yield "no such work"


def _copies_agree(expected: _Stream, theirs: _Call, own: _Stream, its: _Call) -> bool:
    """Returns true if both have copied as much between host and GPU since the call before, except for objects of other
    lengths.
    """
    one, other = theirs.copied - expected.agreed, its.copied - own.agreed
    if abs(one - other) > max(SMALL_COPY_NBYTES, OBJECTS_SHARE * max(one, other)):
        return False
    expected.agreed, own.agreed = theirs.copied, its.copied
    return True


def _flat(form: Any) -> Iterator[Any]:
    """Yields the parts of a call's form, without tuples in it."""
    if isinstance(form, tuple):
        for part in form:
            yield from _flat(part)
    else:
        yield form
