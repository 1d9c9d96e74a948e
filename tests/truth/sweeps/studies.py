"""Writes the studies of docs/data/sweep.md: torchtitan's Llama 8B and 70B, Megatron-core's GPT of 13B, 8 to 256 GPUs.

python tests/truth/sweeps/studies.py FOLDER [--python PYTHON]; phantora-async sweep FOLDER/titan-8b.toml --jobs auto
"""

import argparse
import itertools
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLUSTERS = ("dgx-h100", "dgx-h200", "p5en", "hgx-h100-roce")
"""GPUs of one compute capability: a recording of one is replayed on the others."""
SEQUENCES = 64
"""Of a step of the GPT."""


def titan(sizes, tps, batches, recomputes):
    """A step has `batch` sequences of 8192 tokens on each replica of `tp` GPUs."""
    for world, tp, batch, recompute in itertools.product(sizes, tps, batches, recomputes):
        yield {
            "world_size": world,
            "--parallelism.data_parallel_shard_degree": world // tp,
            "--parallelism.tensor_parallel_degree": tp,
            "--training.local_batch_size": batch,
            "--activation_checkpoint.mode": recompute,
        }


def gpt(sizes, tps, pps, parts):
    for world, tp, pp, virtual in itertools.product(sizes, tps, pps, parts):
        dp = world // (tp * pp)
        microbatches = SEQUENCES // dp if dp else 0
        if dp and pp <= microbatches <= 16 and not (virtual > 1 and (pp == 1 or microbatches % pp)):
            yield {
                "world_size": world, "fold": f"pp={pp},dp={dp},tp={tp}", "--tp": tp, "--pp": pp, "--virtual": virtual,
                "--microbatches": microbatches,
            }  # fmt: skip


def text(tokens, run, trials, more=()):
    lines = [f"tokens_per_step = {json.dumps(tokens)}", f"more_memory = {json.dumps(list(more))}", "", "[run]"]
    lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in run.items()]
    for trial, cluster in itertools.product(trials, CLUSTERS):
        lines += ["", "[[trial]]"]
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in {**trial, "cluster": cluster}.items()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python")
    given = parser.parse_args()
    python = {"python": given.python} if given.python else {}
    llama = {"script": str(HERE / "titan.py"), "nproc_per_node": 8, "fold": "auto", "--training.seq_len": 8192} | python
    llama |= {"--activation_checkpoint.selective_ac_option": "op", "steps": 4}
    tokens = "8192 * training_local_batch_size * world_size / parallelism_tensor_parallel_degree"
    batch = ["--training.local_batch_size"]
    studies = {
        "titan-8b": text(
            tokens,
            llama | {"--model.flavor": "8B"},
            titan((8, 32, 256), (1, 2), (1, 2, 4), ("selective", "full")),
            batch,
        ),
        "titan-70b": text(
            tokens,
            llama | {"--model.flavor": "70B"},
            titan((64, 128, 256), (4, 8), (1, 2, 4), ("selective", "full")),
            batch,
        ),
        "gpt-13b": text(
            SEQUENCES * 2048,
            {
                "script": str(HERE.parents[2] / "examples" / "megatron_tp_pp.py"), "nproc_per_node": 8, "steps": 4,
                "roles": "similar", "--layers": 40, "--hidden": 5120, "--inner": 20480, "--words": 50304,
            }
            | python,
            gpt((8, 32, 256), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2)),
        ),
    }  # fmt: skip
    for name, made in studies.items():
        (given.folder / f"{name}.toml").write_text(made)
        print(name, made.count("[[trial]]"), "trials")


if __name__ == "__main__":
    main()
