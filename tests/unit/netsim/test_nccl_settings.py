"""NCCL's environment variables: what is read, what is refused, and what changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import netsim
from netsim import SpecError, Topology
from netsim.collectives import NcclSettings, Plan, load_params, plan
from netsim.collectives.settings import read

HOPPER = load_params("hopper")
DGX = Path(__file__).parents[3] / "profiles" / "clusters" / "dgx-h100.toml"


def _set(**variables: str) -> NcclSettings:
    found = read({f"NCCL_{name}": value for name, value in variables.items()}, nics=8)
    assert not found.remarks
    return found.settings


def _topology(servers: int, settings: NcclSettings) -> Topology:
    return netsim.load(DGX, servers, settings.traffic_rules(8))


def _plan(op: str, nbytes: int, settings: NcclSettings, servers: int = 1) -> Plan:
    topology = _topology(servers, settings)
    return plan(op, nbytes, range(8 * servers), topology, HOPPER, settings=settings)


def _names(topology: Topology, a: int, b: int) -> list[str]:
    return [topology.links[link].name for link in topology.route(a, b)]


def test_without_variables_the_settings_are_nccls() -> None:
    assert read({"PATH": "/bin", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0"}).settings == NcclSettings()


@pytest.mark.parametrize(
    ("value", "algorithm"),
    [("Tree", "tree"), ("ring", "ring"), ("^NVLS", "ring"), ("NVLS;allreduce:ring,tree", "ring"), ("NVLS", "nvls")],
)
def test_algorithms(value: str, algorithm: str) -> None:
    settings = read({"NCCL_ALGO": value}).settings
    assert _plan("all_reduce", 64 << 20, settings).algorithm == algorithm


@pytest.mark.parametrize(
    ("value", "protocol"),
    [("LL", "ll"), ("^Simple,LL", "ll128"), ("LL;AllReduce:LL128", "ll128"), ("simple", "simple")],
)
def test_protocols(value: str, protocol: str) -> None:
    assert _plan("all_reduce", 1 << 20, _set(PROTO=value, NVLS_ENABLE="0")).protocol == protocol


def test_channels() -> None:
    plain = _plan("all_reduce", 256 << 20, _set(NVLS_ENABLE="0"))
    few = _plan("all_reduce", 256 << 20, _set(NVLS_ENABLE="0", MAX_NCHANNELS="8"))
    assert (plain.channels, few.channels) == (24, 8)
    assert few.groups[0].cap_gbps < 0.7 * plain.groups[0].cap_gbps
    assert _plan("all_reduce", 256 << 20, _set(NVLS_ENABLE="0", MIN_CTAS="32")).channels == 32
    assert _set(MAX_CTAS="4", MAX_NCHANNELS="16").max_channels == 4


def test_a_smaller_buffer_makes_more_chunks_of_a_send() -> None:
    def time_ns(settings: NcclSettings) -> float:
        topology = _topology(1, settings)
        made = plan("send_recv", 16 << 20, (0, 1), topology, HOPPER, ranks=4, settings=settings)
        return made.latency_ns + 8 * made.groups[0].nbytes / made.groups[0].cap_gbps

    assert time_ns(_set(BUFFSIZE="1048576")) > 1.05 * time_ns(_set())


def test_without_peer_to_peer_data_goes_through_the_host() -> None:
    settings = _set(P2P_DISABLE="1")
    assert _names(_topology(1, settings), 0, 1) == ["node000/gpu0:pcie-out", "node000/gpu1:pcie-in"]
    assert read({"NCCL_P2P_LEVEL": "LOC"}).settings.p2p is False
    assert _plan("all_reduce", 64 << 20, settings).algorithm != "nvls"


def test_nics_and_the_way_to_them() -> None:
    assert "node000/nic2:out" in _names(_topology(2, _set(IB_HCA="mlx5_2,mlx5_3")), 0, 8)
    assert _set(IB_HCA="^=mlx5_0").usable_nics(8) == (1, 2, 3, 4, 5, 6, 7)
    assert _set(IB_HCA="=mlx5_1:1").usable_nics(12) == (1,)
    half = _plan("all_gather", 1 << 30, _set(IB_HCA="mlx5_0,mlx5_1,mlx5_2,mlx5_3"), servers=2)
    assert half.groups[0].cap_gbps < 0.6 * _plan("all_gather", 1 << 30, _set(), servers=2).groups[0].cap_gbps
    across = _names(_topology(2, _set(CROSS_NIC="1")), 0, 9)
    assert across[:2] == ["node000/gpu0:pcie-out", "node000/nic0:out"]
    assert "node001/nic1:in" in across
    assert _names(_topology(2, _set(PXN_DISABLE="1")), 0, 9)[:2] == ["node000/gpu0:pcie-out", "node000/nic1:out"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_ALGO", "rings", "NCCL_ALGO=rings: 'rings' is not one of tree, ring"),
        ("NCCL_ALGO", "allgatherv:ring", "'allgatherv' is not one of broadcast"),
        ("NCCL_PROTO", "LL;LL128", "only the first list can be without a function"),
        ("NCCL_BUFFSIZE", "4M", "NCCL_BUFFSIZE=4M: expected a whole number"),
    ],
)
def test_values_that_nccl_refuses(name: str, value: str, words: str) -> None:
    with pytest.raises(SpecError, match="NCCL_") as caught:
        read({name: value})
    assert words in str(caught.value)


def test_what_is_not_simulated_is_named() -> None:
    found = read({"NCCL_SHM_DISABLE": "1", "NCCL_IB_HCA": "bond0", "NCCL_NO_SUCH_THING": "1"}, nics=8)
    assert found.remarks == (
        "NCCL_IB_HCA=bond0 has no effect: the simulated NICs are called mlx5_0 to mlx5_7, and all are used",
        "not simulated, without effect: NCCL_NO_SUCH_THING, NCCL_SHM_DISABLE",
    )
    assert not read({"NCCL_VERSION": "2.27.3-1"}).remarks, "images of containers say so which package they hold"
    (remark,) = read({"NCCL_ALGO": "allgather:tree"}).remarks
    assert "NCCL_ALGO leaves no algorithm for all_gather" in remark
