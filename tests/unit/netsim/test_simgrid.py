"""Against SimGrid itself: an independent simulator must give the same completion times."""

from __future__ import annotations

from pathlib import Path

import pytest

from netsim import Network, cases

simgrid = pytest.importorskip(
    "simgrid", reason="SimGrid is not installed (pip install simgrid needs a compiler and pybind11 below 3)"
)

CASES = Path(__file__).parent / "cases"


def _simgrid_ns(case: cases.Case) -> list[float]:
    engine = simgrid.Engine(
        ["netsim", "--log=root.thresh:critical", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0"]
    )
    done = [0.0] * len(case.paths)
    zone = engine.netzone_root.add_netzone_full("cases") if hasattr(engine, "netzone_root") else None
    root = zone or simgrid.NetZone.create_full_zone("cases")
    hosts = [root.create_host(f"h{i}", 1e9) for i in range(2 * len(case.paths))]
    links = [root.create_link(link.name, link.gbps * 1e9 / 8).set_latency(0) for link in case.topology.links]
    for i, path in enumerate(case.paths):
        along = [simgrid.LinkInRoute(links[link]) for link in path]
        root.add_route(hosts[2 * i], hosts[2 * i + 1], along, False)
    root.seal()

    def send(i: int) -> None:
        simgrid.this_actor.sleep_for(case.start_ns[i] / 1e9)
        simgrid.Comm.sendto(hosts[2 * i], hosts[2 * i + 1], case.nbytes[i])
        done[i] = simgrid.Engine.clock * 1e9

    for i in range(len(case.paths)):
        simgrid.Actor.create(f"flow{i}", hosts[2 * i], send, i)
    engine.run()
    return done


def test_the_same_completion_times_as_simgrid() -> None:
    case = cases.read(CASES / "tiny_ls4_16.json.gz")
    net = Network(case.topology)
    ours = net.play(net.table(case.paths, case.nbytes, case.start_ns)) / 4096
    for mine, theirs in zip(ours, _simgrid_ns(case), strict=True):
        assert mine == pytest.approx(theirs, abs=1.0, rel=1e-6)
