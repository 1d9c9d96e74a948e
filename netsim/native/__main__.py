"""Build the native library in place: ``python -m netsim.native``."""

from __future__ import annotations

import sys

from netsim.native import build

sys.stdout.write(f"{build()}\n")
