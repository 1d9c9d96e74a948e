"""A plugin for pytest: ``@pytest.mark.gpus(8, memory="40GiB")`` runs a test on emulated GPUs, once on each rank.

Each rank runs pytest for this one test, so that fixtures, parameters and conftest.py work; the process that the user
has started runs neither the test nor its fixtures. The test passes if it passes on all ranks and the run keeps within
its budget. The mark takes the options of ``phantora_async.run``; ``memory`` is short for ``max_memory``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from formats.nearest import meant_or_known
from phantora_async.errors import PhantoraError, UsageError
from phantora_async.options import OPTIONS

if TYPE_CHECKING:
    from phantora_async.api.run_processes import RunProcesses

IN_RANK = "PHANTORA_ASYNC_GPU_TEST"
"""The environment variable that ranks have, with the test's id."""
MARK = "gpus"
MEMORY, MAX_MEMORY = "memory", "max_memory"
_SHARED: pytest.StashKey[RunProcesses] = pytest.StashKey()
"""The part of a start that the runs of the session's tests share."""
OWN = ("world_size", "module", "launcher", "progress", "run_dir")
"""The options that follow from the test."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "gpus(count, memory=None, **options): run the test on so many emulated GPUs, once on each rank"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if IN_RANK not in os.environ:
        items[:] = [item if item.get_closest_marker(MARK) is None else _stand_in(item) for item in items]


def pytest_unconfigure(config: pytest.Config) -> None:
    if (shared := config.stash.get(_SHARED, None)) is not None:
        shared.close()


def _stand_in(item: pytest.Item) -> pytest.Item:
    assert item.parent is not None, "an item has been collected from something"
    made = OnGpus.from_parent(item.parent, name=item.name, test=item)
    made.own_markers = item.own_markers
    made.keywords.update(item.keywords)
    return made


class OnGpus(pytest.Item):
    """A test that runs on ranks."""

    def __init__(self, *, test: pytest.Item, **options: Any) -> None:
        super().__init__(**options)
        self._test = test

    def runtest(self) -> None:
        from phantora_async.api import running
        from phantora_async.api.run_processes import RunProcesses

        # The tests of a session share imports; the first one of them starts what they share.
        shared = self.config.stash.setdefault(_SHARED, RunProcesses())
        run: Callable[..., object] = running.run
        options = self._options()
        folder, kept = Path(tempfile.mkdtemp(prefix="phantora-test-")), False
        arguments = [self.nodeid, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "--no-header"]
        os.environ[IN_RANK] = self.nodeid
        try:
            with contextlib.chdir(self.config.rootpath):  # node ids are relative to it
                run(
                    "pytest",
                    [*arguments, "--rootdir", str(self.config.rootpath)],
                    module=True,
                    progress=False,
                    run_dir=folder / "run",
                    processes=shared,
                    **options,
                )
        except PhantoraError as error:
            if not isinstance(error, UsageError):  # else nothing has begun
                error.add_note(f"logs and report: {folder / 'run'}")
                kept = True
            raise
        finally:
            del os.environ[IN_RANK]
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _options(self) -> dict[str, Any]:
        """The options of the test's mark. Raises UsageError."""
        mark = self.get_closest_marker(MARK)
        assert mark is not None, "only marked tests are stood in for"
        if len(mark.args) != 1:
            raise UsageError(f"@pytest.mark.{MARK} takes one number of GPUs, as in @pytest.mark.{MARK}(8)")
        options = dict(mark.kwargs)
        for name in options:
            if name in OWN:
                raise UsageError(f"@pytest.mark.{MARK}: {name}: the test itself says it")
            if name not in (MEMORY, *OPTIONS):
                known = [MEMORY, *(one for one in OPTIONS if one not in OWN)]
                raise UsageError(f"@pytest.mark.{MARK}: {name}: unknown option; {meant_or_known(name, known)}")
        if MEMORY in options:
            if MAX_MEMORY in options:
                raise UsageError(f"@pytest.mark.{MARK}: {MEMORY} and {MAX_MEMORY} are the same limit: one of them")
            options[MAX_MEMORY] = options.pop(MEMORY)
        return {"world_size": mark.args[0], **options}

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        error = excinfo.value
        if isinstance(error, PhantoraError):
            return "\n".join([error.message, *getattr(error, "__notes__", ())])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self._test.reportinfo()
