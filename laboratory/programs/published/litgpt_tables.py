"""Runs LitGPT's published tables of memory on one GPU, and writes what is predicted beside what was measured.

    python laboratory/programs/published/litgpt_tables.py OUT.jsonl [--jobs N] [--python PYTHON]
    python laboratory/programs/published/litgpt_tables.py --table OUT.jsonl

`litgpt.jsonl`: rows without quantization of tutorials/resource-tables.md (A100 of 40 GB, PyTorch 2.1) and of
config_hub/finetune/README.md (A10G, `gb`: most allocated, none: out of memory), with the settings of its files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent


def predicted(row, python):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "phantora_async", "run", "--cluster", "dgx-a100", "--gpu", row["gpu"]]
        command += ["--show-ranks", "none", "--run-dir", f"{folder}/run", *(["--python", python] if python else [])]
        command += [str(HERE / "litgpt_job.py"), json.dumps(row)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = {"row": row, "exit_code": done.returncode}
        report = Path(folder, "run/report.json")
        if report.exists():
            simulated = json.loads(report.read_bytes())["simulated"]
            verdict = simulated.get("memory", {}).get("verdict")
            told["fits"] = verdict and verdict["fits"]
            told["gb"] = max(one["memory"]["allocated_peak_nbytes"] for one in simulated["ranks"]) / 1e9
        if done.returncode:
            told["error"] = (done.stderr or done.stdout)[-400:]
        return told


def table(path):
    print("| how | model | batch | GPU | GB measured | here | |\n| --- | --- | ---: | --- | ---: | ---: | ---: |")
    right = 0
    told = [json.loads(line) for line in path.read_text().splitlines()]
    for one in told:
        row, fits = one["row"], one.get("fits")
        right += fits == (row["gb"] is not None)
        measured = "out of memory" if row["gb"] is None else row["gb"]
        here = f"{one['gb']:.2f}" if fits else "out of memory" if fits is False else f"ended with {one['exit_code']}"
        off = f"{one['gb'] / row['gb'] - 1:+.1%}".replace("%", " %") if fits and row["gb"] else ""
        cells = (row["how"], row["model"], row.get("micro_batch", ""), row["gpu"], measured, here, off)
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"{right} of {len(told)} verdicts as measured")


def main():
    if sys.argv[1:2] == ["--table"]:
        return table(Path(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--python")
    given = parser.parse_args()
    rows = [json.loads(line) for line in (HERE / "litgpt.jsonl").read_text().splitlines()]
    with given.out.open("w") as out, ThreadPoolExecutor(given.jobs) as pool:
        for told in pool.map(lambda row: predicted(row, given.python), rows):
            out.write(json.dumps(told) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
