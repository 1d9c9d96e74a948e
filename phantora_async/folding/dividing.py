"""Divides roles by what a script's text says of its ranks: ranks to which it gives other tasks are not played by ranks
of another task.

Few single ranks get a process each. Others, such as one GPU of each server, become parts or turns of an axis. Where the
text does not say which ranks differ, all that can are told apart if these are few; else a sample is, and the user is
told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from emu.contract.folding import Mesh
from phantora_async.errors import UsageError
from phantora_async.folding.script_values import COORDINATE, LOCAL_RANK, SERVER, Each, Ranks
from phantora_async.folding.told_apart import Told
from phantora_async.wording import compact, named

MOST_APART = 8
"""The most ranks of one place of the text that get a process of their own. A script that names more does not mean
single ranks.
"""
MOST_MORE_ROLES = 32
"""The most roles that are added for one place of the text."""
MOST_WITNESSES = 8
SHOWN = 3
"""The places of the text that a remark names."""


class Divided(NamedTuple):
    mesh: Mesh
    apart: frozenset[int]
    """The single ranks to which the text gives another task."""
    witnesses: frozenset[int] = frozenset()
    """A sample of the ranks that the text may tell apart."""
    remarks: tuple[str, ...] = ()


class _Division:
    def __init__(self, mesh: Mesh, ranks: Ranks, apart: Iterable[int], may_be_apart: bool = True) -> None:
        self.mesh = mesh
        self.ranks = ranks
        self.apart = frozenset(apart)
        self.may_be_apart = may_be_apart
        self.own: set[int] = set()
        """The ranks that get a process because of the text."""
        self.own_sites: list[str] = []
        self.part_sites: list[str] = []
        self.untold_sites: list[str] = []
        """The places of the text where all ranks that may differ were told apart."""
        self.unknown: list[str] = []
        """The places where that is not possible."""
        self.witnesses: set[int] = set()
        self.played: dict[int, list[str]] = {}
        """The single ranks that are played although the text gives them another task, by the user's will, each with the
        places of the text.
        """

    def single_ranks(self, kinds: Each) -> frozenset[int]:
        """The ranks that do not do what most ranks do."""
        ((most, _),) = Counter(kinds).most_common(1)
        return frozenset(rank for rank, kind in enumerate(kinds) if kind != most)

    def add(self, site: str, kinds: Each, may_be_apart: bool, sites: list[str]) -> bool:
        """Tells ranks of these kinds apart. Returns false if that would make too many roles."""
        finer = self.mesh.told_apart(kinds)
        more = finer.roles - self.mesh.roles
        if not more:
            return True
        single = self.single_ranks(kinds)
        if single <= self.apart | self.own:
            return True
        if may_be_apart and len(single) <= min(more, MOST_APART):
            self.own |= single - self.apart
            self.own_sites.append(site)
            return True
        if not may_be_apart and len(single) == 1:
            # The user has said which ranks are apart: rank 0, which logs, is not among them with "none". It plays the
            # others of its role, so a witness shows whether these differ; of a rank that is played nobody sees it.
            (rank,) = single
            if self.mesh.role(rank) != rank:
                self.played.setdefault(rank, []).append(site)
            return True
        if more > MOST_MORE_ROLES:
            return False
        self.mesh = finer
        sites.append(site)
        return True

    def add_untold(self, told: Told, is_checked: bool) -> None:
        """Adds a place of the text where it is known on what the task depends, but not how."""
        known = [place for place in (LOCAL_RANK, SERVER, COORDINATE) if place in told.depends_on]
        all_known = is_checked and len(known) == len(told.depends_on)
        for place in known if is_checked else ():
            kinds = self.ranks.place(place)
            finer = self.mesh.told_apart(kinds)
            if finer.roles - self.mesh.roles <= MOST_MORE_ROLES:
                if finer != self.mesh:
                    self.untold_sites.append(told.site)
                self.mesh = finer
            elif place == COORDINATE and self.may_be_apart:
                raise UsageError(
                    f"--fold: what ranks do at {told.site} depends on get_coordinate() of a mesh that the text does "
                    f"not tell, and {sum(self.ranks.servers):,} ranks are too many to tell them all apart",
                    "make the mesh by init_device_mesh with the sizes that --fold has, in numbers, ask for an axis by "
                    "its name (get_local_rank('tp')), or name the ranks with another task: --fold-apart 0,8",
                )
            else:
                all_known = False
                self.witnesses |= self._sample(kinds)
        if not all_known:
            self.unknown.append(told.site)

    def _sample(self, kinds: Each) -> set[int]:
        """The first rank of some of the kinds: of the second and the last one, and of others between them."""
        first = sorted({kind: rank for rank, kind in reversed([*enumerate(kinds)])}.values())[1:]
        step = max(1, (len(first) - 1) / (MOST_WITNESSES - 1))
        return {first[min(round(at * step), len(first) - 1)] for at in range(min(MOST_WITNESSES, len(first)))}

    def remarks(self) -> list[str]:
        texts = []
        if self.own:
            have, them = ("has", "it") if len(self.own) == 1 else ("have", "them")
            texts.append(
                f"{named(self.own)} {have} a process, because the script gives {them} another task "
                f"({_shown(self.own_sites)})"
            )
        if self.part_sites:
            texts.append(f"{self.mesh}, because ranks of one role differ in the script ({_shown(self.part_sites)})")
        for rank, sites in sorted(self.played.items()):
            texts.append(
                f"warning: the script gives rank {rank} another task ({_shown(sites)}), but it is played as the others "
                f"of its role are, because --fold-apart does not name it: --fold-apart {rank}"
            )
        if self.untold_sites:
            texts.append(
                f"{self.mesh}, because the script may tell such ranks apart; its text does not tell which "
                f"({_shown(self.untold_sites)})"
            )
        if self.unknown:
            texts.append(
                f"warning: what ranks do at {_shown(self.unknown)} depends on their place in a way that the text does "
                "not tell: only witnesses show whether ranks of one role differ there (--witnesses N)"
            )
        return [f"--fold: {text}" for text in texts]


def divided(
    mesh: Mesh, told: Sequence[Told], ranks: Ranks, apart: Iterable[int], may_be_apart: bool, is_checked: bool
) -> Divided:
    """Divides the mesh by these places of the text. `apart`: ranks that have a process anyway. `may_be_apart`: single
    ranks may get one. `is_checked`: where the text leaves open which ranks differ, processes are spent on it.
    """
    division = _Division(mesh, ranks, apart, may_be_apart)
    done: set[Each] = set()
    for one in told:
        if one.kinds is None:
            division.add_untold(one, is_checked)
        elif one.kinds not in done:
            done.add(one.kinds)
            if not division.add(one.site, one.kinds, may_be_apart, division.part_sites):
                division.add_untold(one, is_checked)
    return Divided(division.mesh, frozenset(division.own), frozenset(division.witnesses), tuple(division.remarks()))


def _shown(sites: Sequence[str]) -> str:
    """The sites as text: ``train.py:12, 30 and model.py:7``, or the first ones."""
    unique = list(dict.fromkeys(sites))
    by_file: dict[str, list[int]] = {}
    for site in unique[:SHOWN]:
        name, _, line = site.rpartition(":")
        by_file.setdefault(name, []).append(int(line))
    text = " and ".join(f"{name}:{compact(lines)}" for name, lines in by_file.items())
    return text + (f" and {len(unique) - SHOWN} more" if len(unique) > SHOWN else "")
