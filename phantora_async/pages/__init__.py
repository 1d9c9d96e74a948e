"""The report as a page for a browser: one file that needs nothing else, or live while the run lasts.

``page.html``, ``page.css`` and the scripts beside them are put together by ``page.py``. The page draws itself from the
report's document, which it holds as JSON. Texts of the user's script reach it as text alone, never as HTML.
Comes in: the report's document; while a run lasts, what the coordinator tells of it.
Goes out: HTML; a server on this machine that sends the page and then what changes.
May import: entrance, errors, report, wording.
"""

from phantora_async.pages.page import assembled, page
from phantora_async.pages.view import parts, view

__all__ = ["assembled", "page", "parts", "view"]
"""``live_page`` and ``live_server`` are imported where they are used: they need aiohttp."""
