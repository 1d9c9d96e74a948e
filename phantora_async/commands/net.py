"""Simulate a trace of network flows on a described network, without a training script."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from formats.toml import read_toml
from netsim import NetsimError, SpecError, Topology, build, load
from netsim.collectives import load_params, settings
from netsim.tools import picture, stats, trace, trace_files
from netsim.topology import EVERYTHING, TrafficRules, astra_sim
from phantora_async.errors import NotWritten, UsageError
from profiles import ProfileError, load_network

USAGE = "phantora-async net --network FILE --flows FILE [--servers N] [--json] [--plot FILE]"
MOST_LINES = 20
TELL_S = 5.0
MOST_BINS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument(
        "--network",
        type=Path,
        required=True,
        metavar="FILE",
        help="network description: TOML with a [network] table, a cluster's name, or YAML of ASTRA-sim's analytical "
        "network",
    )
    parser.add_argument(
        "--flows",
        type=Path,
        required=True,
        metavar="FILE",
        help="flow trace in CSV or JSON; docs/data/network-traces.md describes it",
    )
    parser.add_argument("--servers", type=int, default=1, metavar="N", help="number of servers (default: 1)")
    parser.add_argument(
        "--gpu",
        default="hopper",
        metavar="GENERATION",
        help="GPU generation whose NCCL parameters collectives use (default: hopper)",
    )
    parser.add_argument("--json", action="store_true", help="print completion times and statistics as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw a heat map of link utilisation (png, svg or pdf)"
    )
    parser.add_argument(
        "--bins",
        type=int,
        default=100,
        metavar="N",
        help="number of intervals into which statistics divide time (default: 100)",
    )


class Progress:
    """Tells on stderr how far a long simulation is, every few seconds of real time."""

    def __init__(self) -> None:
        self._began_s = self._told_s = time.monotonic()

    def __call__(self, done: int, flows: int) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < TELL_S:
            return
        self._told_s = now_s
        took_s = now_s - self._began_s
        left_s = took_s * (flows - done) / max(1, done)
        print(
            f"{done:,} of {flows:,} flows simulated in {took_s:.0f} s; about {left_s:.0f} s left if others are alike",
            file=sys.stderr,
            flush=True,
        )


def run(given: argparse.Namespace) -> int:
    """Objects of a trace form no garbage cycles: looking for them would take a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return _run(given)
    finally:
        if collects:
            gc.enable()


def _run(given: argparse.Namespace) -> int:
    if not 1 <= given.bins <= MOST_BINS:
        raise UsageError(f"--bins {given.bins}: expected 1 to {MOST_BINS:,}")
    try:
        topology = _topology(given)
        nccl = settings.read(os.environ, topology.server.nics)
        topology = _topology(given, nccl.settings.traffic_rules(topology.server.nics))
        flows = trace_files.read(given.flows, topology)
        net, done = trace.run(flows, topology, load_params(given.gpu), nccl.settings, Progress())
        statistics = stats.take(net, bins=given.bins)
    except (NetsimError, ProfileError, OSError) as error:
        raise UsageError(str(error)) from None
    try:
        if given.plot:
            picture.heat_map(statistics, given.plot)
    except NetsimError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise NotWritten(f"cannot write {error.filename or given.plot}: {error.strerror}") from None
    for remark in nccl.remarks:
        print(f"phantora-async: NCCL's environment: {remark}", file=sys.stderr)
    if given.json:
        print(json.dumps(_document(topology, done, statistics), indent=1))
    else:
        _show(done, statistics)
    return 0


def _topology(given: argparse.Namespace, rules: TrafficRules = EVERYTHING) -> Topology:
    if given.network.suffix.lower() in (".yml", ".yaml"):
        return astra_sim.from_yaml(given.network)
    if _needs_profiles(given.network):
        return build(load_network(given.network), given.servers, rules)
    return load(given.network, given.servers, rules)


def _needs_profiles(network: Path) -> bool:
    """A shipped cluster's name, or a file that is based on another one."""
    if not network.is_file():
        return not network.suffix
    return "base" in read_toml(network, SpecError)[1]


def _document(topology: Topology, done: dict[str, int | None], statistics: stats.Statistics) -> dict[str, Any]:
    return {"network": topology.describe(), "completion_ns": done, "statistics": statistics.json()}


def _show(done: dict[str, int | None], statistics: stats.Statistics) -> None:
    ended = [at_ns for at_ns in done.values() if at_ns is not None]
    print(f"{len(done)} entries, {len(done) - len(ended)} of them stall; all done at {max(ended, default=0)} ns")
    for key, at_ns in list(done.items())[:MOST_LINES]:
        print(f"  {key:24} {'stalls' if at_ns is None else f'{at_ns} ns'}")
    if len(done) > MOST_LINES:
        print(f"  ... {len(done) - MOST_LINES} more: --json")
    print(f"{'link':32} {'Gb/s':>8} {'MB':>12} {'mean':>6} {'peak':>6} {'flows':>6}")
    for link in sorted(statistics.links, key=lambda link: (-link.utilisation, link.name))[:MOST_LINES]:
        print(
            f"{link.name:32} {link.gbps:8.0f} {link.nbytes / 1e6:12.3f} {link.utilisation:6.1%} "
            f"{link.peak_utilisation:6.1%} {link.peak_flows:6}"
        )
