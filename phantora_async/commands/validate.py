"""Run measured jobs in emulation and compare them with what real GPUs did.

TRUTH.jsonl holds one JSON object a line, as the job script printed it on real GPUs: job, world, free_running_step_s
(or tps_median), max_alloc, max_reserved. A job with several lines was measured several times: errors are distances
from the range of its real runs. Lines with op, world, bytes and us_median are collectives, timed on GPUs that the host
keeps busy; they need no script.

--all BOOK runs every job of a book of truth (in a checkout: laboratory/programs/truth.toml), keeps what each gave, and
writes the pages of errors of all families.

--clusters BOOK predicts runs of many servers whose speed others published (in a checkout:
laboratory/programs/clusters.toml), and writes the page that holds both side by side.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from phantora_async.errors import JobsFailed, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "phantora-async validate TRUTH.jsonl [...] --script JOBS.py [options]\n"
        "       phantora-async validate --all BOOK.toml [--only JOB,...] [--pages] [--run-options TEXT]\n"
        "       phantora-async validate --clusters BOOK.toml [--only ROW,...] [--pages] [--python NAME=FILE] "
        "[--folder NAME=DIR]"
    )
    parser.add_argument("truth", nargs="*", type=Path, metavar="TRUTH", help="what was measured")
    parser.add_argument("--all", type=Path, metavar="BOOK", help="run all jobs of a book, and write its pages")
    parser.add_argument(
        "--clusters", type=Path, metavar="BOOK", help="predict all rows of a book of clusters, and write its page"
    )
    parser.add_argument(
        "--pages", action="store_true", help="with --all and --clusters: run nothing, write the pages anew"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="with --clusters: the interpreter that the book calls NAME; rows of others are left out; may be repeated",
    )
    parser.add_argument(
        "--folder",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="with --clusters: the folder that the book calls {NAME}; may be repeated",
    )
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="the script that runs a job, which its arguments name"
    )
    parser.add_argument(
        "--arguments",
        default="--jobs {job} --steps {steps} --warm {warm}",
        help="arguments of the script (default: %(default)s; {world} is known, too)",
    )
    parser.add_argument("--only", default="", metavar="JOB,...", help="these jobs")
    parser.add_argument("--skip", default="", metavar="JOB,...", help="all but these")
    parser.add_argument("--steps", type=int, default=4, help="steps that count (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=2, help="steps before them (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")
    parser.add_argument(
        "--traces",
        type=Path,
        metavar="DIR",
        help="traces of torch.profiler, JOB.json or JOB.r0.json.gz: compare kernels",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a picture (.png, .svg)")
    parser.add_argument(
        "--docs", type=Path, metavar="FILE", help="write the table between <!-- validate: NAME --> and <!-- end -->"
    )
    parser.add_argument("--name", metavar="NAME", help="NAME of that place (default: the script's, without .py)")
    parser.add_argument(
        "--run-options", default="", metavar="TEXT", help="options for `phantora-async run`, as one quoted string"
    )


def run(given: argparse.Namespace) -> int:
    from phantora_async.validation import collectives, comparison, emulation, kernels, tables, truth

    if given.all is not None:
        return _everything(given)
    if given.clusters is not None:
        return _clusters(given)
    if given.python or given.folder:
        raise UsageError("--python and --folder are of a book of clusters", "name it: --clusters BOOK.toml")
    if given.pages:
        raise UsageError("--pages writes the pages of a book", "name it: --all BOOK.toml, or --clusters BOOK.toml")
    if not given.truth:
        raise UsageError("there is nothing to compare with", "name truth files, or a book with --all")
    found = truth.load(given.truth)
    if given.traces is not None and not given.traces.is_dir():
        raise UsageError(f"--traces {given.traces}: no such folder")
    only, skip = _names(given.only), _names(given.skip)
    if unknown := only - {job.job for job in found.jobs}:
        raise UsageError(f"--only: no such job: {', '.join(sorted(unknown))}", "name jobs of the truth files")
    jobs = [job for job in found.jobs if job.job not in skip and (not only or job.job in only)]
    # Collectives need no emulation: they are shown before the first job runs.
    pairs = collectives.compare(found.collectives) if found.collectives else []

    def say(text: str) -> None:
        if not given.json:
            print(text, flush=True)

    if pairs:
        say(collectives.text(pairs))
    if not jobs and not pairs:
        raise UsageError("there is no job to run", "a truth file's line of a job has the keys job and world")
    if not jobs:
        if given.json:
            print(json.dumps({"collectives": collectives.document(pairs)}, indent=1))
        return 0
    if given.script is None or not given.script.is_file():
        raise UsageError(
            "--script: name the script that runs the jobs", "the script that printed the lines of the truth file"
        )
    options = tuple(shlex.split(given.run_options))
    command = emulation.JobCommand(given.script, given.arguments, given.steps, given.warm, options)
    rows, compared = [], []
    say(tables.HEADER)
    for number, job in enumerate(jobs, start=1):
        print(f"{number}/{len(jobs)}: {job.job} on {job.world} GPUs ...", file=sys.stderr, flush=True)
        emulated = emulation.emulate(command, job)
        rows.append(comparison.compare(job, emulated))
        say(tables.line(rows[-1]))
        if given.traces is not None and (trace := kernels.find(given.traces, job.job)) is not None:
            compared.append(kernels.compare(trace, job.job, emulated.report))
    say(tables.summary(rows))
    for one in compared:
        say(one.text())
    if given.json:
        document = comparison.document(rows) | {
            "kernels": [one.document() for one in compared],
            "collectives": collectives.document(pairs),
        }
        print(json.dumps(document, indent=1))
    if given.plot is not None:
        from phantora_async.validation.plot import plot

        plot(rows, given.plot)
    if given.docs is not None:
        text = f"{tables.table(rows)}\n\n{tables.summary(rows)}."
        tables.write_into(given.docs, given.name or given.script.stem, text)
    if failed := [row.job for row in rows if row.failure]:
        raise JobsFailed(f"{len(failed)} of {len(rows)} jobs failed: {', '.join(failed)}")
    return 0


def _everything(given: argparse.Namespace) -> int:
    from phantora_async.validation.everything import everything

    _check_alone(given, "--all", {"--clusters": given.clusters, "--python": given.python, "--folder": given.folder})
    options = tuple(shlex.split(given.run_options))
    everything(given.all, _names(given.only), _names(given.skip), options, run=not given.pages)
    return 0


def _clusters(given: argparse.Namespace) -> int:
    from phantora_async.validation.clusters import clusters

    _check_alone(given, "--clusters", {"--skip": given.skip, "--run-options": given.run_options})
    pythons, folders = (_pairs(option, words) for option, words in (("python", given.python), ("folder", given.folder)))
    clusters(given.clusters, _names(given.only), pythons, folders, run=not given.pages)
    return 0


def _check_alone(given: argparse.Namespace, book: str, more: dict[str, object]) -> None:
    """Raises UsageError for an option that says something which a book says."""
    others = {
        "--script": given.script,
        "--json": given.json,
        "--traces": given.traces,
        "--plot": given.plot,
        "--docs": given.docs,
        "TRUTH": given.truth,
        **more,
    }
    if wrong := [name for name, value in others.items() if value]:
        raise UsageError(f"{book} takes no {wrong[0]}", "the book says what is run and written")


def _pairs(option: str, words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"--{option} {word}: expected NAME=PATH")
        found[name] = str(Path(value).absolute())
    return found


def _names(text: str) -> set[str]:
    return set(filter(None, text.split(",")))
