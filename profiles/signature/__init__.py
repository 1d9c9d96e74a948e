"""Cost signatures: the one-line texts that name what a GPU is asked to do.

Lives here: the definition as Python reads it (`definition`), a dataclass for each kind (`kinds`), and the way between
the two (`text`). The definition itself, `emu/contract/signature.def`, is shared with the hook library, which writes
the same texts in C.
Comes in: text.
Goes out: a `Signature`; or from a `Signature` its text, its family, and what of it the definition does not list.
May import: `formats.c_lists`, `profiles.errors`.
"""

from profiles.signature.definition import DEFINITION, Definition, read_definition
from profiles.signature.kinds import (
    Conv,
    Copy,
    Gemm,
    Grouped,
    Kernel,
    Library,
    Memset,
    Norm,
    Packed,
    Rnn,
    Scaled,
    Sdpa,
    Sequences,
    Shape,
    Signature,
    Sized,
    Strided,
    Triton,
    Windowed,
)
from profiles.signature.text import (
    dtype_nbytes,
    elements,
    family_of,
    family_of_text,
    format_signature,
    parse,
    shapes_in,
    unknown_parts,
)

__all__ = [
    "DEFINITION",
    "Conv",
    "Copy",
    "Definition",
    "Gemm",
    "Grouped",
    "Kernel",
    "Library",
    "Memset",
    "Norm",
    "Packed",
    "Rnn",
    "Scaled",
    "Sdpa",
    "Sequences",
    "Shape",
    "Signature",
    "Sized",
    "Strided",
    "Triton",
    "Windowed",
    "dtype_nbytes",
    "elements",
    "family_of",
    "family_of_text",
    "format_signature",
    "parse",
    "read_definition",
    "shapes_in",
    "unknown_parts",
]
