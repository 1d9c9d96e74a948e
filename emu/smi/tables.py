"""The tables that nvidia-smi prints: that of all GPUs, and the matrix of how they are joined."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Sequence

from .gpus import Gpu, System

_COLUMNS = (41, 24, 22)
"""The widths of the three columns of GPUs."""
_WIDTH = sum(_COLUMNS) + 2


def listed(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Yields a line for each GPU (``-L``)."""
    for gpu in gpus:
        yield f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})"


def overview(system: System, gpus: Sequence[Gpu]) -> Iterator[str]:
    """Yields the table that nvidia-smi prints without options. It has no processes: NVML knows only the caller's."""
    yield f"{datetime.datetime.now():%a %b %e %H:%M:%S %Y}"
    yield f"+{'-' * _WIDTH}+"
    versions = f" NVIDIA-SMI {system.driver}", f"Driver Version: {system.driver}", f"CUDA Version: {system.cuda}"
    yield f"|{f'{versions[0]:<25}{versions[1]:<41}{versions[2]}':<{_WIDTH}}|"
    yield _rule("-")
    yield _row(
        " GPU  Name                 Persistence-M",
        " Bus-Id          Disp.A ",
        " Volatile Uncorr. ECC ",
    )
    yield _row(
        " Fan  Temp   Perf          Pwr:Usage/Cap",
        "           Memory-Usage ",
        " GPU-Util  Compute M. ",
    )
    yield _rule("=")
    for gpu in gpus:
        limit = "N/A" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}W"
        yield _row(
            f" {gpu.index:>3}  {gpu.name[:26]:<26} {'N/A':>7} ",
            f"   {gpu.pci} Off ",
            f"{_errors(gpu):>21} ",
        )
        yield _row(
            f" N/A  N/A    N/A {f'N/A / {limit}':>23} ",
            f"{f'{gpu.used_mib}MiB / {gpu.total_mib}MiB':>23} ",
            f"{'N/A':>9}{'N/A':>12} ",
        )
        yield _rule("-")


def matrix(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Yields the matrix of ``topo -m``: all NVLinks of a server's GPUs end at its switches. Without NVLink, no more is
    known than that two GPUs are of the same server.
    """
    names = [f"GPU{gpu.index}" for gpu in gpus]
    yield "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    cpus = f"0-{(os.cpu_count() or 1) - 1}"
    for gpu, name in zip(gpus, names, strict=True):
        cells = ["X" if other is gpu else f"NV{gpu.nvlinks}" if gpu.nvlinks else "SYS" for other in gpus]
        yield "\t".join([name, *(f" {cell} " for cell in cells), cpus, "N/A", "N/A"])
    yield ""
    yield "Legend:"
    yield ""
    yield "  X    = Self"
    yield "  SYS  = Connection within the server; what lies between is not emulated"
    yield "  NV#  = Connection traversing a bonded set of # NVLinks"


def _errors(gpu: Gpu) -> str:
    """The memory errors that could not be corrected: no emulated GPU has any."""
    return "N/A" if gpu.ecc is None else "0" if gpu.ecc else "Off"


def _rule(line: str) -> str:
    end = "|" if line == "=" else "+"
    return f"{end}{'+'.join(line * width for width in _COLUMNS)}{end}"


def _row(*cells: str) -> str:
    return f"|{'|'.join(f'{cell:<{width}}' for cell, width in zip(cells, _COLUMNS, strict=True))}|"
