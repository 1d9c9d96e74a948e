"""Decides from a run's options whether its result can be kept."""

from __future__ import annotations

from emu.contract.policies import loading_policy
from phantora_async.options import HOST_MODES, RunOptions

_MORE = ("trace", "record", "real_steps", "ui", "listen", "on", "profile_simulator", "measure", "preload")
"""The options with which a run leaves more behind than its report and logs, or uses more than this machine's files."""


def why_not_known(given: RunOptions) -> str:
    """Says why a later run cannot take this run's place; "" if it can."""
    named = given.given()
    if more := [name for name in _MORE if name in named]:
        return f"--{more[0].replace('_', '-')} is given"
    if given.host == HOST_MODES[1]:
        return f"--host {given.host} is given, whose times differ from run to run"
    if given.loaders == loading_policy.MODELLED:
        return f"--loaders {given.loaders} is given, whose times differ from run to run"
    return ""
