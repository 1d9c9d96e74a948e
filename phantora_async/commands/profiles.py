"""List, show or copy descriptions of GPUs, clusters and hosts. A copy can be edited and used in a run."""

from __future__ import annotations

import argparse
import shutil
import tomllib
from pathlib import Path

from phantora_async.errors import NotWritten, UsageError
from profiles import Cluster, ProfileError, cluster_names, gpu_names, host_names, load_cluster, load_gpu, path_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async profiles [list | show NAME | copy NAME [FILE]]"
    parser.add_argument(
        "action", nargs="?", default="list", choices=("list", "show", "copy"), help="what to do (default: list)"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of a GPU, a cluster or a host")
    parser.add_argument("file", nargs="?", metavar="FILE", help="file to create (default: NAME.toml in this directory)")


def run(given: argparse.Namespace) -> int:
    try:
        if given.action == "list":
            _list()
        elif given.name is None:
            raise UsageError(f"profiles {given.action}: no name given", "known names: phantora-async profiles list")
        elif given.action == "show":
            _show(path_of(given.name))
        else:
            _copy(given.name, Path(given.file or f"{given.name}.toml"))
    except ProfileError as error:
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


def _network(cluster: Cluster) -> str:
    """What joins the GPUs of a server, and the servers."""
    server, fabric = cluster.network["server"], cluster.network["fabric"]
    domain = cluster.servers_per_nvlink_domain
    inside = "PCIe" if server["kind"] == "pcie" else f"NVSwitch of {domain} servers" if domain > 1 else "NVSwitch"
    nics = server["nics"] // domain
    return f"{inside}; {nics} x {server['nic_gbps']:g} Gbit/s, {fabric['kind']}"


def _show(path: Path) -> None:
    """The file, then what it is based on."""
    text = path.read_text()
    print(text, end="")
    if base := tomllib.loads(text).get("base"):
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
        raise NotWritten(f"cannot write {target}: {error.strerror}") from None
    option = {"gpus": "--gpu", "clusters": "--cluster"}.get(source.parent.name)
    use = f"phantora-async run {option} {target} ..." if option else f'set host = "{target}" in a cluster\'s file'
    print(f"created {target}; edit it, then: {use}")
