"""A picture of the links' utilisation over time."""

from __future__ import annotations

from pathlib import Path

from formats.files import write_figure
from netsim.errors import NetsimError
from netsim.tools.stats import Statistics

MOST_LINKS = 60


def heat_map(statistics: Statistics, path: Path, most: int = MOST_LINKS) -> None:
    """Writes a heat map (format by suffix: png, svg, pdf): one row per link, the ``most`` with the most bytes.

    Needs matplotlib (the extra ``plot``); NetsimError without it or if the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise NetsimError("a picture needs matplotlib: pip install phantora-async[plot]") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    # The busiest links are chosen by bytes and drawn in the order of the statistics.
    kept = {link.name for link in sorted(statistics.links, key=lambda link: -link.nbytes)[:most]}
    rows = [link for link in statistics.links if link.name in kept]
    if not rows:
        raise NetsimError("no link carried anything: there is nothing to draw")
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.2 * len(rows)), layout="constrained")
    extent = (statistics.from_ns / 1e3, statistics.to_ns / 1e3, len(rows) - 0.5, -0.5)
    image = axes.imshow(
        [link.timeline for link in rows],
        aspect="auto",
        interpolation="nearest",
        cmap="magma",
        vmin=0,
        vmax=1,
        extent=extent,
    )
    axes.set_yticks(range(len(rows)), [link.name for link in rows], fontsize=7)
    axes.set_xlabel("virtual time (µs)")
    title = "link utilisation"
    if len(rows) < len(statistics.links):
        title += f" ({len(rows)} busiest of {len(statistics.links)} links)"
    axes.set_title(title)
    figure.colorbar(image, label="share of capacity")
    try:
        write_figure(path, figure)
    except (OSError, ValueError) as error:
        raise NetsimError(f"{path}: {error}") from error
    finally:
        pyplot.close(figure)
