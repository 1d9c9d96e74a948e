"""The GPUs of this machine, as an interpreter with PyTorch sees them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from phantora_async.errors import EnvironmentUnusable

_ASK = """\
import json, torch
names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
print(json.dumps(names))
"""


def names(python: Path) -> list[str]:
    """The names of the GPUs of this machine, in the order of their indices; empty without a GPU. Raises
    EnvironmentUnusable.
    """
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentUnusable(f"{python} cannot import torch", "pip install torch", details=done.stderr[-2000:])
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found
