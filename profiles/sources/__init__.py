"""Cluster descriptions from what people have: system files of MLPerf, outputs of tools, a line of words.

Comes in: an MLPerf system file, the output of `nvidia-smi topo -m`, NCCL's topology as XML, the output of
`ibnetdiscover`, or words such as "8 x H100, 8 x 400 Gb/s IB, rail-optimised, 2:1". Goes out: facts, each with where it
comes from, and the text of a cluster's file, which is based on the shipped cluster that is nearest.
May import: `formats`, `profiles.descriptions`, `profiles.errors`.
"""

from profiles.sources.description import described
from profiles.sources.facts import Facts, merge
from profiles.sources.reading import read_source

__all__ = ["Facts", "described", "merge", "read_source"]
