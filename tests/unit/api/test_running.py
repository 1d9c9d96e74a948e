"""A run in a process of its own, as Python's API has it."""

import os
import selectors
from pathlib import Path
from typing import Any

import pytest

from phantora_async.api import running
from phantora_async.options import RunOptions

WAITS = """
import os, signal, time
def stop(number, frame):
    open(os.environ["PLACE"] + ".stopped", "w").close()
    os._exit(0)
signal.signal(signal.SIGINT, stop)
open(os.environ["PLACE"], "w").close()
while True:
    time.sleep(0.01)
"""


def test_ctrl_c_between_two_reads_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is not ended without its report, wherever the signal comes."""
    place = tmp_path / "place"
    os.mkfifo(place)

    class Interrupted(selectors.DefaultSelector):
        asked = False

        def get_map(self) -> Any:
            if not Interrupted.asked:
                Interrupted.asked = True
                place.open().close()  # when the process can be interrupted
                raise KeyboardInterrupt
            return super().get_map()

    monkeypatch.setattr(running, "BOOTSTRAP", WAITS)
    monkeypatch.setattr(selectors, "DefaultSelector", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.run_with(RunOptions("train.py"), {"PLACE": str(place)})
    assert (tmp_path / "place.stopped").exists()
