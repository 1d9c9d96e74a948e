"""Faults that name what the run does not have."""

from __future__ import annotations

import pytest

from emu.contract.folding import Axis, Folding, Mesh
from phantora_async.faults import FaultError, check_deaths, given_faults, parse
from profiles import load_cluster

CLUSTER = load_cluster("dgx-h200")
SERVERS = (8, 8)


def test_what_the_run_has_is_accepted() -> None:
    texts = (
        "gpu 15 at 0.7x",
        "host 1 at 0.5x",
        "link node001/nic3 at 0.5x",
        "link node000/nic3:out down",
        "host 0 at 1x",
    )
    assert tuple(map(str, given_faults(texts, None, SERVERS, CLUSTER))) == texts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu 16 at 0.7x", "there is no rank 16: the run has ranks 0 to 15"),
        ("gpu 16 ecc retry 1ms at 1s", "there is no rank 16"),
        ("loader 16 +1ms every 2 batches", "there is no rank 16"),
        ("gpu 16 dead at 1s", "there is no rank 16"),
        ("node 2 dead at 1s", "there is no server 2"),
        ("nic node000/nic8 dead at 1s", "the network has no link 'node000/nic8'"),
        ("host 2 at 0.5x", "there is no server 2: the run has servers 0 to 1"),
        ("host 2 jitter 5% seed 1", "there is no server 2"),
        ("link node0/nic3 down", "the network has no link 'node0/nic3'; alike: node000/nic3"),
        ("link node000/nic8 flaps every 2s down 1s", "the network has no link 'node000/nic8'; alike: node000/nic"),
    ],
)
def test_what_it_does_not_have_is_named(text: str, said: str) -> None:
    with pytest.raises(FaultError) as caught:
        given_faults((text,), None, SERVERS, CLUSTER)
    assert said in caught.value.message


def test_who_reacts_to_a_death_has_a_process() -> None:
    folding = Folding(Mesh((Axis("dp", 16, True),)), frozenset((0, 15)))
    for text, said in (("gpu 3 dead at 1s", "rank 3 of this"), ("node 1 dead at 1s", "rank 8 of this")):
        with pytest.raises(FaultError, match=said):
            check_deaths([parse(text)], SERVERS, folding, launcher=False)
    check_deaths([parse("gpu 15 dead at 1s"), parse("nic node000/nic2 dead at 1s")], SERVERS, folding, launcher=False)
    with pytest.raises(FaultError, match="not with --launcher"):
        check_deaths([parse("node 1 dead at 1s")], SERVERS, None, launcher=True)


def test_a_host_has_one_jitter() -> None:
    with pytest.raises(FaultError, match="host 1 has two faults of the kind jitter"):
        given_faults(("host 1 jitter 5% seed 1", "host 1 jitter 6% seed 1"), None, SERVERS, CLUSTER)
