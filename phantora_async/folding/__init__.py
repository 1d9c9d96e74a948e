"""Folded runs: few ranks have processes, and these play the others.

Comes in: what `--fold` says; records of ranks that have processes.
Goes out: the mesh, with the role of each rank; what the mirrored ranks would have sent; where a witness differs.
May import: emu.contract, profiles, errors, wording, ingest, virtual_time.
"""

from emu.contract.folding import Axis, CannotFold, Folding, Mesh
from phantora_async.folding.deriving import Derived, Underivable, derived
from phantora_async.folding.rank_arithmetic import tells_ranks_apart
from phantora_async.folding.request import mesh_of

__all__ = [
    "Axis",
    "CannotFold",
    "Derived",
    "Folding",
    "Mesh",
    "Underivable",
    "derived",
    "mesh_of",
    "tells_ranks_apart",
]
