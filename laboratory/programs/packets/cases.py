"""Patterns of congestion: completion times of a packet simulator (packets.cpp), kept, and netsim's beside them.

    python laboratory/programs/packets/cases.py make    # compiles and runs the packet simulator, writes the rows
    python laboratory/programs/packets/cases.py compare # netsim on the kept cases: a table of errors

Each pattern runs on Ethernet with DCQCN and priority flow control, with two seeds of the draws of marks, and with flow
control alone, as credits of InfiniBand do it. netsim runs fluid and with queues. Every flow takes the route that netsim
gives it, so that only queues and rates differ. The model of queues was made beside CASES; OTHERS were run once, after
it was done. PAUSED have buffers so small that ports are paused.
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
from netsim.topology.congestion import Congestion

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


OTHERS = {
    "incast-3-2M": incast(3, 2 * MB),
    "incast-6-512K": incast(6, 512 * KB),
    "incast-12-128K": incast(12, 128 * KB),
    "incast-12-4M": incast(12, 4 * MB),
    "incast-24-1M": incast(24, MB),
    "incast-5-16M": incast(5, 16 * MB),
    "all-to-all-8-32K": all_to_all(leaf_spine(8, 4, 4), lambda: 32 * KB),
    "all-to-all-16-64K": all_to_all(leaf_spine(16), lambda: 64 * KB),
    "all-to-all-24-128K": all_to_all(leaf_spine(24), lambda: 128 * KB),
    "all-to-all-32-16K": all_to_all(leaf_spine(32), lambda: 16 * KB),
    "all-to-all-star-12-512K": all_to_all(star(12), lambda: 512 * KB),
    "experts-16-64K": all_to_all(leaf_spine(16), uneven(64 * KB, 11)),
    "experts-24-256K": all_to_all(leaf_spine(24), uneven(256 * KB, 12)),
    "experts-16-1M": all_to_all(leaf_spine(16), uneven(MB, 13)),
    "permutation-32-2M": permutation(leaf_spine(32), 2 * MB, 14),
    "permutation-16-16M": permutation(leaf_spine(16), 16 * MB, 15),
    "ring-24-4M": ring(leaf_spine(24), 4 * MB),
    "victims-5-2M": victims(5, 2 * MB, 16),
    "victims-8-8M": victims(8, 8 * MB, 17),
    "oversubscribed-2-permutation-2M": permutation(leaf_spine(32, spines=4), 2 * MB, 18),
    "oversubscribed-4-all-to-all-64K": all_to_all(leaf_spine(16, spines=2), lambda: 64 * KB),
    "beside-8M-64K": beside(star(8), 8 * MB, 64 * KB, 15_000),
    "poisson-0.4": poisson(0.4, 19),
    "poisson-0.5": poisson(0.5, 20),
    "poisson-0.7": poisson(0.7, 21),
}
SMALL_BUFFER = 8_000_000
PAUSED = {
    name: CASES[name]
    for name in ("incast-8-8M", "victims-8-4M", "permutation-32-8M", "oversubscribed-4-permutation-4M", "poisson-0.8")
}
SETS = {"made beside": CASES, "others": OTHERS, "paused": PAUSED}
KINDS = {"dcqcn": (True, 1), "dcqcn again": (True, 2), "flow control": (False, 1)}
"""What a row tells of a case: whether with DCQCN, and the seed of the draws."""


def links_of(spec):
    """Directed links in the order of both simulators: each cable, then its reverse."""
    return [end for a, b in cables(spec) for end in ((a, b), (b, a))]


def topology_of(spec, share=1.0, congestion=None):
    hosts = [f"h{host}" for host in range(spec["hosts"])]
    topology = graph.build(hosts, [(a, b, GBPS * share, LATENCY_NS) for a, b in links_of(spec)])
    topology.congestion = congestion
    return topology


def packets(program, spec, flows, dcqcn, seed=1, buffer=BUFFER):
    """When the last byte of each flow arrives, in ns, and the processor seconds that it took."""
    topology, ends = topology_of(spec), links_of(spec)
    numbers = {}
    for end in ends:
        for node in end:
            numbers.setdefault(node, len(numbers))
    lines = [f"{PAYLOAD} {HEADER} {buffer} {int(dcqcn)} {seed} {len(ends)}"]
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


def simulate(spec, flows, congestion=None):
    """The same of netsim, whose links carry the payload's share of their rate."""
    topology = topology_of(spec, PAYLOAD / (PAYLOAD + HEADER), congestion)
    network = Network(topology)
    added = []
    for number, (a, b, nbytes, start_ns) in enumerate(flows):
        path = topology.route(a, b)
        links = tuple((link, 1) for link in path)
        group = Group(nbytes, links, latency_ns=LATENCY_NS * len(path), path=True)
        added.append(network.add(group, start_ns, number).flow)
    began = time.process_time()
    network.advance(10**12)
    return [network.completion_ns(flow) for flow in added], time.process_time() - began


def make():
    with tempfile.TemporaryDirectory() as folder, gzip.open(ROWS, "wt") as out:
        program = f"{folder}/packets"
        subprocess.run(["g++", "-O2", "-std=c++17", "-o", program, HERE / "packets.cpp"], check=True)
        for kept, cases in SETS.items():
            buffer = SMALL_BUFFER if kept == "paused" else BUFFER
            for name, case in cases.items():
                for kind, (dcqcn, seed) in KINDS.items():
                    done_ns, took_s = packets(program, *case, dcqcn, seed, buffer)
                    row = {"set": kept, "case": name, "kind": kind, "done_ns": done_ns, "took_s": round(took_s, 3)}
                    out.write(json.dumps(row) + "\n")
                    print(f"{name} {kind}: {max(done_ns) / 1e3:.1f} us, {took_s:.2f} s", flush=True)


def rows():
    """The kept rows by set, case and kind."""
    with gzip.open(ROWS, "rt") as file:
        return {(row["set"], row["case"], row["kind"]): row for row in map(json.loads, file)}


def errors(ours, theirs, flows):
    """Mean and worst error of the flows, each from its start; error of the end of all."""
    off = [
        abs((us - start) / (them - start) - 1) for us, them, (_, _, _, start) in zip(ours, theirs, flows, strict=True)
    ]
    return sum(off) / len(off), max(off), max(ours) / max(theirs) - 1


COLUMNS = {
    "flow control: fluid": ("flow control", lambda case: simulate(*case)),
    "queues": ("flow control", lambda case: simulate(*case, Congestion(dcqcn=False))),
    "DCQCN: fluid": ("dcqcn", lambda case: simulate(*case)),
    "queues and marks": ("dcqcn", lambda case: simulate(*case, Congestion(dcqcn=True))),
}


def compare():
    kept, spent = rows(), dict.fromkeys(COLUMNS, 0.0)
    for one, cases in SETS.items():
        found = {column: [] for column in (*COLUMNS, "packets again")}
        print(f"\n{one}\n\n| case | flows | {' | '.join(found)} |")
        print(f"| --- | ---: | {' | '.join('---:' for _ in found)} |")
        for name, case in cases.items():
            for column, (kind, run) in COLUMNS.items():
                theirs, (ours, took_s) = kept[one, name, kind], run(case)
                found[column].append(errors(ours, theirs["done_ns"], case[1]))
                spent[column] += took_s
                spent[f"packets, {kind}"] = spent.get(f"packets, {kind}", 0.0) + theirs["took_s"] / 2
            first, second = kept[one, name, "dcqcn"], kept[one, name, "dcqcn again"]
            found["packets again"].append(errors(second["done_ns"], first["done_ns"], case[1]))
            cells = [f"{mean:.1%} {worst:.0%} {last:+.1%}" for mean, worst, last in (x[-1] for x in found.values())]
            print(f"| {name} | {len(case[1])} | {' | '.join(cells)} |")
        for column, all_of in found.items():
            mean, worst, last = zip(*all_of, strict=True)
            near = sum(a <= 0.03 and b <= 0.1 for a, b in zip(mean, worst, strict=True))
            print(
                f"{column}: flows {sum(mean) / len(mean):.1%} in the mean, {max(worst):.0%} worst; "
                f"end {sum(map(abs, last)) / len(last):.1%} in the mean, {max(map(abs, last)):.1%} worst; "
                f"{near} of {len(all_of)} cases within 3 % in the mean and 10 % in the worst"
            )
    seconds = ", ".join(f"{column} {took_s:.2f}" for column, took_s in spent.items() if took_s)
    print(f"processor seconds of {sum(map(len, SETS.values()))} cases: {seconds}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "compare"))
    {"make": make, "compare": compare}[parser.parse_args().what]()
