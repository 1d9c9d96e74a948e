"""The `nvidia-smi` of emulated servers.

Comes in: a command line. Goes out: what NVML, which the hook library answers, says of the described GPUs, in the form
that NVIDIA's program has. What it does not emulate it names on stderr, and ends with an exit code that is not 0. May
import: nothing.
"""

PROGRAM = "nvidia-smi"
"""The name under which programs start it."""
PATHS = (PROGRAM, f"/usr/bin/{PROGRAM}", f"/usr/local/nvidia/bin/{PROGRAM}")
"""The paths at which machines with GPUs have theirs: in PATH, and where NVIDIA's packages and containers put it."""
