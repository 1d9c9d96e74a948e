"""Runs Megatron-LM's functional tests, and compares memory and time with their golden values.

    python laboratory/programs/goldens/run.py MEGATRON OUT.jsonl [--jobs N] [--python PYTHON] [--only TEST,TEST] [--fold MESH] [--until SECONDS]
    python laboratory/programs/goldens/run.py --table OUT.jsonl

Without --only those that need no Transformer Engine are run; with it PYTHON is to have what they use. MESH: as `run --fold` takes it.

MEGATRON: a checkout, in which each test's model_config.yaml says what it runs. GPT has mock data and a tokenizer of as
many words, T5 a text and a tokenizer of random words; nothing is saved; three steps. The bytes are of the last rank, which logs.
A test has golden values of several containers and machines: its first and second iteration and its last.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import words
import yaml

HERE = Path(__file__).resolve().parent
LEFT_OUT = (
    "--save", "--load", "--data-path", "--vocab-file", "--merge-file", "--data-cache-path", "--async-save",
    "--use-persistent-ckpt-worker", "--ckpt-format", "--dist-ckpt-optim-fully-reshardable", "--dist-ckpt-strictness",
    "--tensorboard-dir", "--use-checkpoint-opt_param-scheduler", "--exit-interval", "--dist-ckpt-format",
    "--auto-detect-ckpt-format", "--ckpt-fully-parallel-load", "--ckpt-assume-constant-structure",
    "--no-ckpt-fully-parallel-save", "--tokenizer-type", "--vocab-size",
)  # fmt: skip
INSTEAD = ["--tensorboard-dir", "board"]
GPT = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "50256"]
T5 = ["--tokenizer-type", "BertWordPieceCase", "--split", "90,5,5", "--data-path", "text", "--data-cache-path", "cache"]
SET = {
    "NCCL_PROTO": "simple", "NCCL_ALGO": "Ring", "NCCL_COLLNET_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
    "NCCL_BUFFSIZE": "4194304", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
}  # fmt: skip
"""Variables that the script sets by which Megatron's tests are started."""
GPUS = {"h100": "dgx-h100", "a100": "dgx-a100"}
FIGURES = ("mem-allocated-bytes", "mem-max-allocated-bytes")
TIME = "iteration-time"


def arguments(given):
    for key, value in given.items():
        if key in LEFT_OUT or value is False:
            continue
        yield key
        if value is not True and value is not None:
            yield from str(value).split()


def goldens(folder):
    """Returns for each file of golden values its figures after iterations 1 and 2 and at the end, as far as the file
    has them, and the median of its iterations' times.
    """
    found = {}
    for path in sorted(folder.glob("golden_values_*.json")):
        told = json.loads(path.read_text())
        if FIGURES[0] in told and told[FIGURES[0]]["values"].get("1") not in (None, "nan"):
            values = {name: told[name]["values"] for name in FIGURES if name in told}
            kind = path.stem.removeprefix("golden_values_")
            found[kind] = {name: [one.get("1"), one.get("2"), list(one.values())[-1]] for name, one in values.items()}
            times = [one for one in told.get(TIME, {"values": {}})["values"].values() if one != "nan"]
            if times:
                found[kind][TIME] = statistics.median(times)
    return found


def named(known, gpu):
    """Returns the names of this GPU's files; files that name no GPU are of the A100."""
    return [kind for kind in known if gpu in kind or (gpu == "a100" and kind in ("dev", "lts"))]


def run(megatron, python, fold, test, gpu):
    folder = megatron / "tests/functional_tests/test_cases" / test
    config = yaml.safe_load((folder / "model_config.yaml").read_text())
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "memory.jsonl")
        t5 = test.startswith("t5/")
        if t5:
            words.write(Path(place, "text"))
        command = [sys.executable, "-m", "phantora_async", "run", "-n", "8", "--cluster", GPUS[gpu], "--steps", "3"]
        command += ["--show-ranks", "none", "--run-dir", f"{place}/run", *(["--python", python] if python else [])]
        command += ["--fold", fold, "--witnesses", "0"] if fold else []
        command += [str(HERE / "job.py"), str(megatron / ("examples/t5/pretrain_t5.py" if t5 else "pretrain_gpt.py"))]
        command += [str(out), *arguments(config["MODEL_ARGS"]), *(T5 if t5 else GPT), *INSTEAD]
        environment = os.environ | SET | {name: str(value) for name, value in config["ENV_VARS"].items()}
        environment["PYTHONPATH"] = os.pathsep.join([str(megatron), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=place)
        told = {"test": test, "gpu": gpu, "goldens": goldens(folder), "exit_code": done.returncode}
        told["wall_s"] = round(time.monotonic() - began, 1)
        if out.exists():
            found = {}
            for line in out.read_text().splitlines():
                name, _, value = json.loads(line)
                found.setdefault(name, []).append(value)
            told["found"] = {name: found.get(name) for name in (*FIGURES, TIME)}
        if done.returncode:
            told["error"] = done.stdout[-2000:] + done.stderr[-2000:]
        return told


def nearest(told, name, at):
    """Returns the golden value that is nearest to what was found, of this kind of GPU's files if there are any: bytes
    and file.
    """
    mine = told["found"][name]
    value = mine[at] if at >= 0 or len(mine) == 3 else None
    kinds = named(told["goldens"], told["gpu"])
    known = [(one, kind) for kind in kinds if (one := told["goldens"][kind].get(name, [None] * 3)[at]) is not None]
    if value is None or not known:
        return None
    one, kind = min(known, key=lambda pair: abs(pair[0] - value))
    return value, int(one), kind


def table(path):
    print("| test | GPU | figure | golden | here | | golden of |\n| --- | --- | --- | ---: | ---: | ---: | --- |")
    for told in sorted(map(json.loads, path.read_text().splitlines()), key=lambda one: (one["test"], one["gpu"])):
        if not told.get("found") or not told["found"][FIGURES[0]]:
            print(f"| `{told['test']}` | {told['gpu'].upper()} | ended with {told['exit_code']} | | | | |")
            continue
        for what, name, at in (
            ("allocated, 1", FIGURES[0], 0), ("allocated at the end", FIGURES[0], -1), ("peak, 1", FIGURES[1], 0), ("peak at the end", FIGURES[1], -1),
        ):  # fmt: skip
            if both := nearest(told, name, at):
                value, golden, kind = both
                off = "equal" if value == golden else f"{value / golden - 1:+.3%}".replace("%", " %")
                print(
                    f"| `{told['test']}` | {told['gpu'].upper()} | {what} | {golden:,} | {int(value):,} | {off} | {kind} |"
                )
        if row := times(told):
            print(f"| `{told['test']}` | {told['gpu'].upper()} | {row}")


def times(told):
    """Returns the row of the last iteration's time, beside the medians of this kind of GPU's files."""
    known = [one for kind in named(told["goldens"], told["gpu"]) if (one := told["goldens"][kind].get(TIME))]
    mine = told["found"].get(TIME)
    if not known or not mine:
        return None
    low, high, here = 1000 * min(known), 1000 * max(known), 1000 * mine[-1]
    off = "within" if low <= here <= high else f"{here / (low if here < low else high) - 1:+.0%}".replace("%", " %")
    return f"time of an iteration, ms | {low:.0f} to {high:.0f} | {here:.0f} | {off} | {len(known)} files |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megatron", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--python")
    parser.add_argument("--only", default="")
    parser.add_argument("--fold")
    parser.add_argument("--until", type=float, default=1e9, help="no test begins so many seconds after the start")
    if sys.argv[1:2] == ["--table"]:
        return table(Path(sys.argv[2]))
    given = parser.parse_args()
    given.megatron = given.megatron.resolve()
    tests = given.megatron / "tests/functional_tests/test_cases"
    local = [
        path
        for path in sorted(tests.glob("gpt/gpt3_*/model_config.yaml"))
        + sorted(tests.glob("t5/t5_*/model_config.yaml"))
        + sorted(tests.glob("moe/gpt3_*/model_config.yaml"))
        if "--transformer-impl: local" in path.read_text()
    ]
    names = given.only.split(",") if given.only else [str(path.parent.relative_to(tests)) for path in local]
    tasks = [(name, gpu) for name in names if (known := goldens(tests / name)) for gpu in GPUS if named(known, gpu)]
    began = time.monotonic()
    with given.out.open("a") as out, ThreadPoolExecutor(given.jobs) as pool:

        def one(task):
            if time.monotonic() - began > given.until:
                return
            out.write(json.dumps(run(given.megatron, given.python, given.fold, *task)) + "\n")
            out.flush()

        list(pool.map(one, tasks))


if __name__ == "__main__":
    main()
