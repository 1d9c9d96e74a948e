"""What a call of the stand-in for gloo returns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d


class Done(c10d.Work):
    """Work that is done, in this thread, when somebody waits for it."""

    def __init__(self, finish: Callable[[], None]) -> None:
        super().__init__()
        self._finish: Callable[[], None] | None = finish

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
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
