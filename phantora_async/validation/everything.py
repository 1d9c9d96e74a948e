"""All of the book of truth: runs its jobs, keeps what they gave, and writes the pages of errors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Set
from pathlib import Path

from phantora_async.errors import JobsFailed, UsageError
from phantora_async.validation import book as books
from phantora_async.validation import emulation, kept_rows, page, tables
from phantora_async.validation.book import Book, Family
from phantora_async.validation.kept_rows import KeptRow
from phantora_async.validation.truth import JobTruth
from profiles import load_gpu, load_table, shipped_times


def everything(path: Path, only: Set[str], skip: Set[str], options: tuple[str, ...], run: bool) -> None:
    """Runs the jobs of the book (`only` these, if any are named), and writes its rows and pages. Rows of other jobs
    stay. `run` False: none. Raises JobsFailed behind the pages if a job failed.
    """
    book = books.read(path)
    names = {job.job for _, job in book.jobs()}
    if unknown := (only | skip) - names:
        raise UsageError(f"no such job in {path}: {', '.join(sorted(unknown))}", "name jobs of its families")
    chosen = [(family, job) for family, job in book.jobs() if job.job not in skip and (not only or job.job in only)]
    kept = kept_rows.read(book.rows)
    failed = []
    if run:
        print(tables.HEADER)
        commit, in_tables = kept_rows.commit_of(path.absolute().parent), jobs_in_tables(book)
        for number, (family, job) in enumerate(chosen, start=1):
            print(f"{number}/{len(chosen)}: {job.job} on {job.world} x {family.gpu} ...", file=sys.stderr, flush=True)
            row = _row(family, job, options, commit, (family.gpu, job.job) in in_tables)
            kept = kept_rows.read(book.rows) | {row.key: row}  # another process may have added some
            kept_rows.write(book.rows, _in_order(book, kept))
            print(page.line(row), flush=True)
            failed += [job.job] if row.failure else []
    page.write(book, _in_order(book, kept))
    if failed:
        raise JobsFailed(f"{len(failed)} of {len(chosen)} jobs failed: {', '.join(failed)}")


def _row(family: Family, job: JobTruth, options: tuple[str, ...], commit: str, in_table: bool) -> KeptRow:
    command = dataclasses.replace(family.command, run_options=(*family.command.run_options, *options))
    emulated = emulation.emulate(command, job)
    return kept_rows.row_of(family, family.fitted or in_table, job, emulated, commit)


def _in_order(book: Book, kept: dict[kept_rows.Key, KeptRow]) -> list[KeptRow]:
    """The book's order. Rows of jobs that the book has no longer go."""
    keys = [(family.gpu, job.job, job.world) for family, job in book.jobs()]
    return [kept[key] for key in keys if key in kept]


def jobs_in_tables(book: Book) -> set[tuple[str, str]]:
    """The jobs of whose traces the shipped tables have times, with their GPU; none where runs use no tables."""
    found = set()
    for gpu in {family.gpu for family in book.families if "--kernel-times" not in family.command.run_options}:
        for table, _ in shipped_times(load_gpu(gpu.partition(",")[0])):
            found |= {(gpu, origin["job"]) for origin in load_table(table).origins if "job" in origin}
    return found
