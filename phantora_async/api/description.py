"""The part ``run`` of a report: what was run, and with what. `phantora-async compare` says what differs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from formats.files import MOST_SOURCE_NBYTES, read_bytes
from phantora_async.config import Config
from phantora_async.version import VERSION

ENVIRONMENT = ("NCCL_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "TRITON_", "CUBLAS_", "CUDA_")
"""The beginnings of names of environment variables that may change what a job does."""
NOT_TOLD = {"gpu": ("attributes", "path"), "cluster": ("path",), "host": ("path", "measured")}
"""The fields of descriptions that are left out, by description: they follow from other fields, or change nothing."""


def describe(config: Config, versions: Mapping[str, str]) -> dict[str, Any]:
    """The part ``run`` of the report. `versions`: of torch and Python in the ranks."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "kind": "launcher" if config.launcher else "module" if config.module else "script",
        "script": config.script,
        "script_sha256": "" if config.launcher or config.module else _digest(Path(config.script)),
        "arguments": list(config.arguments),
        "options": {name: value for name, value in config.options.given().items() if name not in ("known", "again")},
        "versions": {"phantora-async": VERSION, **versions},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(ENVIRONMENT)},
        "machine": platform.node(),
        "descriptions": {
            name: _description(value, NOT_TOLD[name])
            for name, value in (("gpu", config.gpu), ("cluster", config.cluster), ("host", config.host))
        },
        "trace": str(config.trace.path) if config.trace is not None else None,
    }


def _digest(path: Path) -> str:
    """The SHA-256 digest of a script that is one source file; empty for a folder, and for a file that cannot be read as
    source.
    """
    try:
        return hashlib.sha256(read_bytes(path, MOST_SOURCE_NBYTES)).hexdigest()
    except OSError:
        return ""


def _description(value: Any, left_out: tuple[str, ...]) -> Any:
    """The description as a JSON value, without the fields `left_out`."""
    fields = {name: field for name, field in dataclasses.asdict(value).items() if name not in left_out}
    return json.loads(json.dumps(fields, default=str))
