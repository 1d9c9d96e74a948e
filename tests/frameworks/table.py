"""All jobs, in the order of the document."""

from __future__ import annotations

from collections.abc import Sequence

from .job import Job
from .rows import deepspeed, hugging_face, lightning, megatron, programs, pytorch, torchtitan, torchtitan_0_3

JOBS: Sequence[Job] = (
    *pytorch.JOBS,
    *programs.JOBS,
    *torchtitan.JOBS,
    *torchtitan_0_3.JOBS,
    *megatron.JOBS,
    *deepspeed.JOBS,
    *hugging_face.JOBS,
    *lightning.JOBS,
)
