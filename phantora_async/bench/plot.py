"""A benchmark as a picture: wall time, processor time and memory by the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from formats.files import write_figure
from phantora_async.bench.measurement import Point
from phantora_async.errors import EnvironmentUnusable, drawing

PARTS = ("ranks", "hook", "coordinator", "kernel", "start")


def check() -> None:
    """Raises EnvironmentUnusable without matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise EnvironmentUnusable(
            "plots need matplotlib, which is not installed", "pip install 'phantora-async[plot]'"
        ) from None


def plot(points: Sequence[Point], path: Path) -> None:
    """Writes a picture in the format of the path's suffix. Raises EnvironmentUnusable without matplotlib."""
    check()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (time, cpu, memory) = pyplot.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for scaling in ("weak", "strong"):
        of = [point for point in points if point.scaling == scaling and not point.failure]
        ranks = [point.ranks for point in of]
        if not of:
            continue
        time.plot(ranks, [point.step_s or float("nan") for point in of], "o-", label=f"{scaling}: a step")
        time.plot(ranks, [point.wall_s for point in of], "s--", label=f"{scaling}: the run")
        memory.plot(ranks, [(point.pss_nbytes or float("nan")) / 1e6 for point in of], "o-", label=scaling)
    of = [point for point in points if not point.failure]
    bottom = [0.0] * len(of)
    for part in PARTS:
        shares = [point.cpu[part] / point.ranks for point in of]
        cpu.bar([f"{point.ranks}\n{point.scaling}" for point in of], shares, bottom=bottom, label=part)
        bottom = [below + share for below, share in zip(bottom, shares, strict=True)]
    for axes, title in ((time, "wall time, s"), (cpu, "CPU time per rank, s"), (memory, "PSS of a rank, MB")):
        axes.set_title(title)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    for axes in (time, memory):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("ranks")
    with drawing(path):
        write_figure(path, figure)
    pyplot.close(figure)
