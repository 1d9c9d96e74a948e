"""Draws simulated against real: ratios of all jobs, with intervals and the spread of the real runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from formats.files import write_figure
from phantora_async.errors import EnvironmentUnusable, drawing
from phantora_async.validation.comparison import Row


def plot(rows: Sequence[Row], path: Path) -> None:
    """Writes a picture in the format of the path's suffix. Raises EnvironmentUnusable without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise EnvironmentUnusable(
            "plots need matplotlib, which is not installed", "pip install 'phantora-async[plot]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    timed = [row for row in rows if row.speed is not None]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.34 * len(timed)), layout="constrained")
    for place, row in enumerate(reversed(timed)):
        speed = row.speed
        assert speed is not None
        middle = (speed.real_low + speed.real_high) / 2
        axes.plot([speed.real_low / middle, speed.real_high / middle], [place, place], color="0.7", linewidth=8)
        if row.interval_low is not None and row.interval_high is not None:
            axes.plot(
                [row.interval_low / middle, row.interval_high / middle], [place, place], color="C0", linewidth=1.5
            )
        axes.plot(speed.simulated / middle, place, "o", color="C0" if abs(speed.error) <= 0.1 else "C3")
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.set_yticks(range(len(timed)), [f"{row.job} ({row.world})" for row in reversed(timed)])
    axes.set_xlabel("simulated / real (grey: spread of the real runs; line: simulated interval)")
    axes.grid(axis="x", alpha=0.3)
    with drawing(path):
        write_figure(path, figure)
    pyplot.close(figure)
