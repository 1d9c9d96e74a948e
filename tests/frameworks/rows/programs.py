"""Programs that people publish and start as they are, in clones of their repositories."""

from __future__ import annotations

from ..job import UPDATED, Framework, Job

OPEN_CLIP = Framework(
    "open_clip",
    ("open_clip_torch", "torchvision"),
    ("torchvision", "timm", "ftfy", "braceexpand", "webdataset"),
    (
        *("-m", "open_clip_train.main", "--dataset-type", "synthetic", "--model", "ViT-B-32", "--logs", "none"),
        *("--train-num-samples", "512", "--epochs", "1", "--workers", "1", "--log-every-n-steps", "1"),
    ),
    "mlfoundations/open_clip",
    "89fb801",
    environment=(("PYTHONPATH", "src"),),
)
TIMM = Framework(
    "pytorch-image-models (timm)",
    ("timm", "torchvision"),
    ("torchvision", "yaml"),
    (
        *("train.py", "--data-dir", "images", "--epochs", "1", "--workers", "1", "--log-interval", "1"),
        *("--output", "out"),
    ),
    "huggingface/pytorch-image-models",
    "aa4b5850",
)
MODDED_NANOGPT = Framework(
    "modded-nanogpt",
    (),
    (),
    ("records/track_3_optimization/train_gpt_simple.py",),
    "KellerJordan/modded-nanogpt",
    "f411b3d3",
)
NANOCHAT = Framework(
    "nanochat",
    (),
    ("rustbpe", "tiktoken", "wandb", "pyarrow", "filelock", "requests"),
    (),
    "karpathy/nanochat",
    "92d63d4",
    environment=(("NANOCHAT_BASE_DIR", "."),),
)
JOBS = (
    Job(OPEN_CLIP, "open-clip", "ViT-B/32, DDP, mixed precision", ("--precision", "amp", "--batch-size", "32"),
        options=("--steps", "4"), shows=(r"Train Epoch: 0 \[192/512",), warns=UPDATED),
    Job(TIMM, "timm-vit", "ViT-S/16, DDP, mixed precision", ("--model", "vit_small_patch16_224", "-b", "16", "--amp"),
        shows=(r"Train: 0 \[",), warns=(*UPDATED, "decides by a value that is not computed")),
    Job(MODDED_NANOGPT, "modded-nanogpt-track3", "track 3 (Muon, compiled)", options=("--steps", "3"),
        shows=(r"step:2/\d+ train_time",)),
    Job(NANOCHAT, "nanochat", "tokenizer, then base training of depth 4 (Muon, compiled)", options=(
        "--launcher", "--", "sh", "nanochat.sh"),
        shows=(r"step 00004/00005", "Saved model parameters"), steps=4, warns=UPDATED),
)  # fmt: skip
