"""Puts the page together: template, style, scripts and data in one file.

Of the data every ``<``, ``>`` and ``&`` is written as an escape of JSON, so that no text in it can end the element that
holds it. The content security policy names the page's scripts by their hashes: no other would run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from phantora_async.figures import RUN_FIGURES, TIME_ACCOUNTS
from phantora_async.figures.time_accounts import LEAST_SHOWN
from phantora_async.wording import printable

SCRIPTS = (
    "format.js",
    "picture.js",
    "columns.js",
    "heat.js",
    "rows.js",
    "sections.js",
    "tables.js",
    "reasons.js",
    "modules.js",
    "live.js",
    "main.js",
)
"""The page's scripts, each after those that it uses."""
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def page(view: Mapping[str, Any]) -> str:
    """The page as HTML. `view`: the data that the scripts read, see ``view.py``."""
    files = _files()
    connects = "'self'" if view.get("live") is not None else "'none'"
    title = f"{printable(view['title'])} - phantora-async"
    return assembled(files["template"], title, files["script"], connects, data=embedded(view))


def assembled(template: str, title: str, script: str, connects: str = "'none'", **parts: str) -> str:
    """The page from its template. `parts`: HTML that the template names in braces, besides `title`, `style`, `script`
    and `policy`.
    """
    values = parts | {
        "policy": _policy(script, connects),
        "title": html.escape(title),
        "style": _files()["style"],
        "script": script,
    }
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], template)


def embedded(value: Any) -> str:
    """JSON that may stand in an element ``script``."""
    return json.dumps(value, separators=(",", ":")).translate(_ESCAPES)


@functools.cache
def _files() -> dict[str, str]:
    folder = resources.files(__package__)

    def read(name: str) -> str:
        return folder.joinpath(name).read_text(encoding="utf-8")

    tables = [
        "'use strict';",
        f"const ACCOUNTS = {_accounts()};",
        f"const FIGURES = {_figures()};",
        f"const LEAST_SHOWN = {LEAST_SHOWN};",
    ]
    script = "\n".join([*tables, *map(read, SCRIPTS)])
    return {"template": read("page.html"), "style": f"{_colours()}\n{read('page.css')}", "script": script}


def _accounts() -> str:
    """The table of time accounts for the scripts; a colour is the name of the variable that holds it."""
    return embedded(
        [
            {"name": one.name, "ns": one.ns, "title": one.title, "meaning": one.meaning}
            | {"colour": f"--{one.name}", "common": one.common}
            for one in TIME_ACCOUNTS
        ]
    )


def _figures() -> str:
    """The titles and windows of figures for the scripts, by name."""
    return embedded({one.name: {"title": one.title, "window": one.window} for one in RUN_FIGURES})


def _colours() -> str:
    """Variables of CSS with the colours of time accounts, for bright and for dark grounds."""
    bright = " ".join(f"--{one.name}: {one.bright};" for one in TIME_ACCOUNTS)
    dark = " ".join(f"--{one.name}: {one.dark};" for one in TIME_ACCOUNTS)
    return f":root {{ {bright} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def _policy(script: str, connects: str) -> str:
    """The content security policy: nothing is loaded from anywhere, and no scripts but the page's own run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connects}; base-uri 'none'; form-action 'none'"
    )
