"""The table of published hangs in docs/data/hangs.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .published import Hang, Verdict

NOT_RUN = "not run"
PATH = Path(__file__).parents[2] / "docs" / "data" / "hangs.md"
HEAD = """# Published hangs

Each of these hangs was reported by somebody who had it on GPUs. The programs in `tests/hangs/programs/` are small ones
of our own that do the same. What a message must name was written down before a program was run for the first time: the
guilty rank with its line (or that it had ended), and the line where the others wait. `python -m tests.hangs --write`
runs them and writes this page; the runs below are of 30 November 2026. The seconds are processor time of the whole
command.

"""

MANY_NOTES = """
A case that was among them at first ended as a deadlock, and by PyTorch's source it hangs on GPUs, too: with PyTorch
2.15, `new_group([0, 1], use_local_synchronization=True)` splits a group of NCCL off that of all ranks, and waits for
ranks that do not call it. The case now makes a group of gloo.

One kind of program ends well on GPUs and not here: one that learns from a store's timeout that a key is missing
([limitations](../limitations.md#networks-and-waits)).
"""
NOTES = """
## What is not found, and why

- `nccl_gloo`, `monitored`: a rank does not stop at `torch.cuda.synchronize`, so what it tells others over gloo then
  comes too early ([limitations](../limitations.md#processes)). In `monitored` the message names the rank and its
  all-reduce, not the line where it would wait.
- `skip_connection` is found, but the line that was written down is one too late: by NCCL's source rank 1 already waits
  at the end of its receive's connecting, until rank 0 is connected with all of its peers.
- `last_batch`: ranks 2 and 3 gather fewer rows, and rank 3 called too late to be named beside rank 2.
- `name_clash`: which ranks find each other in the store is a race, on GPUs as well as here.

Three programs were corrected after their first run: `recomputed` and `profile_forward` would have ended well on GPUs,
too, and DeepSpeed refused the settings of `zero3_experts`.

## Folded runs

Three of these programs were run with 64 ranks and `--fold auto`, with rank 37 as the culprit (`if rank == 37`), or with
ranks 62 and 63 (uneven data), and without `--fold-apart`. With so many ranks
all three are named with their line, in 13 to 18 s of processor time: `skipped_backward` with five processes, because
the script's text says that rank 37 is another; `numel` and `last_batch` with 64, because nothing
in them tells how the ranks divide their work.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome for one program."""

    name: str
    hang: Hang | None
    """None: the program ends well."""
    ranks: int
    verdict: str
    processor_s: float
    cases: int = 0
    """The number of cases that the program is; 0: it is one."""


def render(rows: Sequence[Row]) -> str:
    """The whole page."""
    published = [row for row in rows if row.hang is not None]
    well = [row for row in rows if row.hang is None and not row.cases]
    many = [row for row in rows if row.cases]
    counts = Counter(row.verdict for row in published)
    right = counts[Verdict.RIGHT] + counts[Verdict.ALONE]
    tried = [row for row in published if row.verdict != NOT_RUN]
    text = HEAD
    text += f"Of {len(published)} hangs, {len(tried)} were run. {right} of them are found with the guilty rank and its "
    text += (
        f"line (in {counts[Verdict.ALONE]} cases the line where the others wait is not named), {counts[Verdict.WRONG]} "
    )
    text += f"end with a message that does not name it, and {counts[Verdict.MISSED]} are not found. "
    text += f"They take {_seconds(tried)} each.\n\n"
    text += "| program | report | ranks | on GPUs | here | s |\n|---|---|---:|---|---|---:|\n"
    for row in published:
        hang = row.hang
        assert hang is not None
        text += f"| {row.name} | [{hang.issue}]({hang.link}) | {row.ranks} | {hang.gpus} | {row.verdict} | "
        text += f"{_second(row)} |\n"
    good, ran = (sum(row.verdict == "ends well" for row in well), [row for row in well if row.verdict != NOT_RUN])
    text += f"\n## Programs that end well\n\n{len(ran)} of {len(well)} programs that look like hangs were run, and "
    text += f"{good} of these end well ({_seconds(ran)} each).\n\n"
    text += "| program | ranks | here | s |\n|---|---:|---|---:|\n"
    for row in well:
        text += f"| {row.name} | {row.ranks} | {row.verdict} | {_second(row)} |\n"
    cases, end_well = sum(row.cases for row in many), sum(row.cases for row in many if row.verdict == "ends well")
    text += f"\n{cases} more programs are cases of {len(many)} jobs, which run them one after the other: "
    text += "collectives, messages, parallel models, and what ranks tell each other on the host. "
    text += "`python -m tests.hangs many` runs these jobs; the runs below are of 30 November 2026, on one state. "
    text += f"{end_well} of the {cases} end well ({_seconds(many)} of processor time for a job).\n\n"
    text += "| job | ranks | cases | here | s |\n|---|---:|---:|---|---:|\n"
    for row in many:
        text += f"| {row.name} | {row.ranks} | {row.cases} | {row.verdict} | {_second(row)} |\n"
    text += MANY_NOTES
    return text + NOTES


def _second(row: Row) -> str:
    return "" if row.verdict == NOT_RUN else f"{row.processor_s:.0f}"


def _seconds(rows: Sequence[Row]) -> str:
    seconds = sorted(row.processor_s for row in rows)
    return f"{seconds[0]:.0f} to {seconds[-1]:.0f} s" if seconds else "no time"
