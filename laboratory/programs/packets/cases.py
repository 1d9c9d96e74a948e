"""Fifty cases of congestion: completion times of a packet simulator (packets.cpp), kept, and netsim's beside them.

    python laboratory/programs/packets/cases.py make    # compiles and runs the packet simulator, writes the rows
    python laboratory/programs/packets/cases.py compare # netsim on the kept cases: a table of errors

Each case runs twice: on Ethernet with DCQCN and priority flow control, and with flow control alone, as credits of
InfiniBand do it. Every flow takes the route that netsim gives it, so that only queues and rates differ.
"""

import argparse
import gzip
import json
import random
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from netsim.simulation.groups import Group
from netsim.simulation.network import Network
from netsim.topology import graph

HERE = Path(__file__).resolve().parent
ROWS = HERE.parents[1] / "rows" / "packets.jsonl.gz"
GBPS, LATENCY_NS = 400.0, 500
PAYLOAD, HEADER = 4096, 82
"""Bytes of a RoCEv2 packet and of its headers, preamble and gap, as cards of training clusters are set."""
BUFFER = 128_000_000
"""The HPCC paper's buffer (16 MB for hosts of 50 Gb/s), scaled with the hosts' rate."""
KB, MB = 1 << 10, 1 << 20


def star(hosts):
    return {"hosts": hosts, "per_leaf": hosts, "spines": 0}


def leaf_spine(hosts, per_leaf=8, spines=8):
    return {"hosts": hosts, "per_leaf": per_leaf, "spines": spines}


def cables(spec):
    found = [(f"h{host}", f"l{host // spec['per_leaf']}") for host in range(spec["hosts"])]
    leaves = -(-spec["hosts"] // spec["per_leaf"])
    return found + [(f"l{leaf}", f"s{spine}") for leaf in range(leaves) for spine in range(spec["spines"])]


def incast(senders, nbytes):
    return star(senders + 1), [(sender + 1, 0, nbytes, 0) for sender in range(senders)]


def all_to_all(topology, size):
    """`size`: of a pair of hosts."""
    hosts = topology["hosts"]
    pairs = [(a, (a + by) % hosts) for by in range(1, hosts) for a in range(hosts)]
    return topology, [(a, b, size(), 0) for a, b in pairs]


def uneven(mean, seed):
    """Sizes of a mixture of experts: 0.2 to 1.8 times the mean."""
    draw = random.Random(seed)
    return lambda: int(mean * draw.uniform(0.2, 1.8))


def permutation(topology, nbytes, seed):
    """Each host sends to one of another leaf: routes collide."""
    draw, hosts, leaf = random.Random(seed), topology["hosts"], topology["per_leaf"]
    while True:
        to = draw.sample(range(hosts), hosts)
        if all(a // leaf != b // leaf for a, b in enumerate(to)):
            return topology, [(a, b, nbytes, 0) for a, b in enumerate(to)]


def ring(topology, nbytes):
    hosts = topology["hosts"]
    return topology, [(a, (a + topology["per_leaf"]) % hosts, nbytes, 0) for a in range(hosts)]


def victims(senders, nbytes, seed):
    """An incast into host 0 from another leaf, and flows beside it that share links but not its destination."""
    topology = leaf_spine(16)
    flows = [(8 + sender, 0, nbytes, 0) for sender in range(senders)]
    return topology, flows + [(8 + sender, 1 + sender % 7, nbytes, 0) for sender in range(8)]


def beside(topology, long_nbytes, short_nbytes, every_ns):
    """Long flows into one host, and short ones into it that start while queues are there."""
    flows = [(sender, 0, long_nbytes, 0) for sender in (1, 2, 3)]
    return topology, flows + [(4 + i % 4, 0, short_nbytes, every_ns * (i + 1)) for i in range(16)]


def poisson(load, seed, flows=500):
    """Random pairs, sizes from 1 KiB to 4 MiB (log-uniform), at a load of the hosts' links."""
    draw, topology, now, found = random.Random(seed), leaf_spine(16), 0.0, []
    mean = (4 * MB - KB) / (12 * 0.6931471805599453)  # of a log-uniform size
    gap_ns = mean / (GBPS / 8) / load / topology["hosts"]
    for _ in range(flows):
        now += draw.expovariate(1 / gap_ns)
        a, b = draw.sample(range(topology["hosts"]), 2)
        found.append((a, b, int(KB * 2 ** draw.uniform(0, 12)), int(now)))
    return topology, found


CASES = {
    "incast-2-1M": incast(2, MB),
    "incast-4-1M": incast(4, MB),
    "incast-8-64K": incast(8, 64 * KB),
    "incast-8-1M": incast(8, MB),
    "incast-8-8M": incast(8, 8 * MB),
    "incast-16-1M": incast(16, MB),
    "incast-31-256K": incast(31, 256 * KB),
    "all-to-all-16-16K": all_to_all(leaf_spine(16), lambda: 16 * KB),
    "all-to-all-16-256K": all_to_all(leaf_spine(16), lambda: 256 * KB),
    "all-to-all-16-1M": all_to_all(leaf_spine(16), lambda: MB),
    "all-to-all-32-64K": all_to_all(leaf_spine(32), lambda: 64 * KB),
    "all-to-all-star-16-256K": all_to_all(star(16), lambda: 256 * KB),
    "experts-16-256K": all_to_all(leaf_spine(16), uneven(256 * KB, 1)),
    "experts-32-64K": all_to_all(leaf_spine(32), uneven(64 * KB, 2)),
    "permutation-32-1M": permutation(leaf_spine(32), MB, 3),
    "permutation-32-8M": permutation(leaf_spine(32), 8 * MB, 4),
    "ring-32-8M": ring(leaf_spine(32), 8 * MB),
    "victims-3-1M": victims(3, MB, 5),
    "victims-8-4M": victims(8, 4 * MB, 6),
    "oversubscribed-4-permutation-4M": permutation(leaf_spine(32, spines=2), 4 * MB, 7),
    "oversubscribed-4-all-to-all-256K": all_to_all(leaf_spine(16, spines=2), lambda: 256 * KB),
    "beside-4M-16K": beside(star(8), 4 * MB, 16 * KB, 10_000),
    "poisson-0.3": poisson(0.3, 8),
    "poisson-0.6": poisson(0.6, 9),
    "poisson-0.8": poisson(0.8, 10),
}


def links_of(spec):
    """Directed links in the order of both simulators: each cable, then its reverse."""
    return [end for a, b in cables(spec) for end in ((a, b), (b, a))]


def topology_of(spec, share=1.0):
    hosts = [f"h{host}" for host in range(spec["hosts"])]
    return graph.build(hosts, [(a, b, GBPS * share, LATENCY_NS) for a, b in links_of(spec)])


def packets(program, spec, flows, dcqcn):
    """When the last byte of each flow arrives, in ns, and the processor seconds that it took."""
    topology, ends = topology_of(spec), links_of(spec)
    numbers = {}
    for end in ends:
        for node in end:
            numbers.setdefault(node, len(numbers))
    lines = [f"{PAYLOAD} {HEADER} {BUFFER} {int(dcqcn)} {len(ends)}"]
    lines += [f"{numbers[a]} {numbers[b]} {GBPS} {LATENCY_NS}" for a, b in ends]
    lines.append(str(len(flows)))
    for a, b, nbytes, start_ns in flows:
        path = topology.route(a, b)
        lines.append(f"{nbytes} {start_ns} {len(path)} {' '.join(map(str, path))}")
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [int(line) / 1000 for line in done.stdout.split()], resource.getrusage(
        resource.RUSAGE_CHILDREN
    ).ru_utime - began


def fluid(spec, flows):
    """The same of netsim, whose links carry the payload's share of their rate."""
    topology = topology_of(spec, PAYLOAD / (PAYLOAD + HEADER))
    network, began = Network(topology), time.process_time()
    added = []
    for number, (a, b, nbytes, start_ns) in enumerate(flows):
        path = topology.route(a, b)
        group = Group(nbytes, tuple((link, 1) for link in path), latency_ns=LATENCY_NS * len(path))
        added.append(network.add(group, start_ns, number).flow)
    network.advance(10**12)
    return [network.completion_ns(flow) for flow in added], time.process_time() - began


def make():
    with tempfile.TemporaryDirectory() as folder, gzip.open(ROWS, "wt") as out:
        program = f"{folder}/packets"
        subprocess.run(["g++", "-O2", "-std=c++17", "-o", program, HERE / "packets.cpp"], check=True)
        for name, (spec, flows) in CASES.items():
            for dcqcn in (True, False):
                done_ns, took_s = packets(program, spec, flows, dcqcn)
                row = {"case": name, "dcqcn": dcqcn, "done_ns": done_ns, "took_s": round(took_s, 3)}
                out.write(json.dumps(row) + "\n")
                print(
                    f"{name} {'dcqcn' if dcqcn else 'lossless'}: {max(done_ns) / 1e3:.1f} us, {took_s:.1f} s",
                    flush=True,
                )


def compare():
    print("| case | flows | DCQCN: mean | worst | last one | flow control alone: mean | worst | last one |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    kept = [json.loads(line) for line in gzip.open(ROWS, "rt")]
    errors, spent = {True: [], False: []}, {"netsim": 0.0, "packets": 0.0}
    for name, (spec, flows) in CASES.items():
        ours, took_s = fluid(spec, flows)
        spent["netsim"] += took_s
        cells = [name, str(len(flows))]
        for dcqcn in (True, False):
            row = next(one for one in kept if (one["case"], one["dcqcn"]) == (name, dcqcn))
            theirs, spent["packets"] = row["done_ns"], spent["packets"] + row["took_s"] / 2
            off = [
                abs((us - start) / (them - start) - 1)
                for us, them, (_, _, _, start) in zip(ours, theirs, flows, strict=True)
            ]
            last = max(ours) / max(theirs) - 1
            errors[dcqcn].append((sum(off) / len(off), max(off), abs(last)))
            cells += [f"{sum(off) / len(off):.1%}", f"{max(off):.1%}", f"{last:+.1%}"]
        print(f"| {' | '.join(cells)} |")
    for dcqcn, found in errors.items():
        means, worst, last = zip(*found, strict=True)
        print(
            f"{'DCQCN' if dcqcn else 'flow control alone'}: mean {sum(means) / len(means):.1%}, worst flow {max(worst):.0%}, "
            f"last completion {sum(last) / len(last):.1%} mean, {max(last):.1%} worst"
        )
    print(f"processor time of the 25 cases: packets {spent['packets']:.1f} s, netsim {spent['netsim']:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "compare"))
    {"make": make, "compare": compare}[parser.parse_args().what]()
