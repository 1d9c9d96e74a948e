"""What to do about errors that have their cause in this machine, where their text does not say so."""

from __future__ import annotations

import re

NVCC = (
    "a library wants to compile CUDA code while the script runs, which needs NVIDIA's compiler nvcc: install the CUDA "
    "toolkit on this machine, or use what needs no compiler (DeepSpeed's optimizers: "
    'put `"torch_adam": true` into the params)'
)
_ADVICE = ((re.compile(r"\bCUDA_HOME\b|\bnvcc\b"), NVCC),)


def advice(error: BaseException) -> str:
    """One sentence, or "" if nothing is known about the error or what caused it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for pattern, text in _ADVICE:
            if pattern.search(f"{type(cause).__name__}: {cause}"):
                return text
        cause = cause.__cause__ or cause.__context__
    return ""
