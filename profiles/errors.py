"""The errors of profiles, worded for the person who wrote or named one."""

from __future__ import annotations


class ProfileError(ValueError):
    """A description or a signature is malformed; the message names the file, the line if known, the field and the
    fault.
    """


class UnknownProfile(ProfileError):
    """A name that no shipped profile has; the message lists those that exist."""
