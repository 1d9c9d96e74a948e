"""Files that the jobs read: a tokenizer, text, images and configurations, made here because nothing is downloaded."""

from __future__ import annotations

import array
import io
import json
import pickle
import random
import shutil
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>")
WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "you",
    "that",
    "it",
    "he",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "his",
    "they",
    "at",
    "be",
    "this",
    "have",
    "from",
    "or",
    "one",
    "had",
    "by",
]


def make(folder: Path) -> None:
    """Writes everything, at the paths where frameworks look for it from their working folder."""
    assets = folder / "tests" / "assets"  # torchtitan's debug configurations
    shutil.rmtree(assets, ignore_errors=True)  # of a clone
    write_tokenizer(assets / "tokenizer")
    (assets / "c4_test").mkdir()
    (assets / "c4_test" / "data.json").write_text(c4())
    (folder / "text.txt").write_text(text(40_000, 0))
    write_images(assets / "cc12m_test")
    write_encoders(assets / "flux_test_encoders")
    write_characters(folder / "data" / "shakespeare_char")
    write_folders_of_images(folder / "images")
    write_tokens(folder / "data" / "fineweb10B")
    write_documents(folder / "base_data_climbmix")
    write_texts(folder / "documents")
    write_chats(folder / "chat")
    write_chat_model(folder / "chat_model")
    write_recipe(folder / "axolotl.yml")
    write_digits(folder.parent / "data")
    write_words(folder / "words")
    write_from_the_hub(folder)
    (folder / "results").mkdir(exist_ok=True)  # of the VAE


def text(n_words: int, seed: int) -> str:
    words = random.Random(seed)
    return " ".join(words.choice(WORDS) for _ in range(n_words))


def c4() -> str:
    """Returns texts in the form of torchtitan's part of the data set C4."""
    return "".join(json.dumps({"text": text(700, seed)}) + "\n" for seed in range(60))


def write_tokenizer(folder: Path) -> None:
    """Writes a tokenizer of bytes, and the two special tokens that Llama's tokenizers have."""
    folder.mkdir(parents=True)
    letters = [chr(number) for number in range(33, 127)]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            | {"special": True}
            for i, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate([*SPECIAL, *letters, "\u0120"])},
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def write_images(folder: Path) -> None:
    """Writes a WebDataset of grey images with captions."""
    folder.mkdir(parents=True)
    with tarfile.open(folder / "images.tar", "w") as archive:
        for number in range(64):
            for suffix, content in (("jpg", _image(number)), ("txt", text(8, number).encode())):
                entry = tarfile.TarInfo(f"{number:05}.{suffix}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def write_folders_of_images(folder: Path) -> None:
    """Writes images as torchvision's ImageFolder reads them: two classes, for training and validation."""
    for split in ("train", "validation"):
        for name in ("a", "b"):
            (folder / split / name).mkdir(parents=True)
            for number in range(48):
                (folder / split / name / f"{number}.jpg").write_bytes(_image(number))


def _image(number: int) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.new("RGB", (288, 264), (number, number, number)).save(content, "JPEG")
    return content.getvalue()


def write_encoders(folder: Path) -> None:
    """Writes configurations of the two text encoders of Flux, of small size where its model allows it."""
    t5 = {"model_type": "t5", "d_model": 4096, "d_kv": 64, "d_ff": 512, "num_layers": 1, "num_heads": 4}
    clip = {"model_type": "clip_text_model", "hidden_size": 768, "intermediate_size": 512, "num_hidden_layers": 1}
    sizes = {
        "t5-v1_1-xxl": t5 | {"vocab_size": 32128, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0},
        "clip-vit-large-patch14": clip | {"num_attention_heads": 12, "max_position_embeddings": 77},
    }
    for name, config in sizes.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))


def write_characters(folder: Path) -> None:
    """Writes nanoGPT's data set of characters."""
    folder.mkdir(parents=True, exist_ok=True)
    characters = text(40_000, 0)
    letters = sorted(set(characters))
    number = {letter: i for i, letter in enumerate(letters)}
    tokens = array.array("H", [number[letter] for letter in characters])
    cut = len(tokens) * 9 // 10
    (folder / "train.bin").write_bytes(tokens[:cut].tobytes())
    (folder / "val.bin").write_bytes(tokens[cut:].tobytes())
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": number}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def write_tokens(folder: Path) -> None:
    """Writes shards of modded-nanogpt's FineWeb: 256 numbers (a mark, the version, the number of tokens), then the
    tokens.
    """
    folder.mkdir(parents=True)
    draw = random.Random(0)
    for name, count in (("fineweb_val_000000", 20 << 19), ("fineweb_train_000001", 4 << 19)):
        count += 8  # the last target
        numbers = array.array("i", [20240520, 1, count] + [0] * 253)
        tokens = array.array("H", (draw.randrange(50257) for _ in range(1 << 12)))
        content = (tokens.tobytes() * (count // len(tokens) + 1))[: 2 * count]
        (folder / f"{name}.bin").write_bytes(numbers.tobytes() + content)


def write_documents(folder: Path) -> None:
    """Writes shards of nanochat's data set; the last one is for validation."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:  # only nanochat needs them, and names it
        return
    folder.mkdir()
    for shard in (0, 1, 6542):
        table = pyarrow.table({"text": [text(300, seed) for seed in range(shard, shard + 600)]})
        pyarrow.parquet.write_table(table, folder / f"shard_{shard:05d}.parquet", row_group_size=128)


def write_texts(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(4):
        (folder / f"{number}.txt").write_text(text(20_000, number))


def write_chats(folder: Path) -> None:
    """Writes data sets of TRL's forms: to imitate, to prefer, to answer."""
    forms: dict[str, Callable[[int], object]] = {
        "sft": lambda i: {"messages": [_said("user", i), _said("assistant", i + 1)]},
        "dpo": lambda i: {"prompt": text(20, i), "chosen": text(20, i + 1), "rejected": text(20, i + 2)},
        "grpo": lambda i: {"prompt": [_said("user", i)]},
    }
    for name, row in forms.items():
        (folder / name).mkdir(parents=True)
        for split, count in (("train", 128), ("test", 16)):
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row(i)) + "\n" for i in range(count)))


def _said(role: str, seed: int) -> dict[str, str]:
    return {"role": role, "content": text(20, seed)}


def write_chat_model(folder: Path) -> None:
    """Writes a small Llama with random weights, as Hugging Face's libraries load it, whose tokenizer knows chats."""
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:  # only jobs that need them read it
        return
    write_tokenizer(folder)
    _chats(folder)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def _chats(folder: Path) -> None:
    """Teaches a tokenizer how a chat is written."""
    path = folder / "tokenizer_config.json"
    said = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}"
    asked = "{% if add_generation_prompt %}assistant: {% endif %}"
    more = {"pad_token": SPECIAL[1], "chat_template": said + asked}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def write_trl(folder: Path) -> None:
    """Writes the small models and the data set of TRL's own tests, with random weights and texts."""
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

    for model in (Qwen2ForCausalLM, Qwen2ForSequenceClassification):
        place = folder / f"tiny-{model.__name__}-2.5"
        write_tokenizer(place)
        _chats(place)
        config = Qwen2Config(
            vocab_size=97,
            hidden_size=8,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_labels=1,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
        model(config).save_pretrained(place)
    forms: dict[str, Callable[[int], dict[str, object]]] = {
        "standard_language_modeling": lambda i: {"text": text(8, i)},
        "standard_preference": lambda i: {"prompt": text(4, i), "chosen": text(4, i + 1), "rejected": text(4, i + 2)},
        "standard_unpaired_preference": lambda i: {"prompt": text(4, i), "completion": text(4, i), "label": i % 2 == 0},
        "conversational_implicit_prompt_preference": lambda i: {
            "chosen": [_said("user", i), _said("assistant", i + 1)],
            "rejected": [_said("user", i), _said("assistant", i + 2)],
        },
        "conversational_prompt_only": lambda i: {"prompt": [_said("user", i)]},
    }
    rows = {
        form: {"train": [row(i) for i in range(17)], "test": [row(i) for i in range(2)]} for form, row in forms.items()
    }
    write_data_sets(folder / "zen", rows)


def write_recipe(path: Path) -> None:
    """Writes axolotl's recipe: the chat model learns the chats, packed."""
    recipe = {
        "base_model": "chat_model",
        "datasets": [{"path": "chat/sft/train.jsonl", "ds_type": "json", "type": "chat_template"}],
        "dataset_prepared_path": "prepared",
        "output_dir": "out",
        "sequence_len": 512,
        "sample_packing": True,
        "gradient_accumulation_steps": 1,
        "micro_batch_size": 2,
        "max_steps": 6,
        "optimizer": "adamw_torch_fused",
        "lr_scheduler": "cosine",
        "learning_rate": 2e-4,
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_target_linear": True,
        "bf16": True,
        "attn_implementation": "sdpa",
        "logging_steps": 1,
        "save_strategy": "no",
    }
    path.write_text(json.dumps(recipe))  # JSON is YAML, too


def write_digits(folder: Path) -> None:
    """Writes MNIST of noise, as torchvision finds it after a download."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    draw = random.Random(0)
    for name, count in (("train", 1024), ("t10k", 256)):
        images = struct.pack(">IIII", 2051, count, 28, 28) + draw.randbytes(count * 28 * 28)
        labels = struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count))
        (raw / f"{name}-images-idx3-ubyte").write_bytes(images)
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(labels)


def write_words(folder: Path) -> None:
    folder.mkdir()
    for number, split in enumerate(("train", "valid", "test")):
        (folder / f"{split}.txt").write_text("".join(text(20, 100 * number + i) + "\n" for i in range(500)))
    try:
        import sentencepiece
    except ImportError:  # only torchtune needs it
        return
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "train.txt"), model_prefix=str(folder / "pieces"), vocab_size=60, hard_vocab_limit=False
    )


def write_from_the_hub(folder: Path) -> None:
    """Writes what scripts load from Hugging Face's hub by names that they contain: a folder of that name comes
    first."""
    sentences = [{"sentence1": text(20, i), "sentence2": text(20, i + 1), "label": i % 2, "idx": i} for i in range(256)]
    write_data_set(folder / "nyu-mll" / "glue", "mrpc", {"train": sentences, "validation": sentences[:64]})
    write_data_set(folder / "wikitext", "wikitext-2-v1", {"train": [{"text": text(200, i)} for i in range(256)]})
    (folder / "glue").mkdir()
    (folder / "glue" / "glue.py").write_text(METRIC)
    for name in ("bert-base-cased", "roberta-base"):
        write_tokenizer(folder / name)
        path = folder / name / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": SPECIAL[1], "mask_token": SPECIAL[0]}))
    try:
        from transformers import BertConfig, BertForMaskedLM
    except ImportError:  # only jobs that need it read the model
        return
    config = BertConfig(
        vocab_size=97, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4
    )
    BertForMaskedLM(config).save_pretrained(folder / "bert-base-cased")


METRIC = '''"""Accuracy, in the place of GLUE's metrics, which are on Hugging Face's hub."""
import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        features = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
        return evaluate.MetricInfo(description="", citation="", features=datasets.Features(features))

    def _compute(self, predictions, references):
        return {"accuracy": sum(map(int.__eq__, map(int, predictions), map(int, references))) / len(references)}
'''


def write_data_set(folder: Path, name: str, splits: dict[str, list[dict[str, object]]]) -> None:
    """Writes a data set with one configuration, as `datasets.load_dataset(folder, name)` reads it."""
    write_data_sets(folder, {name: splits})


def write_data_sets(folder: Path, configurations: Mapping[str, Mapping[str, list[dict[str, object]]]]) -> None:
    """Writes a data set with several configurations."""
    described = []
    for name, splits in configurations.items():
        (folder / name).mkdir(parents=True)
        files = "".join(f"  - split: {split}\n    path: {name}/{split}.jsonl\n" for split in splits)
        described.append(f"- config_name: {name}\n  data_files:\n{files}")
        for split, rows in splits.items():
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text(f"---\nconfigs:\n{''.join(described)}---\n")
