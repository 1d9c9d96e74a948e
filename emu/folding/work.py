"""The object that a call of the stand-in for gloo returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d


class Done(c10d.Work):
    """A work that is done, in this thread, when somebody waits for it."""

    def __init__(self, finish: Callable[[], None]) -> None:
        super().__init__()
        self._finish: Callable[[], None] | None = finish
        self._done: Callable[[], None] | None = None

    @classmethod
    def of_all(cls, works: Sequence[Done]) -> Done:
        """Returns a work that is done when all of these are."""

        def finish() -> None:
            for work in works:
                work.wait()

        return cls(finish)

    def on_done(self, done: Callable[[], None]) -> None:
        """Has `done` called once, when the work is done."""
        self._done = done

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        done, self._done = self._done, None
        if done is not None:
            done()
        return True

    def is_completed(self) -> bool:
        return self.wait()

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        self.wait()
        future: torch.futures.Future[None] = torch.futures.Future()
        future.set_result(None)
        return future
