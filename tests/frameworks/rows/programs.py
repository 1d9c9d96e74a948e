"""Programs that people publish and start as they are, in clones of their repositories."""

from __future__ import annotations

from ..job import CHOSEN, UPDATED, Framework, Job

OFFLINE = (("HF_HUB_OFFLINE", "1"),)
"""All that these read is here: without it they ask Hugging Face's server first."""
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
MINGPT = Framework(
    "minGPT",
    (),
    (),
    ("projects/adder/adder.py",),
    "karpathy/minGPT",
    "37baab7",
    environment=(("PYTHONPATH", "."),),
)
DIFFUSERS = Framework(
    "diffusers",
    ("diffusers", "accelerate", "datasets", "torchvision"),
    ("diffusers", "accelerate", "datasets", "torchvision"),
    (
        *("examples/unconditional_image_generation/train_unconditional.py", "--train_data_dir", "images"),
        *("--resolution", "64", "--num_epochs", "1", "--output_dir", "out"),
    ),
    "huggingface/diffusers",
    "58eb52c080",
    environment=OFFLINE,
)
LITGPT = Framework(
    "litgpt",
    ("litgpt", "litdata", "lightning"),
    ("litgpt", "litdata"),
    (
        *("-m", "litgpt", "pretrain", "--config", "config_hub/pretrain/debug.yaml", "--data", "TextFiles"),
        *("--data.train_data_path", "documents", "--tokenizer_dir", "tests/assets/tokenizer", "--devices", "2"),
    ),
    "Lightning-AI/litgpt",
    "26857050",
)
TRL = Framework(
    "TRL's own scripts",
    ("trl", "transformers", "accelerate", "datasets"),
    ("trl", "datasets"),
    ("-m",),
    environment=OFFLINE,
)
LLAMA_FACTORY = Framework(
    "LLaMA-Factory",
    ("transformers", "accelerate", "peft", "trl", "datasets"),
    ("fire", "trl", "peft", "datasets"),
    ("src/train.py",),
    "hiyouga/LLaMA-Factory",
    "ff6d4d12e",
    environment=OFFLINE,
)
DLRM = Framework(
    "DLRM",
    (),
    ("sklearn",),
    (
        *("dlrm_s_pytorch.py", "--arch-sparse-feature-size=16", "--arch-embedding-size=1000-1000-1000-1000"),
        *("--arch-mlp-bot=13-64-16", "--arch-mlp-top=64-1", "--data-generation=random", "--mini-batch-size=128"),
        *("--num-batches=6", "--print-freq=1", "--use-gpu", "--dist-backend=nccl"),
    ),
    "facebookresearch/dlrm",
    "090956e",
)
ACCELERATE = Framework(
    "Accelerate's examples",
    ("accelerate", "transformers", "datasets"),
    ("accelerate", "transformers", "datasets", "evaluate"),
    (),
    "huggingface/accelerate",
    "16cb6eb8",
    environment=OFFLINE,
)
PEFT = Framework(
    "PEFT's examples: sft",
    ("peft", "trl", "transformers", "accelerate", "datasets"),
    ("peft", "trl", "transformers", "accelerate", "datasets"),
    (
        *("examples/sft/train.py", "--model_name_or_path", "chat_model", "--dataset_name", "chat/sft", "--splits"),
        *("train,test", "--max_steps", "4", "--logging_steps", "1", "--output_dir", "out", "--bf16", "True"),
        *("--per_device_train_batch_size", "4", "--report_to", "none", "--use_peft_lora", "True", "--lora_r", "8"),
    ),
    "huggingface/peft",
    "5d602fdbf",
    environment=OFFLINE,
)
TORCHTUNE = Framework(
    "torchtune",
    ("torchao",),
    ("torchao", "sentencepiece", "omegaconf", "torchdata"),
    (
        *(
            "recipes/full_finetune_distributed.py",
            "--config",
            "recipes/configs/llama3_2/1B_full.yaml",
            "output_dir=out",
        ),
        *("tokenizer._component_=torchtune.models.llama2.llama2_tokenizer", "tokenizer.path=words/pieces.model"),
        *("tokenizer.max_seq_len=256", "model._component_=torchtune.models.llama3.llama3", "model.vocab_size=97"),
        *("model.num_layers=2", "model.num_heads=4", "model.num_kv_heads=2", "model.embed_dim=256"),
        *("model.intermediate_dim=512", "model.max_seq_len=1024", "checkpointer.checkpoint_dir=chat_model"),
        *("checkpointer.model_type=LLAMA3", "gradient_accumulation_steps=1"),
        *(
            f"{data}.{setting}"
            for data, file in (("dataset", "train"), ("dataset_val", "valid"))
            for setting in (
                *("_component_=torchtune.datasets.text_completion_dataset", "source=text", "column=text"),
                *("split=train", f"data_files=words/{file}.txt", "packed=True", "split_across_pack=True"),
            )
        ),
    ),
    "pytorch/torchtune",
    "bd2a0fc7c",
    environment=(*OFFLINE, ("PYTHONPATH", ".")),
)
TORCHREC = Framework(
    "torchrec",
    ("torchrec", "fbgemm-gpu"),
    ("torchrec", "fbgemm_gpu"),
    ("examples/golden_training/train_dlrm.py",),
    "meta-pytorch/torchrec",
    "376cac6a",
)
DEEPSPEED = Framework(
    "DeepSpeedExamples",
    ("deepspeed", "transformers"),
    ("deepspeed", "transformers"),
    (),
    "deepspeedai/DeepSpeedExamples",
    "45b4b715",
    environment=OFFLINE,
)
AXOLOTL = Framework(
    "axolotl",
    ("axolotl", "transformers", "peft", "bitsandbytes", "liger-kernel"),
    ("axolotl",),
    ("-m", "axolotl.cli.train", "axolotl.yml"),
    environment=(*OFFLINE, ("AXOLOTL_DO_NOT_TRACK", "1")),
)
UNSLOTH = Framework(
    "Unsloth",
    ("unsloth", "transformers", "trl"),
    ("unsloth", "trl"),
    ("unsloth_lora.py",),
    environment=(*OFFLINE, ("UNSLOTH_DISABLE_STATISTICS", "1")),
)
TRITON = (r"Triton [0-9.]+ has no triton\.runtime\.build",)
TRL_FLAGS = (
    *("--model_name_or_path", "chat_model", "--max_steps", "4", "--logging_steps", "1", "--output_dir", "out"),
    *("--per_device_train_batch_size", "4", "--report_to", "none", "--bf16", "True"),
)
FACTORY_FLAGS = (
    *("model_name_or_path=chat_model", "max_steps=4", "logging_steps=1", "template=default", "max_samples=64"),
    *("cutoff_len=256", "preprocessing_num_workers=1"),
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
    Job(MINGPT, "mingpt", "adds numbers, one GPU", ("--trainer.max_iters=6",), ranks=1, options=("--steps", "5"),
        shows=(r"iter 0: train loss", "final score"), warns=UPDATED),
    Job(DIFFUSERS, "diffusers-unconditional", "DDPM of 64 x 64 images, DDP, bf16",
        ("--train_batch_size", "4", "--mixed_precision", "bf16", "--save_images_epochs", "99",
         "--save_model_epochs", "99"),
        options=("--steps", "4"), shows=("Running training",)),
    Job(LITGPT, "litgpt-pretrain", "Pythia 14M, compiled, FSDP",
        ("--train.max_seq_length", "256", "--train.global_batch_size", "8", "--train.micro_batch_size", "4",
         "--train.max_tokens", "16384"),
        options=("--steps", "4"), shows=("iter 4 step 4",), steps=4),
    Job(TRL, "trl-script-sft", "supervised fine-tuning", ("trl.scripts.sft", *TRL_FLAGS, "--dataset_name", "chat/sft"),
        shows=("100%.* 4/4", "Training completed"), steps=4, warns=UPDATED),
    Job(TRL, "trl-script-grpo", "GRPO: completions, rewards and updates", (
        "trl.scripts.grpo", *TRL_FLAGS, "--dataset_name", "chat/grpo", "--reward_funcs", "think_format_reward",
        "--num_generations", "4", "--max_completion_length", "32"),
        shows=("100%.* 4/4", "Training completed"), steps=4, warns=UPDATED),
    Job(TRL, "trl-script-dpo", "DPO", ("trl.scripts.dpo", *TRL_FLAGS, "--dataset_name", "chat/dpo"),
        shows=("100%.* 4/4", "Training completed"), steps=4, warns=UPDATED),
    Job(LLAMA_FACTORY, "llama-factory-lora", "supervised fine-tuning with LoRA, DDP",
        ("examples/train_lora/qwen3_lora_sft.yaml", *FACTORY_FLAGS), shows=("100%.* 4/4",), steps=4,
        warns=(*UPDATED, *TRITON)),
    Job(LLAMA_FACTORY, "llama-factory-full", "supervised fine-tuning, ZeRO 3",
        ("examples/train_full/qwen3_full_sft.yaml", *FACTORY_FLAGS), shows=("100%.* 4/4",), steps=4,
        warns=(*UPDATED, *TRITON), modules=("deepspeed",)),
    Job(AXOLOTL, "axolotl-lora", "LoRA, packed", ("--adapter", "lora", "--gradient-checkpointing", "True"),
        shows=("trainable params", "100%.* 6/6"), steps=6, warns=(*UPDATED, *TRITON)),
    Job(AXOLOTL, "axolotl-qlora", "QLoRA: 4 bits", ("--adapter", "qlora", "--load-in-4bit", "True"),
        shows=("trainable params", "100%.* 6/6"), steps=6, warns=(*UPDATED, *TRITON), modules=("bitsandbytes",)),
    Job(UNSLOTH, "unsloth-lora", "LoRA, its own kernels and recomputation", ranks=1,
        shows=("Unsloth", "100%.* 6/6"), steps=6, warns=(*UPDATED, *TRITON)),
    Job(ACCELERATE, "accelerate-nlp", "BERT on pairs of sentences, DDP, bf16",
        ("examples/nlp_example.py", "--mixed_precision", "bf16"), shows=("epoch 2: {'accuracy'",), steps=24,
        warns=(*CHOSEN, "decides by a value that is not computed")),
    Job(ACCELERATE, "accelerate-memory", "BERT, its memory tracked, DDP",
        ("examples/by_feature/fsdp_with_peak_mem_tracking.py", "--mixed_precision", "bf16",
         "--model_name_or_path", "bert-base-cased"), shows=("epoch 2: {'accuracy'",), steps=24, warns=CHOSEN),
    Job(PEFT, "peft-sft-lora", "LoRA, DDP", shows=("trainable params", "4/4"), steps=4, warns=UPDATED),
    Job(PEFT, "peft-sft-lora-checkpointing", "LoRA, packed, recomputing",
        ("--packing", "True", "--gradient_checkpointing", "True", "--use_reentrant", "False", "--max_length", "256"),
        shows=("trainable params", "4/4"), steps=4, warns=UPDATED),
    Job(TORCHTUNE, "torchtune-full", "full fine-tuning, FSDP2, a compiled FlexAttention", options=("--steps", "4"),
        shows=("Loss: 0.0",), steps=4),
    Job(TORCHREC, "torchrec-dlrm", "DLRM, sharded tables of 26 x 2**20 rows, all-to-all", options=("--steps", "4"),
        shows=("0/1000",), steps=4, warns=TRITON),
    Job(DEEPSPEED, "deepspeed-examples-autotp", "AutoTP 2 with ZeRO 2 over 4 ranks",
        ("training/tensor_parallel/basic_example/autotp_example.py", "--model_name", "chat_model", "--tp_size", "2",
         "--dp_size", "2", "--num_steps", "4", "--seq_length", "256"), ranks=4, steps=4),
    Job(DEEPSPEED, "deepspeed-examples-offload-states", "ZeRO 3, states to the CPU and back after each step",
        ("training/offload_states/offload_states.py",), shows=("Summary: pin_memory",), steps=4, warns=UPDATED),
    Job(DEEPSPEED, "deepspeed-examples-bf16-states", "ZeRO 3 with optimizer states in bf16",
        ("training/bf16_master_weight/train.py", "--deepspeed_config",
         "training/bf16_master_weight/configs/bf16_full.json", "--num_layers", "2", "--num_steps", "8"),
        shows=("SUMMARY",), steps=8),
    Job(DEEPSPEED, "deepspeed-examples-hello", "HelloDeepSpeed: BERT on masked words, ZeRO 1, optimizer on the CPU",
        options=("--launcher", "--", "deepspeed", "--num_gpus", "2", "training/HelloDeepSpeed/train_bert_ds.py",
                 "--checkpoint_dir", "out", "--num_iterations", "6", "--log_every", "1"),
        shows=("Loss: 0.0000",), steps=4, modules=("fire", "loguru", "sh"), warns=UPDATED),
    Job(DLRM, "dlrm", "embeddings spread over ranks, all-to-all", shows=("Finished training it 4/6",), steps=4,
        options=("--steps", "4"), warns=(r"Triton [0-9.]+ has no triton\.runtime\.build",)),
)  # fmt: skip
