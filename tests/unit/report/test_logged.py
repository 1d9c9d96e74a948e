"""Rates in the scripts' own log lines, as frameworks write them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from emu.contract.clocks import REAL_TIME
from phantora_async.report.logged import Log, logged_rates

LINES = {
    "examples/train.py": (
        "step   3  loss  0.0000     415.11 ms        78,939 tokens/s   422.9 TFLOP/s/GPU  MFU  42.7%  peak  30.51 GiB",
        {"tokens/s": 78939, "TFLOP/s": 422.9, "MFU": 42.7},
    ),
    "torchtitan": (
        "[titan] 2026-01-01 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  4.0  \x1b[33mmemory:  0.50GiB(0.36%)  "
        "\x1b[34mtps: 1,062,403  \x1b[36mtflops: 92.70  \x1b[35mmfu: 9.37%\x1b[39m",
        {"tokens/s": 1062403, "TFLOP/s": 92.70, "MFU": 9.37},
    ),
    "Hugging Face's Trainer": (
        "{'train_runtime': 4.1, 'train_samples_per_second': 389.8, 'train_steps_per_second': 24.362, 'epoch': 1.0}",
        {"samples/s": 389.8, "steps/s": 24.362},
    ),
    "Hugging Face's Trainer, texts": (
        "{'train_runtime': '4.1', 'train_samples_per_second': '1.2e+03', 'train_tokens_per_second': '5000'}",
        {"samples/s": 1200, "tokens/s": 5000},
    ),
    "Megatron-LM": (
        " [2026-01-01] iteration 4/ 10 | elapsed time per iteration (ms): 101.5 | throughput per GPU (TFLOP/s/GPU): "
        "250.3 | learning rate: 1.0E-04 | loss scale: 1.0 |",
        {"TFLOP/s": 250.3},
    ),
    "DeepSpeed": (
        "[INFO] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=811.25, CurrSamplesPerSec=820.1, "
        "MemAllocated=1.2GB, MaxMemAllocated=2.0GB",
        {"samples/s": 811.25},
    ),
    "Lightning": ("\rEpoch 0:  50%|#####     | 5/10 [00:00<00:00, 18.31it/s, v_num=0]", {"steps/s": 18.31}),
    "Hugging Face's data sets": ("\rGenerating train split: 60 examples [00:00, 254457.27 examples/s]", {}),
    "timm": ("Train: 0 [ 10/100]  Loss: 6.9  Time: 0.1s, 1204.34/s  LR: 1e-3", {}),
    "words": ("images/s: 1,204.5, about 12 samples per second", {"images/s": 1204.5, "samples/s": 12}),
    "no rates": ("step 3 loss 0.1 in 20 s; 12 tokens; 3 s per image; 5 samples", {}),
}


def write(folder: Path, before: str, steps: Sequence[str], after: str = "", *, counted: tuple[int, int]) -> Log:
    """Writes a log of what was printed until the first step ended, between the ends of the others, and after the last
    one.
    """
    texts = [text.encode() for text in (before, *steps)]
    path = folder / "rank0.log"
    path.write_bytes(b"".join(texts) + after.encode())
    return Log(0, path, list(accumulate(map(len, texts))), counted)


def rates(log: Log) -> dict[str, float]:
    return {one["rate"]: one["value"] for one in logged_rates([log])}


@pytest.mark.parametrize("name", LINES)
def test_known_forms(name: str, tmp_path: Path) -> None:
    """Printed in the steps that count, the last time after the last step."""
    line, expected = LINES[name]
    earlier = line.replace("5/10", "4/10").replace(" 10/100", " 9/100")
    log = write(tmp_path, "", [f"{earlier}\n"], f"something else\n{line}\n", counted=(0, 1))
    assert rates(log) == expected
    assert all(one["rank"] == 0 for one in logged_rates([log]))


def test_the_first_log_that_has_any_counts(tmp_path: Path) -> None:
    for rank, text in ((0, "no rate\n"), (3, "100 tokens/s\n 200 tok/sec\n"), (1, "7 tokens/s")):
        (tmp_path / f"rank{rank}.log").write_text(text)
    logs = [Log(rank, tmp_path / f"rank{rank}.log") for rank in (0, 9, 3, 1)]
    assert logged_rates(logs) == [
        {"rank": 3, "rate": "tokens/s", "value": 200.0, "text": "200 tok/sec", "window": "run"}
    ]


def test_a_log_with_times_of_this_machine_has_no_rates(tmp_path: Path) -> None:
    """`vllm bench serve`, for example, is a process without a GPU, whose log is the server's."""
    path = tmp_path / "rank0.log"
    line = "Total token throughput (tok/s):          346.21\n"
    path.write_text(line)
    assert [one["value"] for one in logged_rates([Log(0, path)])] == [346.21]
    path.write_text(f"{REAL_TIME}, and that of the GPUs is not\n{line}")
    assert logged_rates([Log(0, path)]) == []


def test_a_log_of_any_size_and_any_bytes(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(b"1 tokens/s\n" + b"\xff\x00" * (1 << 20) + b"\n2 tokens/s \xfe")
    assert [one["value"] for one in logged_rates([Log(0, log)])] == [2.0]


def bar(name: str, count: int, rate: float, whole: int = 8) -> str:
    return f"\r{name}: {count / whole:.0%}|###  | {count}/{whole} [00:00<00:00, {rate}it/s]"


def test_only_bars_that_come_further_with_the_steps_are_training(tmp_path: Path) -> None:
    def step(number: int) -> str:
        shards = "".join(bar("Writing shards", count, 2736) for count in range(1, 9))
        return bar("train", number, 10 + number) + shards + bar("Downloading", 8, 99)

    log = write(tmp_path, step(1), [step(2), step(3)], bar("Saving", 8, 5000), counted=(0, 2))
    assert rates(log) == {"steps/s": 13}
    assert logged_rates([log])[0]["window"] == "steps"


def test_a_bar_goes_on_after_the_last_step(tmp_path: Path) -> None:
    log = write(tmp_path, "", [bar("train", 2, 12), bar("train", 3, 13)], bar("train", 4, 14), counted=(0, 2))
    assert rates(log) == {"steps/s": 14}


def test_bars_in_a_run_without_steps_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rank0.log"
    path.write_text(bar("Writing shards", 1, 2736) + bar("Writing shards", 2, 2736))
    assert logged_rates([Log(0, path)]) == []


def test_rates_of_other_phases_are_not_of_training(tmp_path: Path) -> None:
    """Before the steps that count, on lines of an evaluation, and what nothing in the steps resembles."""
    log = write(
        tmp_path,
        "tokenised 90000 tokens/s\n",
        ["eval: 5000 samples/s\n", "step 2: 70 tokens/s\n"],
        "step 3: 80 tokens/s\nexported 7 images/s\n",
        counted=(0, 2),
    )
    assert rates(log) == {"tokens/s": 80}
