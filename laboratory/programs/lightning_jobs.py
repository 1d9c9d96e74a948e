"""Lightning's Trainer with DDP: a vision transformer of timm.   torchrun --nproc-per-node 2 lightning_jobs.py --jobs t_vit_lightning_ddp_b64 [--out FILE]"""

import argparse
import json
import os
import time

import lightning
import timm
import torch
from torch.nn import functional as F

JOBS = {"t_vit_lightning_ddp_b64": ("vit_base_patch16_224", 64)}


class Pictures(torch.utils.data.Dataset):
    def __init__(self, many):
        self.many, self.x = many, torch.randn(3, 224, 224)

    def __len__(self):
        return self.many

    def __getitem__(self, index):
        return self.x, index % 1000


class Module(lightning.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.model, self.each, self.began = timm.create_model(name), [], 0.0

    def training_step(self, batch, index):
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-4, fused=True)

    def on_train_batch_start(self, batch, index):
        torch.cuda.synchronize()
        self.began = time.perf_counter()

    def on_train_batch_end(self, outputs, batch, index):
        torch.cuda.synchronize()
        self.each.append(time.perf_counter() - self.began)


def run(name, steps, warm, out):
    model, batch = JOBS[name]
    torch.manual_seed(0)
    world = int(os.environ["WORLD_SIZE"])
    module = Module(model)
    trainer = lightning.Trainer(
        accelerator="gpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", world)), strategy="ddp",
        precision="bf16-mixed", max_steps=warm + steps, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    data = torch.utils.data.DataLoader(Pictures(batch * world * (warm + steps)), batch)
    trainer.fit(module, data)
    each = module.each[warm:]
    told = {"job": name, "world": world, "step_s": each, "host_s": [],
            "free_running_step_s": sorted(each)[len(each) // 2],
            "max_alloc": torch.cuda.max_memory_allocated(), "max_reserved": torch.cuda.max_memory_reserved(),
            "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}  # fmt: skip
    if os.environ["RANK"] == "0":
        print("RESULT " + json.dumps(told), flush=True)
        if out:
            with open(out, "a") as file:
                file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--out")
    options = parser.parse_args()
    for one in options.jobs.split(","):
        run(one, options.steps, options.warm, options.out)
