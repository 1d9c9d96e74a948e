"""Trains a small Llama with Hugging Face's Trainer. Arguments are those of its TrainingArguments; `--resume` goes on
from the checkpoint of step 2 after the end.
"""

from __future__ import annotations

import sys

import tiny_llama
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

resume = "--resume" in sys.argv
flags = [flag for flag in sys.argv[1:] if flag != "--resume"]
DEFAULTS = (
    "--output_dir out --max_steps 4 --per_device_train_batch_size 4 --logging_steps 1 --report_to none"
    " --save_strategy no"
)
parser = HfArgumentParser(TrainingArguments)
(arguments,) = parser.parse_args_into_dataclasses([*DEFAULTS.split(), *flags])


class ShowModel(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        if trainer.state.global_step == 1:
            print(f"wrapped as {type(trainer.model_wrapped).__name__}", flush=True)


trainer = Trainer(
    tiny_llama.model(),
    arguments,
    train_dataset=tiny_llama.Tokens(),
    eval_dataset=tiny_llama.Tokens() if arguments.eval_strategy != "no" else None,
    callbacks=[ShowModel()],
)
result = trainer.train()
if resume:
    result = trainer.train(resume_from_checkpoint="out/checkpoint-2")
    print(f"resumed at step 2, at the end {trainer.state.global_step}", flush=True)
print(f"steps {result.global_step} in {result.metrics['train_runtime']:.3f} s", flush=True)
