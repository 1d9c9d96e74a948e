"""Fine-tunes a small chat model with LoRA as Unsloth's notebooks do."""

from unsloth import FastLanguageModel  # isort: skip  # it replaces parts of what is imported after it

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

# Unsloth refuses a tokenizer that pads with the end of a sentence.
padded = AutoTokenizer.from_pretrained("chat_model")
padded.add_special_tokens({"pad_token": "<|pad|>"})
padded.save_pretrained("padded_model")
larger = AutoModelForCausalLM.from_pretrained("chat_model", dtype=torch.bfloat16)
larger.resize_token_embeddings(len(padded))
larger.config.pad_token_id = padded.pad_token_id
larger.save_pretrained("padded_model")

model, tokenizer = FastLanguageModel.from_pretrained("padded_model", max_seq_length=512, dtype=torch.bfloat16)
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
model = FastLanguageModel.get_peft_model(
    model, r=16, target_modules=PROJECTIONS, lora_alpha=16, use_gradient_checkpointing="unsloth"
)
chats = load_dataset("json", data_files="chat/sft/train.jsonl", split="train")
texts = chats.map(lambda chat: {"text": tokenizer.apply_chat_template(chat["messages"], tokenize=False)})
settings = SFTConfig(
    output_dir="out",
    dataset_text_field="text",
    per_device_train_batch_size=4,
    max_steps=6,
    max_length=512,
    logging_steps=1,
    bf16=True,
    report_to="none",
    save_strategy="no",
)
SFTTrainer(model=model, processing_class=tokenizer, train_dataset=texts, args=settings).train()
