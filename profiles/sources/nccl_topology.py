"""NCCL's view of a server: the XML that NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from profiles.errors import ProfileError
from profiles.sources.facts import Fact, Facts

_NVSWITCH = "0x068000"
"""PCI class of the other end of an NVLink: a bridge, which is an NVSwitch."""
_BY_CAPABILITY = {
    "70": ("v100", ""),
    "75": ("t4", ""),
    "80": ("a100-80g", "an A100 of 80 GB is assumed"),
    "86": ("a10", "an A10 is assumed"),
    "89": ("l40s", "an L40S is assumed"),
    "90": ("h100", "an H100 is assumed; an H200 and a GH200 look the same to NCCL"),
    "100": ("b200", "a B200 is assumed"),
    "103": ("b300", "a B300 is assumed"),
    "120": ("rtx-pro-6000-server", "an RTX PRO 6000 is assumed"),
}


def is_topology(text: str) -> bool:
    return "<system" in text[:2000] and "<gpu" in text


def read_topology(text: str, origin: str) -> Facts:
    """Reads NCCL's topology. Raises ProfileError if it is no XML, or has no GPU."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ProfileError(f"{origin}: not NCCL's XML: {error}") from None
    gpus = list(root.iter("gpu"))
    if not gpus:
        raise ProfileError(f"{origin}: no <gpu> in NCCL's XML")
    facts: dict[str, Fact[object]] = {"gpus": Fact(len(gpus), f"{origin}: <gpu>")}
    notes: list[str] = []
    capability = gpus[0].get("sm", "")
    if capability in _BY_CAPABILITY:
        name, note = _BY_CAPABILITY[capability]
        facts["gpu"] = Fact(name, f"{origin}: sm={capability}")
        notes += [f"{note}: say which it is in words"] if note else []
    targets = [[link.get("tclass", "") for link in gpu.iter("nvlink")] for gpu in gpus]
    if len(gpus) > 1:
        if all(any(target.startswith(_NVSWITCH) for target in one) for one in targets):
            facts["inside"] = Fact("nvswitch", f"{origin}: NVLinks that end at a switch")
        elif all(len({link.get("target") for link in gpu.iter("nvlink")}) == len(gpus) - 1 for gpu in gpus):
            facts["inside"] = Fact("nvswitch", f"{origin}: NVLinks from each GPU to each other one")
            notes.append(f"{origin}: the GPUs are joined directly; the description has a switch of the same ports")
        else:
            facts["inside"] = Fact("pcie", f"{origin}: NVLink does not join all GPUs")
            facts["nvlink_pairs"] = Fact(any(targets), f"{origin}: <nvlink>")
    speeds = [_mbit(net.get("speed", "")) for net in root.iter("net")]
    fast = [speed for speed in speeds if speed and speed == max(speeds)]
    if fast:
        facts |= {
            "nics": Fact(len(fast), f"{origin}: <net> of the highest speed"),
            "nic_gbps": Fact(fast[0] / 1000, f"{origin}: speed={fast[0]}"),
        }
    cpus = [bin(int(mask, 16)).count("1") for cpu in root.iter("cpu") if (mask := _mask(cpu.get("affinity", "")))]
    if cpus:
        facts["cpus"] = Fact(sum(cpus), f"{origin}: affinity of <cpu>")
        facts["sockets"] = Fact(max(1, min(2, len(cpus))), f"{origin}: <cpu>")
    return Facts(**facts, notes=tuple(notes))  # type: ignore[arg-type]


def _mbit(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _mask(text: str) -> str:
    """The hexadecimal words of an affinity as one."""
    words = text.replace(",", "")
    return words if re.fullmatch(r"[0-9a-fA-F]{1,4096}", words) else ""
