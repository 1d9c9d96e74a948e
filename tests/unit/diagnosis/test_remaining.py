"""How much of a run is done, and how long the rest takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_async.diagnosis.remaining import Remaining, Share, logged_steps


def test_the_rest_goes_as_fast_as_what_was_seen() -> None:
    it = Remaining()
    assert it.document(0.0) is None
    it.look(Share(0, 10, "--steps"), 1.0)
    assert it.document(1.0) == {"done": 0, "whole": 10, "share": 0.0, "remaining_s": None, "source": "--steps"}
    it.look(Share(1, 10, "--steps"), 100.0)  # starting took long: it says nothing about the rest
    assert it.document(100.0) == {"done": 1, "whole": 10, "share": 0.1, "remaining_s": None, "source": "--steps"}
    it.look(Share(4, 10, "--steps"), 106.0)
    assert it.document(106.0) == {"done": 4, "whole": 10, "share": 0.4, "remaining_s": 12.0, "source": "--steps"}
    it.look(Share(11, 10, "--steps"), 120.0)
    assert it.document(120.0) == {"done": 11, "whole": 10, "share": 1.0, "remaining_s": 0.0, "source": "--steps"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step 3/10 loss 2.1\nstep 4/10 loss 2.0\n", (4, 10)),
        ("[Step: 7 / 200]\n", (7, 200)),
        (" iteration        5/     100 | elapsed time\n", (5, 100)),
        (" 12%|███▌      | 12/100 [00:03<00:20,  4.1it/s]\r 13%|███▌      | 13/100 [00:03<00:20]", (13, 100)),
        ("Epoch 0:  30%|███ | 3/10 [00:01<00:04]", (3, 10)),
        ("Loading weights:   0%|          | 0/39\rLoading weights: 100%|██████████| 39/39 [00:00<00:00]", None),
        (" 13%|███▌      | 13/100 [00:03]\nWriting model shards:  50%|#####     | 1/2", (13, 100)),
        ("1|3|Loss: 2.31:  30%|###       | 3/10 [00:05<00:11]", (3, 10)),
        ("2026/11/22 reading /data/1/2\n", None),
        ("loss 0.5/1\n", None),
        ("Scaling the LR ∝1/√(256/768) = 1.732\n", None),
        ("Epoch 1 (5/10) loss 2.0\n", (5, 10)),
        ("step 11/10\n", None),
        ("", None),
    ],
)
def test_what_the_script_s_log_counts_to(tmp_path: Path, text: str, expected: tuple[int, int] | None) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(text)
    share = logged_steps(log)
    assert (None if share is None else (share.done, share.whole)) == expected


def test_without_a_log_nothing_is_known(tmp_path: Path) -> None:
    assert logged_steps(tmp_path / "rank0.log") is None
