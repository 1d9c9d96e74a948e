"""Runs configurations of published tables, and writes what is predicted beside what was measured.

    python laboratory/programs/published/run.py OUT.jsonl [--jobs N] [--tables mpt-h100,mpt-a100,titan] [--until SECONDS]

Rows that OUT has already are not run again. It needs `phantora-async` beside this interpreter's PyTorch.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLUSTERS = {"h100_80gb": "hgx-h100-roce", "a100_80gb": "p4de", "a100_40gb": "dgx-a100"}
MOST_MICROBATCHES = 2
"""The most microbatches of a step: more are like these."""
FLOAT8 = (
    "--model.converters quantize.linear.float8 --quantize.linear.float8.enable_fsdp_float8_all_gather "
    "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"
)


def mpt(row):
    accumulate = min(row["accumulate"], MOST_MICROBATCHES)
    words = ["--cluster", CLUSTERS[row["gpu"]]]
    if row["gpu"] == "a100_40gb":
        words += ["--gpu", "a100-40g"]
    words += ["--fold", f"dp={row['gpus']}", str(HERE / "mpt.py"), "--accumulate", str(accumulate)]
    for name in ("layers", "width", "heads", "tokens", "batch"):
        words += [f"--{name}", str(row[name])]
    words += ["--recompute"] * row["recompute"] + ["--grad-op"] * (row["sharding"] == "SHARD_GRAD_OP")
    words += ["--pure"] * (row["mode"] == "PURE")
    return words, row["batch"] * row["tokens"] * accumulate


def titan(row):
    """`tokens`: of a GPU, tensor parallelism left out."""
    flags = shlex.split(row["flags"].replace("FLOAT8", FLOAT8))
    tp = int(flags[flags.index("--parallelism.tensor_parallel_degree") + 1]) if "tensor" in row["flags"] else 1
    batch = int(flags[flags.index("--training.local_batch_size") + 1])
    words = ["--cluster", "dgx-h100", "--gpu", "h100-96g-hbm2e", "--fold", "auto", str(HERE.parent / "sweeps/titan.py")]
    words += ["--training.seq_len", "8192", "--activation_checkpoint.selective_ac_option", "op"]
    words += [] if "checkpoint.mode" in row["flags"] else ["--activation_checkpoint.mode", "selective"]
    return words + flags, batch * 8192 / tp


def predicted(name, row, python=None):
    words, tokens = (titan if name == "titan" else mpt)(row)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "phantora_async", "run", "-n", str(row["gpus"]), "--nproc-per-node", "8"]
        command += ["--steps", "5", "--show-ranks", "none", "--run-dir", f"{folder}/run"]
        command += [*(["--python", python] if python else []), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = {"source": name, "row": row, "exit_code": done.returncode, "wall_s": round(time.monotonic() - began, 1)}
        report = Path(folder, "run/report.json")
        if report.exists():
            simulated = json.loads(report.read_bytes())["simulated"]
            verdict = simulated.get("memory", {}).get("verdict")
            told["fits"] = verdict and verdict["fits"]
            told["reserved_gib"] = max(one["memory"]["reserved_peak_nbytes"] for one in simulated["ranks"]) / 2**30
            if done.returncode == 0:
                told["tokens_per_s_gpu"] = tokens / (simulated["step"]["median_ns"] / 1e9)
        if done.returncode:
            told["error"] = (done.stderr or done.stdout)[-400:]
        return told


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", default="titan,mpt-h100,mpt-a100")
    parser.add_argument("--python", help="with PyTorch; default: this one")
    parser.add_argument("--models", default="", help="of MPT: 1b,7b")
    parser.add_argument("--until", type=float, default=1e9, help="no row begins so many seconds after the start")
    given = parser.parse_args()
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    tasks = []
    for name in given.tables.split(","):
        file = "titan.jsonl" if name == "titan" else "llm_foundry.jsonl"
        rows = [json.loads(line) for line in (HERE / file).read_text().splitlines()]
        gpu = {"mpt-h100": "h100_80gb", "mpt-a100": "a100_80gb", "mpt-a100-40": "a100_40gb"}.get(name)
        models = given.models.split(",") if given.models else None
        tasks += [
            (name, row)
            for row in rows
            if gpu in (None, row.get("gpu")) and (models is None or row.get("model") in models)
        ]
    tasks = [
        (name, row) for name, row in tasks if not any(one["source"] == name and one["row"] == row for one in known)
    ]
    began = time.monotonic()
    with given.out.open("a") as out, ThreadPoolExecutor(given.jobs) as pool:

        def one(task):
            if time.monotonic() - began > given.until:
                return
            told = predicted(*task, given.python)
            out.write(json.dumps(told) + "\n")
            out.flush()

        list(pool.map(one, tasks))


if __name__ == "__main__":
    main()
