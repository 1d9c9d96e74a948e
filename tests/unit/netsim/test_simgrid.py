"""Against SimGrid itself: an independent simulator must give the same completion times."""

from __future__ import annotations

from pathlib import Path

import pytest

from netsim import Network
from netsim.bench import cases
from netsim.units import TICKS_PER_NS

simgrid = pytest.importorskip(
    "simgrid",
    reason="SimGrid is not installed (pip install --no-build-isolation simgrid; needs Boost, g++, pybind11 below 3)",
    exc_type=ImportError,
)

CASES = Path(__file__).parent / "cases"


def _simgrid_ns(case: cases.Case) -> list[float]:
    settings = ("network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "precision/timing:1e-13")
    engine = simgrid.Engine(["netsim", "--log=root.thresh:critical", *(f"--cfg={setting}" for setting in settings)])
    done = [0.0] * len(case.paths)
    zone = engine.netzone_root.add_netzone_full("cases")
    hosts = [zone.add_host(f"h{i}", 1e9) for i in range(2 * len(case.paths))]
    links = [zone.add_link(link.name.replace(":", "-"), link.gbps * 1e9 / 8) for link in case.topology.links]
    for i, path in enumerate(case.paths):
        along = [simgrid.LinkInRoute(links[link]) for link in path]
        zone.add_route(hosts[2 * i], hosts[2 * i + 1], along, False)
    zone.seal()

    def send(i: int) -> None:
        simgrid.this_actor.sleep_for(case.start_ns[i] / 1e9)
        simgrid.Comm.sendto(hosts[2 * i], hosts[2 * i + 1], case.nbytes[i])
        done[i] = engine.clock * 1e9

    for i in range(len(case.paths)):
        hosts[2 * i].add_actor(f"flow{i}", send, i)
    engine.run()
    return done


def test_the_same_completion_times_as_simgrid() -> None:
    case = cases.read(CASES / "tiny_ls4_16.json.gz")
    net = Network(case.topology)
    ours = net.play(net.table(case.paths, case.nbytes, case.start_ns)) / TICKS_PER_NS
    for mine, theirs in zip(ours, _simgrid_ns(case), strict=True):
        assert mine == pytest.approx(theirs, abs=0.01, rel=0)
