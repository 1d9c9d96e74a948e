"""The output of `nvidia-smi topo -m`: how the GPUs and cards of one server are joined; also after `nvidia-smi -L`."""

from __future__ import annotations

import re

from profiles.errors import ProfileError
from profiles.sources.facts import Fact, Facts
from profiles.sources.words import gpu_of

_ROW = re.compile(r"^\s*(GPU\d+|NIC\d+|mlx\d+_\w+|\w*ib\d+)\s+(.*)$")
_CELL = re.compile(r"^(?:X|SYS|NODE|PHB|PXB|PIX|NV\d+)$")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def is_topology(text: str) -> bool:
    return bool(re.search(r"^\s*(?:\x1b\[[0-9;]*m)*\s*GPU0\s.*\bCPU Affinity\b", text, re.MULTILINE))


def read_topology(text: str, origin: str) -> Facts:
    """Reads the matrix of `nvidia-smi topo -m`. Raises ProfileError if there is none."""
    text = _ESCAPE.sub("", text)
    rows: dict[str, list[str]] = {}
    rest: dict[str, str] = {}
    for line in text.splitlines():
        if found := _ROW.match(line):
            cells = found[2].split()
            matrix = [cell for cell in cells if _CELL.match(cell)]
            if "X" in matrix:
                rows[found[1]] = matrix
                rest[found[1]] = " ".join(cells[len(matrix) :])
    gpus = [name for name in rows if name.startswith("GPU")]
    cards = [name for name in rows if not name.startswith("GPU")]
    if not gpus:
        raise ProfileError(f"{origin}: no row of a GPU in the matrix of nvidia-smi topo -m")
    facts: dict[str, Fact[object]] = {"gpus": Fact(len(gpus), f"{origin}: rows GPU0 to GPU{len(gpus) - 1}")}
    notes: list[str] = []
    models = set(re.findall(r"^GPU \d+: (.+?) \(UUID", text, re.MULTILINE))
    if models:
        gpu, notes = gpu_of(min(models))
        if gpu is not None:
            facts["gpu"] = Fact(gpu, f"{origin}: {min(models)}")
    # NVSwitch joins all pairs of GPUs, a bridge joins two: so the number of NV entries in a row tells them apart.
    links = [[cell.startswith("NV") for cell in rows[name][: len(gpus)]] for name in gpus]
    joined = [sum(row) for row in links]
    if len(gpus) > 1 and all(count == len(gpus) - 1 for count in joined):
        facts["inside"] = Fact("nvswitch", f"{origin}: {rows[gpus[0]][1]} between all GPUs")
    elif len(gpus) > 1:
        facts["inside"] = Fact("pcie", f"{origin}: NVLink does not join all GPUs")
        facts["nvlink_pairs"] = Fact(all(count == 1 for count in joined), f"{origin}: NV entries of each GPU")
    if cards:
        used = _for_training(cards, rows, gpus)
        facts["nics"] = Fact(len(used), f"{origin}: {', '.join(used)}")
        if len(used) < len(cards):
            left = ", ".join(name for name in cards if name not in used)
            notes.append(f"{origin}: left out are cards that share no PCIe switch with a GPU ({left})")
        notes.append(f"{origin} does not say how fast the cards are")
    nodes = {number for name in gpus if (number := _numa_node(rest[name])) is not None}
    if nodes:
        facts["sockets"] = Fact(max(1, min(len(nodes), 2)), f"{origin}: NUMA affinity")
    cpus = set().union(*(_processors(rest[name]) for name in gpus))
    if cpus:
        facts["cpus"] = Fact(len(cpus), f"{origin}: CPU affinity of all GPUs")
    return Facts(**facts, notes=tuple(notes))  # type: ignore[arg-type]


def _for_training(cards: list[str], rows: dict[str, list[str]], gpus: list[str]) -> list[str]:
    """Cards that share a PCIe switch with a GPU, if some do: others are for storage and management."""
    near = [card for card in cards if any(cell in ("PIX", "PXB") for cell in rows[card][: len(gpus)])]
    return near or cards


def _processors(text: str) -> set[int]:
    """The ranges of the first word that has one: `0-55,112-167`."""
    found = re.match(r"([\d,-]+)(?:\s|$)", text)
    cpus: set[int] = set()
    for part in (found[1] if found else "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit() and int(last or first) - int(first) < 8192:
            cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def _numa_node(text: str) -> int | None:
    found = re.match(r"[\d,-]+\s+(\d+)", text)
    return int(found[1]) if found else None
