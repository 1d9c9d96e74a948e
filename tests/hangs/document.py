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
runs them and writes this page; the runs below are of 30 November 2026, on several states of that day. The seconds are
processor time of the whole command. The twenty from `except_broadcast` on, and the programs that look like them, were
written when the first fifty were done: 16 of them were found at once. The last ten, from `loader_worker` on, are of
kinds that no program before has: a worker of a loader, a full pipe, layers dropped by chance, symmetric memory, a graph
with a collective in it, a request over HTTP, a schedule's warm-up, a thread at the end, a collective in a destructor,
and a flag of FSDP2 on one rank of a mesh. Nine of them were found at once.

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

- `nccl_gloo`: the message has both ranks, and rank 1 in its receive, a line before the one that was written down. NCCL
  connects them there for their first message, which rank 0 has not come to. Without that, the hang is not found: a rank
  does not stop at `torch.cuda.synchronize`, so what it tells others over gloo then comes too early
  ([limitations](../limitations.md#processes)).
- `skip_connection` is found, but the line that was written down is one too late: by NCCL's source rank 1 already waits
  at the end of its receive's connecting, until rank 0 is connected with all of its peers.
- `name_clash`: which ranks find each other in the store is a race, on GPUs as well as here. The run ends well or as a
  deadlock, with a warning that names both groups. With PyTorch 2.15's own choice of backend the program ends well on
  GPUs, too: NCCL then splits the communicator of all ranks, by the ranks of the groups. So the program chooses the
  former one.

Six programs were corrected after their first run: `name_clash` as said above, `recomputed` and `profile_forward` would
have ended well on GPUs, too, and DeepSpeed refused the settings of `zero3_experts`. The threads of `async_save_barrier`
came in their order by `time.sleep`, but threads other than the main one sleep in real time here
([limitations](../limitations.md#processes)), so that it ended well. Then they waited for each other, but which thread
called first was still left to chance; now the gather is called before the barrier. The stages of `warmup_count` also
waited for each other in their steady state, which sent before it received; now it does both at once, as does
`warmup_limited`, which had ended as a deadlock for this reason.

Six needed a change of the emulation. A message names the loop in which ranks look for something (`signal_file`), and
the lines of threads beside a rank's first one (`async_save_barrier`, `thread_at_end`). `thread_told` was a false alarm:
a thread's `time.sleep` of more than 30 s ended the run as a deadlock. In `signal_file` and `poll_buffer` ranks look for
something and sleep in turns, so that no rank is asleep for good: such a run ended after half an hour, and now ends when
it has gone on for 30 s and for half an hour of virtual time. A monitored barrier (`monitored_sleeper`) gives up in
virtual time now.

## Folded runs

Three of the last ten have 32, 64 and 256 ranks and `--fold auto`: `layer_drop` had six processes, `sync_flag` 19, and
`graph_replays` one for each rank, because nothing in it tells how the ranks divide their work.

Three others were run with 64 ranks and `--fold auto`, with rank 37 as the culprit (`if rank == 37`), or with
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
    right = counts[Verdict.RIGHT] + counts[Verdict.ALONE] + counts[Verdict.RACE]
    tried = [row for row in published if row.verdict != NOT_RUN]
    text = HEAD
    text += f"Of {len(published)} hangs, {len(tried)} were run. {right} of them are found with the guilty rank and its "
    text += (
        f"line (in {counts[Verdict.ALONE]} cases the line where the others wait is not named, "
        f"in {counts[Verdict.RACE]} a warning says that it may hang), {counts[Verdict.WRONG]} "
    )
    text += f"end with a message that does not name it, and {counts[Verdict.MISSED]} are not found. "
    text += f"They take {_seconds(tried)} each.\n\n"
    text += "| program | report | ranks | on GPUs | here | s |\n|---|---|---:|---|---|---:|\n"
    for row in published:
        hang = row.hang
        assert hang is not None
        ranks = f"{row.ranks} {' '.join(hang.options)}".rstrip()
        text += f"| {row.name} | [{hang.issue}]({hang.link}) | {ranks} | {hang.gpus} | {row.verdict} | "
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
