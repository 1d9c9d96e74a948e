"""Reads system files of MLPerf Training (`systems/*.json` of a submission): what was submitted, in words of the
submitter.
"""

from __future__ import annotations

import re
from typing import Any

from profiles.errors import ProfileError
from profiles.sources.facts import Fact, Facts
from profiles.sources.words import chosen, gpu_of, link_of, network_cards

THREADS = 2
"""The threads of a core of an x86 processor, where the file has cores only."""


def is_system(data: Any) -> bool:
    return isinstance(data, dict) and "accelerator_model_name" in data


def read_system(data: dict[str, Any], origin: str) -> Facts:
    """Reads a system's file. Raises ProfileError for accelerators that are not emulated."""

    def text(key: str) -> str:
        value = data.get(key)
        return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""

    def number(key: str) -> int | None:
        found = re.search(r"\d+", text(key))
        return int(found[0]) if found else None

    model = text("accelerator_model_name")
    gpu, notes = gpu_of(model)
    if gpu is None:
        raise ProfileError(f"{origin}: accelerator_model_name: {model!r} has no description here")
    facts: dict[str, Fact[object]] = {"gpu": Fact(gpu, f"{origin}: {model}")}
    if gpus := number("accelerators_per_node"):
        facts["gpus"] = Fact(gpus, f"{origin}: accelerators_per_node")
    if servers := number("number_of_nodes"):
        facts["servers"] = Fact(servers, f"{origin}: number_of_nodes")
    sockets, cores = number("host_processors_per_node"), number("host_processor_core_count")
    if sockets:
        facts["sockets"] = Fact(sockets, f"{origin}: host_processors_per_node")
    if sockets and cores and cores >= 8:  # some give threads of a core, or nothing useful
        arm = re.search(r"neoverse|grace|ampere", text("host_processor_model_name"), re.IGNORECASE)
        threads = 1 if arm else THREADS
        facts["cpus"] = Fact(sockets * cores * threads, f"{origin}: {sockets} x {cores} cores of {threads} threads")
    networking = "; ".join(filter(None, (text("host_networking"), text("host_networking_topology"))))
    interconnect = " ".join((text("accelerator_interconnect"), text("accelerator_interconnect_topology")))
    cards = network_cards(networking)
    if cards:
        best, more = chosen(cards, gpus)
        facts |= {
            "nics": Fact(best.count, f"{origin}: {best.text}"),
            "nic_gbps": Fact(best.gbps, f"{origin}: {best.text}"),
        }
        notes += more
        link = link_of(best.text) or link_of(networking)
    else:
        link = link_of(networking)
        if (facts["servers"].value if "servers" in facts else 1) != 1:
            notes.append(f"{origin} does not say which network cards there are ({networking or 'nothing is written'})")
    if link:
        facts["link"] = Fact(link, f"{origin}: {networking}")
    if re.search(r"nvswitch|nvlink", interconnect, re.IGNORECASE):
        facts["inside"] = Fact("nvswitch", f"{origin}: {interconnect.strip()}")
    elif re.search(r"pcie|nvl\b", f"{interconnect} {model}", re.IGNORECASE):
        facts["inside"] = Fact("pcie", f"{origin}: {interconnect.strip() or model}")
    return Facts(**facts, notes=tuple(notes))  # type: ignore[arg-type]
