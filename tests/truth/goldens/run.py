"""Runs Megatron-LM's functional tests that need no Transformer Engine, and compares memory with their golden values.

    python tests/truth/goldens/run.py MEGATRON OUT.jsonl [--jobs N] [--python PYTHON] [--only TEST,TEST]

MEGATRON: a checkout, in which each test's model_config.yaml says what it runs. Its GPT tests are run with mock data and
a tokenizer of as many words, without saving; three steps. The bytes are of the last rank, which logs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
LEFT_OUT = (
    "--save", "--load", "--data-path", "--vocab-file", "--merge-file", "--data-cache-path", "--async-save",
    "--use-persistent-ckpt-worker", "--ckpt-format", "--dist-ckpt-optim-fully-reshardable", "--dist-ckpt-strictness",
    "--tensorboard-dir", "--use-checkpoint-opt_param-scheduler", "--exit-interval", "--dist-ckpt-format",
    "--auto-detect-ckpt-format", "--ckpt-fully-parallel-load", "--ckpt-assume-constant-structure",
    "--no-ckpt-fully-parallel-save", "--tokenizer-type", "--vocab-size",
)  # fmt: skip
INSTEAD = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "50256", "--tensorboard-dir", "board"]
GPUS = {"h100": "dgx-h100", "a100": "dgx-a100"}
FIGURES = ("mem-allocated-bytes", "mem-max-allocated-bytes")


def words(arguments):
    for key, value in arguments.items():
        if key in LEFT_OUT or value is False:
            continue
        yield key
        if value is not True and value is not None:
            yield from str(value).split()


def golden(folder, gpu):
    """Figures after iterations 1 and 2 and at the end, of the newest container that has any."""
    for kind in ("dev", "lts"):
        path = folder / f"golden_values_{kind}_dgx_{gpu}.json"
        if path.exists():
            told = json.loads(path.read_text())
            if FIGURES[0] in told:
                values = {name: told[name]["values"] for name in FIGURES if name in told}
                return kind, {
                    name: [one.get("1"), one.get("2"), list(one.values())[-1]] for name, one in values.items()
                }
    return None, None


def run(megatron, python, test, gpu):
    folder = megatron / "tests/functional_tests/test_cases" / test
    config = yaml.safe_load((folder / "model_config.yaml").read_text())
    kind, expected = golden(folder, gpu)
    if expected is None:
        return None
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "memory.jsonl")
        command = [sys.executable, "-m", "phantora_async", "run", "-n", "8", "--cluster", GPUS[gpu], "--steps", "3"]
        command += ["--show-ranks", "none", "--run-dir", f"{place}/run", *(["--python", python] if python else [])]
        command += [str(HERE / "job.py"), str(megatron / "pretrain_gpt.py"), str(out)]
        command += [*words(config["MODEL_ARGS"]), *INSTEAD]
        environment = os.environ | {name: str(value) for name, value in config["ENV_VARS"].items()}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=place)
        told = {"test": test, "gpu": gpu, "golden": kind, "expected": expected, "exit_code": done.returncode}
        if out.exists():
            found = {}
            for line in out.read_text().splitlines():
                name, _, value = json.loads(line)
                found.setdefault(name, []).append(value)
            told["found"] = {name: found.get(name) for name in FIGURES}
        if done.returncode:
            told["error"] = (done.stderr or done.stdout)[-500:]
        return told


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megatron", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--python")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    given.megatron = given.megatron.resolve()
    tests = given.megatron / "tests/functional_tests/test_cases"
    local = [
        path
        for path in sorted(tests.glob("gpt/gpt3_*/model_config.yaml"))
        + sorted(tests.glob("moe/gpt3_*/model_config.yaml"))
        if "--transformer-impl: local" in path.read_text()
    ]
    names = given.only.split(",") if given.only else [str(path.parent.relative_to(tests)) for path in local]
    tasks = [(name, gpu) for name in names for gpu in GPUS if golden(tests / name, gpu)[1]]
    with given.out.open("a") as out, ThreadPoolExecutor(given.jobs) as pool:

        def one(task):
            out.write(json.dumps(run(given.megatron, given.python, *task)) + "\n")
            out.flush()

        list(pool.map(one, tasks))


if __name__ == "__main__":
    main()
