"""Writes the studies of docs/data/sweep.md: torchtitan's Llama 8B and 70B, Megatron-core's GPT of 13B, 8 to 256 GPUs.

python laboratory/programs/sweeps/studies.py FOLDER [--python PYTHON]; phantora-async sweep FOLDER/titan-8b.toml --jobs auto
"""

import argparse
import itertools
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLUSTERS = ("dgx-h100", "dgx-h200", "p5en", "hgx-h100-roce")
"""GPUs of one compute capability: a recording of one is replayed on the others."""
SEQUENCES = 64
"""The number of sequences in a step of the GPT."""
LAYERS = 40
"""The number of layers of the GPT."""
ALIKE = {"fold_apart": "none", "witnesses": 0, "steps": 3}
"""Each role has one process, and nothing is checked: docs/data/sweep.md says what witnesses found."""


def titan(sizes, tps, batches, recomputes):
    """A step has `batch` sequences of 8192 tokens on each replica of `tp` GPUs."""
    for world, tp, batch, recompute in itertools.product(sizes, tps, batches, recomputes):
        yield {
            "world_size": world, "fold": f"dp_shard*={world // tp},tp*={tp}",
            "--parallelism.data_parallel_shard_degree": world // tp,
            "--parallelism.tensor_parallel_degree": tp,
            "--training.local_batch_size": batch,
            "--activation_checkpoint.mode": recompute,
        }  # fmt: skip


def gpt(sizes, tps, pps, parts):
    for world, tp, pp, virtual in itertools.product(sizes, tps, pps, parts):
        dp = world // (tp * pp)
        microbatches = SEQUENCES // dp if dp else 0
        uneven = pp == 1 or microbatches % pp or LAYERS % (pp * virtual)
        if dp and pp <= microbatches <= 16 and not (virtual > 1 and uneven):
            alike = f"1+{tp - 1}" if tp > 1 else "1"
            yield {
                "world_size": world, "fold": f"pp={pp},dp*={dp},tp*={alike}", "--tp": tp, "--pp": pp, "--virtual": virtual,
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
    llama = {"script": str(HERE / "titan.py"), "nproc_per_node": 8, "--training.seq_len": 8192} | python
    llama |= {"--activation_checkpoint.selective_ac_option": "op"} | ALIKE
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
                "script": str(HERE.parents[2] / "examples" / "megatron_tp_pp.py"), "nproc_per_node": 8,
                "roles": "similar", "--layers": LAYERS, "--hidden": 5120, "--inner": 20480, "--words": 50304,
            }
            | ALIKE
            | python,
            gpt((8, 32, 256), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2)),
        ),
    }  # fmt: skip
    for name, made in studies.items():
        (given.folder / f"{name}.toml").write_text(made)
        print(name, made.count("[[trial]]"), "trials")


if __name__ == "__main__":
    main()
