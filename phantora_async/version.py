"""The version of this package. A checkout has it, too, and nothing of what is installed is searched for it."""

VERSION = "0.1.0"
