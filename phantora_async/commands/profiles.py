"""List, show or copy descriptions of GPUs, clusters and hosts, and prices. A copy can be edited and used in a run.

`import` makes a cluster's file of what you have: a system file of MLPerf, the output of `nvidia-smi topo -m` or
`ibnetdiscover`, NCCL's topology (NCCL_TOPO_DUMP_FILE), or words such as "16 nodes of 8 x H100, 8 x 400 Gb/s InfiniBand,
rail-optimised, 2:1". Of several sources the later one counts where they differ.

`merge` makes one table of several tables of measured kernel times (phantora-async profile): of two times for the same
work the later table's is taken.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import netsim
from formats.files import write_whole
from phantora_async.errors import NotWritten, UsageError
from phantora_async.gpu_profile.saving import check_output
from profiles import (
    Cluster,
    ProfileError,
    base_of,
    cluster_names,
    gpu_names,
    host_names,
    load_cluster,
    load_gpu,
    load_table,
    merged,
    path_of,
    price_names,
    save_table,
)
from profiles.sources import described, merge, read_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "phantora-async profiles [list | show NAME | copy NAME [FILE] | import SOURCE... -o FILE | "
        "merge TABLE TABLE ... -o FILE]"
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "show", "copy", "import", "merge"),
        help="default: list",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of a GPU, a cluster, a host or a list of prices")
    parser.add_argument("file", nargs="?", metavar="FILE", help="file to create (default: NAME.toml in this directory)")
    parser.add_argument("more", nargs="*", metavar="TABLE", help="further tables to merge, or sources to import")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the merged table (.times or .times.gz), or the cluster's file",
    )


def run(given: argparse.Namespace) -> int:
    several = [one for one in (given.name, given.file, *given.more) if one]
    if given.action not in ("merge", "import") and (given.more or given.output):
        raise UsageError(
            f"profiles {given.action}: too many arguments", "-o and several files are for profiles merge and import"
        )
    try:
        if given.action == "list":
            _list()
        elif given.action == "merge":
            _merge([Path(one) for one in several], given.output)
        elif given.action == "import":
            _import(several, given.output)
        elif given.name is None:
            raise UsageError(f"profiles {given.action}: no name given", "known names: phantora-async profiles list")
        elif given.action == "show":
            _show(path_of(given.name))
        else:
            _copy(given.name, Path(given.file or f"{given.name}.toml"))
    except (ProfileError, netsim.NetsimError) as error:
        raise UsageError(str(error)) from None
    return 0


def _list() -> None:
    print("GPUs (run --gpu NAME)")
    for name in gpu_names():
        gpu = load_gpu(name)
        memory_gib, bf16 = gpu.memory.total_nbytes / 2**30, gpu.peak_flops("bf16") / 1e12
        print(f"  {name:<20} {gpu.device_name:<49} {memory_gib:4.0f} GiB  {bf16:6.0f} bf16 TFLOP/s")
    print("clusters (run --cluster NAME)")
    for name in cluster_names():
        cluster = load_cluster(name)
        print(f"  {name:<20} {cluster.gpus_per_server} x {cluster.gpu:<20} {_network(cluster)}")
    print("hosts (`host` in a cluster's file)")
    for name in host_names():
        print(f"  {name}")
    print("prices (report and sweep --prices NAME)")
    for name in price_names():
        print(f"  {name}")


def _network(cluster: Cluster) -> str:
    """Describes the links between the GPUs of a server, and between servers."""
    server, fabric = cluster.network["server"], cluster.network["fabric"]
    domain = cluster.servers_per_nvlink_domain
    inside = "PCIe" if server["kind"] == "pcie" else f"NVSwitch of {domain} servers" if domain > 1 else "NVSwitch"
    nics = server["nics"] // domain
    return f"{inside}; {nics} x {server['nic_gbps']:g} Gbit/s, {fabric['kind']}"


def _merge(files: list[Path], target: Path | None) -> None:
    if len(files) < 2:
        raise UsageError("profiles merge: name at least two tables", "phantora-async profiles merge A B -o C")
    if target is None:
        raise UsageError("profiles merge: no file to write is given", "name the merged table with -o FILE")
    check_output(target)
    tables = [load_table(file) for file in files]
    gpus = sorted({origin.get("gpu", "?") for table in tables for origin in table.origins})
    if len(gpus) > 1:
        raise UsageError(f"profiles merge: these tables are of different GPUs: {', '.join(gpus)}", "merge each GPU's")
    made = merged(tables)
    try:
        save_table(target, made)
    except OSError as error:
        raise NotWritten(f"cannot write {target}: {error.strerror}") from None
    print(f"{target}: {len(made.times):,} times of {', '.join(gpus)}, from {len(files)} tables")
    print(f"use: phantora-async run --kernel-times {target} ...")


def _import(sources: list[str], target: Path | None) -> None:
    if not sources:
        raise UsageError("profiles import: name a source", 'a file, or words: "8 x H100, 8 x 400 Gb/s InfiniBand"')
    if target is None or target.suffix != ".toml":
        raise UsageError("profiles import: name the file to write", "-o mycluster.toml")
    if target.exists():
        raise UsageError(f"{target} exists already", "choose another name")
    made = described(merge([read_source(one) for one in sources]))
    try:
        write_whole(target, made.text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {target}: {error.strerror}") from None
    try:
        cluster = load_cluster(target)
        netsim.build(cluster.network, cluster.network_servers(made.servers or 2))
    except (ProfileError, netsim.NetsimError):
        target.unlink()
        raise
    print(made.text, end="")
    print(f"\n{cluster.gpus_per_server} x {load_gpu(cluster.gpu).device_name}; {_network(cluster)}")
    print(f"Assumed, as in {made.base}: {'; '.join(made.assumed)}." if made.assumed else "Nothing else is assumed.")
    many = (made.servers or 1) * cluster.gpus_per_server
    print(f"created {target}; use: phantora-async run -n {many} --cluster {target} ...")


def _show(path: Path) -> None:
    """Prints the file, then the descriptions that it is based on."""
    print(path.read_text(), end="")
    if base := base_of(path):
        print(f"\n# ---- base: {base}")
        _show(path.with_name(f"{base}.toml"))


def _copy(name: str, target: Path) -> None:
    source = path_of(name)
    if target.is_dir():
        target /= source.name
    if target.exists():
        raise UsageError(f"{target} exists already", f"choose another name: phantora-async profiles copy {name} FILE")
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise NotWritten(f"cannot write {target}: {error.strerror}") from None
    uses = {
        "gpus": f"phantora-async run --gpu {target} ...",
        "clusters": f"phantora-async run --cluster {target} ...",
        "hosts": f'set host = "{target}" in a cluster\'s file',
        "prices": f"phantora-async report --prices {target} ...",
    }
    print(f"created {target}; edit it, then: {uses[source.parent.name]}")
