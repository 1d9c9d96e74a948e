"""Prints the table of kinds in docs/data/signatures.md: `python -m profiles.signature`."""

from profiles.signature.definition import table

print("\n".join(table()))
