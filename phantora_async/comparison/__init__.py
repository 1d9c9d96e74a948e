"""Reports of several runs side by side: what was set up differently, what that changed, and by how much.

The first run is the one that the others are compared with. Everything is made of the reports' JSON.
Comes in: reports, as ``report.read_whole`` returns them.
Goes out: a ``Comparison``, its text, its JSON.
May import: errors, options, report, wording.
"""

from phantora_async.comparison.comparison import Comparison, Side, compare
from phantora_async.comparison.figures import ComparedCalls, ComparedWork, Figure, Held, Part
from phantora_async.comparison.setup import Difference

__all__ = ["ComparedCalls", "ComparedWork", "Comparison", "Difference", "Figure", "Held", "Part", "Side", "compare"]
