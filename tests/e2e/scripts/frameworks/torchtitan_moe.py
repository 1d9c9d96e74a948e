"""torchtitan's trainer on a small mixture of experts. Arguments: the model, how experts are multiplied (`grouped` or
`loop`), then torchtitan's own flags.

The text is made here, and so is the tokenizer: torchtitan's package of data sets is replaced. Each rank prints its
tokens per expert and what it sends and receives, in the order of the calls.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import random
import sys
import tempfile
import types
from typing import Any

MODEL, EXPERTS, *FLAGS = sys.argv[1:]
FLAVOR = "debugmodel_moe" if MODEL == "qwen3" else "debugmodel"
told: dict[str, list[list[int]]] = {"routed": [], "sent": [], "received": []}


class Rows(list):  # type: ignore[type-arg]
    """A data set."""

    def skip(self, n: int) -> Rows:
        return Rows(self[n:])


def load_dataset(*_: Any, **__: Any) -> Rows:
    words = random.Random(0)
    return Rows({"text": " ".join(f"w{words.randrange(1900)}" for _ in range(3000))} for _ in range(60))


def replace_data_sets() -> None:
    names = ("datasets", "datasets.distributed")
    package, distributed = (types.ModuleType(name) for name in names)
    for name, module in zip(names, (package, distributed), strict=True):
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    vars(package).update(Dataset=Rows, load_dataset=load_dataset, distributed=distributed)
    vars(distributed)["split_dataset_by_node"] = lambda rows, rank, n: Rows(rows[rank::n])


def make_tokenizer(directory: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(1900)} | {"<unk>": 1900, "<s>": 1901, "</s>": 1902}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(f"{directory}/tokenizer.json")
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, "add_eos_token": False}
    with open(f"{directory}/tokenizer_config.json", "w") as file:
        json.dump(config, file)


replace_data_sets()
directory = tempfile.mkdtemp()
make_tokenizer(directory)
os.chdir(tempfile.mkdtemp())
options: dict[str, Any] = {
    "model.name": MODEL,
    "model.flavor": FLAVOR,
    "model.hf_assets_path": directory,
    "metrics.log_freq": 1,
    "training.steps": 2,
    "training.dataset": "c4_test",
    "training.local_batch_size": 2,
    "training.seq_len": 256,
    "comm.init_timeout_seconds": 3000,
}
sys.argv = ["torchtitan", *(word for key, value in options.items() for word in (f"--{key}", str(value))), *FLAGS]
import torch  # noqa: E402
from torchtitan.distributed import expert_parallel  # noqa: E402
from torchtitan.train import Trainer, main  # noqa: E402

flavors = next(
    value
    for name, value in vars(importlib.import_module(f"torchtitan.models.{MODEL}")).items()
    if isinstance(value, dict) and FLAVOR in value
)
flavors[FLAVOR].n_layers = 3
flavors[FLAVOR].moe_args.use_grouped_mm = EXPERTS == "grouped"
exchange = expert_parallel.all_to_all_single_autograd


def noted_exchange(x: torch.Tensor, received: list[int], sent: list[int], group: Any) -> torch.Tensor:
    told["sent"].append(list(sent))
    told["received"].append(list(received))
    return exchange(x, received, sent, group)  # type: ignore[no-any-return]


vars(expert_parallel)["all_to_all_single_autograd"] = noted_exchange


class ObservedTrainer(Trainer):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for part in self.model_parts:
            for module in part.modules():
                if type(module).__name__.endswith("GroupedExperts"):
                    module.register_forward_pre_hook(self.note, prepend=True)

    def note(self, _: Any, inputs: tuple[Any, ...]) -> None:
        told["routed"].append([int(count) for count in inputs[1].tolist()])


main(ObservedTrainer)
print(json.dumps(told), flush=True)
