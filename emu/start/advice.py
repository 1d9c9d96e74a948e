"""Advice about errors that have their cause in this machine, where their text does not say what to do."""

from __future__ import annotations

import errno
import os
import re
import socket
from pathlib import Path

from ..contract import isolation

NVCC = (
    "a library wants to compile CUDA code while the script runs, which needs NVIDIA's compiler nvcc: install the CUDA "
    "toolkit on this machine, or use what needs no compiler (DeepSpeed's optimizers: "
    'put `"torch_adam": true` into the params)'
)
CUPY = (
    "CuPy is not emulated: it brings a CUDA runtime of its own, and the emulated GPUs serve PyTorch alone. Compute "
    "with PyTorch's tensors, or with NumPy on the host"
)
TRANSFORMER_ENGINE = (
    "Transformer Engine's PyTorch extension is published as source alone; it needs g++, but neither nvcc nor a GPU: "
    "examples/build_transformer_engine.sh builds it in some minutes (docs/libraries.md)"
)
APEX = (
    "Apex's kernels are compiled by nvcc and are not on PyPI; with --no-gradient-accumulation-fusion "
    "(gradient_accumulation_fusion=False in a TransformerConfig) Megatron adds gradients by a kernel of PyTorch"
)
SPAWN = (
    "the script starts processes itself, in each rank again; if they are its ranks, start it once on each server: "
    "phantora-async run -n N --launcher -- python SCRIPT"
)
OFFLINE = (
    "emulated servers reach no network outside the run: give the script files that it has downloaded before, or "
    "this machine's network with --network host"
)
READ_ONLY = (
    "emulated servers only read this part of the machine's files (of the home folder they write the working directory, "
    "the script's folder, those that arguments name, and caches): --write PATH, an existing folder, permits more"
)
HOSTS = Path("/etc/hosts")
_SPAWNED = re.compile(r"^Process(Raised|Exited)Exception\b")
"""Matches the names of the exceptions that torch.multiprocessing.spawn raises."""
_UNREACHABLE = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"couldn't connect to 'https?://|Couldn't reach .* on the Hub"
)
_ADVICE = (
    (re.compile(r"\bCUDA_HOME\b|\bnvcc\b"), NVCC),
    (re.compile(r"^(CUDARuntimeError|CUDADriverError)\b"), CUPY),
    (
        re.compile(r"shared object file for Transformer Engine torch|No module named 'transformer_engine_torch'"),
        TRANSFORMER_ENGINE,
    ),
    (re.compile(r"\bfused_weight_gradient_mlp_cuda\b"), APEX),
)


def advice(error: BaseException) -> str:
    """Returns one sentence, or "" if nothing is known about the error or what caused it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    if _SPAWNED.match(type(error).__name__) and "RANK" in os.environ:
        return SPAWN
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for pattern, text in _ADVICE:
            if pattern.search(_text(cause)):
                return text
        if _is_read_only(cause):
            return READ_ONLY
        if _UNREACHABLE.search(_text(cause)) and _is_network_private():
            return OFFLINE
        cause = cause.__cause__ or cause.__context__
    return ""


def _is_read_only(error: BaseException) -> bool:
    """Tells whether a file system is read-only. Errors of C++ code have only the words."""
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return True
    return os.strerror(errno.EROFS) in _text(error) and _is_isolated()


def _is_isolated() -> bool:
    return socket.gethostname().startswith(isolation.host_name(0)[:4])


def _is_network_private() -> bool:
    """Tells whether this is an isolated server with a network of its own."""
    try:
        lines = HOSTS.read_text(errors="replace").splitlines()
    except OSError:
        return False  # it is of this machine, or the script has removed it
    return any(line.split()[:1] == [isolation.address(0)] for line in lines)


def _text(error: BaseException) -> str:
    """Returns the error's text; "" if making it fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
