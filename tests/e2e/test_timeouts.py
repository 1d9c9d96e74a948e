"""Timeouts of libraries do not run out because the emulation is slow; a program that is stuck is still found."""

from __future__ import annotations

import pytest

from .conftest import DEADLOCK_SOON, SCRIPTS, Finished, Run

pytestmark = pytest.mark.torch


def test_a_busy_rank_is_waited_for(run: Run) -> None:
    done = run("short_timeouts.py", "store", "nccl", "gloo", "loader", "rpc", n=2)
    assert done.exit_code == 0, done.output
    assert "PASSED store nccl gloo loader rpc" in done.output
    assert done.simulated["virtual_ns"] < 1e9, "the timeout has not passed in virtual time"


def test_a_wait_for_a_gpu_times_out_in_virtual_time(run: Run) -> None:
    done = run("wait_too_long.py", n=2)
    assert "rank 0 waited 36" in done.output
    waited_s = [int(line.split()[3]) for line in done.output.splitlines() if line.startswith("gave up after")]
    assert waited_s == [pytest.approx(7200, rel=0.011)], done.output
    assert done.exit_code == 3, done.output


def test_a_monitored_barrier_gives_up_in_virtual_time(run: Run) -> None:
    done = run("monitored_barriers.py", n=3)
    assert done.exit_code == 0, done.output
    assert [line for line in done.log(0).splitlines() if "after" in line] == [
        "passed after 3.0 s",
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms (after 2.0 s)",
        "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms (after 2.0 s)",
    ]


@pytest.mark.versions
def test_a_blocking_wait_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")
    done = run("wait_too_long.py", n=2)
    assert "rank 0 waited 36" in done.output
    assert "gave up after" in done.output
    assert done.exit_code == 3, done.output


def test_a_wait_that_never_ends_is_found(run: Run) -> None:
    done = run("never_set.py", n=2, constants=DEADLOCK_SOON)
    assert done.exit_code == 75, done.output
    assert "deadlock" in done.output


def test_a_rank_that_asks_a_local_socket_over_and_over_waits(run: Run) -> None:
    done = run("local_socket.py", n=2, options=("--stall-timeout", "120"))
    assert done.exit_code == 0, done.output
    assert "GOT [0, 1, 2]" in done.output
    assert 0.75e9 <= done.simulated["virtual_ns"] < 0.8e9, "rank 1 sleeps three times a quarter of a second"


def serve(run: Run, client: str) -> Finished:
    command = f"python {SCRIPTS}/served.py server & python {SCRIPTS}/served.py {client}; wait"
    options = ("--nproc-per-node", "1", "--launcher", "--")
    return run("sh", "-c", command, n=1, options=options, constants=DEADLOCK_SOON)


def test_a_server_is_idle_while_its_client_works(run: Run) -> None:
    """For three times as long as ranks that sleep may."""
    done = serve(run, "client")
    assert done.exit_code == 0, done.output
    assert "ANSWER c000" in done.log(0), "3 * 64"


def test_a_server_that_waits_for_its_client_s_words_is_stuck(run: Run) -> None:
    done = serve(run, "silent")
    assert done.exit_code == 75, done.output
    assert "deadlock: no rank has made progress" in done.output
