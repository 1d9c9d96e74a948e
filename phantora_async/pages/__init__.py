"""The report as a page for a browser: one file that needs nothing else, or live while the run lasts.

``page.html``, ``page.css`` and the scripts beside them are put together by ``page.py``. The page draws itself from the
report's document, which it holds as JSON. Texts of the user's script reach it as text alone, never as HTML.
It draws by itself, and that was weighed against the libraries that are kept for this (29 November 2026):

* uPlot 1.6.32 is 51 kB of script and 2 kB of style, where a page has 74 kB of script. It would replace
  ``columns.js`` (103 lines, 5 kB), and not ``heat.js`` (ranks and links over time) nor the flame graph. It has no
  stacked columns, no cursor by keyboard and no text for readers of a screen, and does not join neighbours by their
  mean or largest, so most of ``columns.js`` and all of ``picture.js`` would stay.
* d3-flame-graph 5.0.0 is 13 kB and imports eight modules of D3 (119 kB with theirs), where ``modules.js`` is 147 lines,
  9 kB. It has no keyboard and no text for readers of a screen either, nor a module's own work as a frame.
* Missing memory drawn above the capacity, the front of a sweep with intervals, and bars in tables are HTML and SVG of a
  few lines, which work without scripts where they are written by Python.

Comes in: the report's document; while a run lasts, what the coordinator tells of it.
Goes out: HTML; a server on this machine that sends the page and then what changes.
May import: entrance, errors, report, wording.
"""

from phantora_async.pages.page import assembled, page
from phantora_async.pages.view import parts, view

__all__ = ["assembled", "page", "parts", "view"]
"""``live_page`` and ``live_server`` are imported where they are used: they need aiohttp."""
