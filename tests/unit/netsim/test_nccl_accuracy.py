"""Plans against measured kernels, the fit, and what a fit on a part predicts of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from netsim.collectives import load_params
from netsim.tools import nccl_accuracy as accuracy

HOPPER = load_params("hopper")
MEASURED = Path(__file__).parent / "nccl_device_h200.jsonl"


def _errors(rows: list[accuracy.Measurement]) -> list[float]:
    return sorted(abs(guess / row.us - 1) for row, guess in accuracy.compare(rows, HOPPER))


@pytest.mark.parametrize("machine", [1, 2])
@pytest.mark.parametrize("events_us", [0.0, accuracy.EVENTS_US])
def test_what_nccl_does_by_itself(machine: int, events_us: float) -> None:
    rows = [row for row in accuracy.read(MEASURED, events_us) if row.machine == machine and not row.env]
    errors = _errors([row for row in rows if row.nbytes >= accuracy.SMALL])
    assert errors[len(errors) // 2] < 0.05
    assert errors[-1] < 0.17
    small = [(row.us, guess) for row, guess in accuracy.compare(rows, HOPPER) if row.nbytes < accuracy.SMALL]
    assert max(abs(guess - us) for us, guess in small) < 3


@pytest.mark.parametrize(
    ("variable", "median", "worst"),
    [
        ("NCCL_PROTO", 0.05, 0.13),
        ("NCCL_MAX_NCHANNELS", 0.06, 0.35),
        ("NCCL_BUFFSIZE", 0.05, 0.15),
        ("NCCL_P2P_DISABLE", 0.20, 0.45),
        ("NCCL_ALGO", 0.20, 0.45),
    ],
)
def test_what_nccls_variables_do(variable: str, median: float, worst: float) -> None:
    rows = [row for row in accuracy.read(MEASURED) if variable in dict(row.env) and row.nbytes >= accuracy.SMALL]
    errors = _errors(rows)
    assert errors[len(errors) // 2] < median
    assert errors[-1] < worst


def test_a_fit_finds_changed_parameters_again() -> None:
    changed = accuracy.put(HOPPER, ("kernel", "step_us", 0), 2.0)
    changed = accuracy.put(changed, ("p2p", "one_way", "ll_start_us"), 3.0)
    rows = [row for row in accuracy.read(MEASURED) if row.nbytes < 32768 and not row.env][::4]
    fitted = accuracy.fit(rows, changed, rounds=4)
    assert fitted.kernel.step_us[0] == pytest.approx(HOPPER.kernel.step_us[0], rel=0.15)
    assert fitted.p2p.one_way.ll_start_us == pytest.approx(HOPPER.p2p.one_way.ll_start_us, rel=0.15)


def test_the_report_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main([str(MEASURED), "--rows"]) == 0
    out = capsys.readouterr().out
    assert "NCCL_PROTO=LL128" in out
    assert "all_to_all         4" in out
