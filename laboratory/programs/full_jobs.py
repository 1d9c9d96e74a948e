"""Jobs with batches so large that the GPU decides the step, simulated before they were measured: nothing is fitted to them.

    python full_jobs.py --jobs NAME[,NAME...] [--out FILE.jsonl] [--detail FOLDER]       # --list prints the names
    torchrun --nproc-per-node 2 full_jobs.py --jobs t_NAME [--out FILE.jsonl] [--detail FOLDER]

Measured as varied_jobs.py does; jobs named t_ are for two GPUs. Needs torchvision 0.26, transformers 5.17, timm 1.0,
torch-geometric 2.8."""

import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import fresh_models
import full_models
import varied_jobs
import varied_models
import varied_vision
from fresh_jobs import CAUSAL, RANK, WORLD, ddp, fused, language, main, sharded, timm, zoo
from varied_jobs import DEV, exact, hf, ids, job, noise, sgd, train


def foreach(model):
    return torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)


def gpt(batch, length, width, layers, heads, words=50304, pure=False, by=None, optimizer=fused, **options):
    """A GPT of fresh_models.py; `by`: the only kernels of attention that PyTorch may take."""
    model = fresh_models.Gpt(words, width, layers, heads, options.pop("experts", 0)).to(
        DEV, torch.bfloat16 if pure else None
    )
    x, made = ids(words, batch, length + 1), model.loss
    if options.pop("compiled", False):
        made = torch.compile(made)

    def loss():
        if by is None:
            return made(x)
        with sdpa_kernel(by):
            return made(x)

    return train(model, loss, optimizer(model), **({"amp": None} if pure else {}) | options)


# ---- language ----
LLAMA8B = dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, **CAUSAL)


@job
def g_llama3_8b_l5_b2_s4096():
    return language("LlamaForCausalLM", "LlamaConfig", 2, 4096, True, num_hidden_layers=5, vocab_size=128256, **LLAMA8B)


@job
def g_qwen3_4b_l8_b1_s8192_recompute():
    return language("Qwen3ForCausalLM", "Qwen3Config", 1, 8192, optimizer=foreach, recompute=True, hidden_size=2560,
                    intermediate_size=9728, num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=8,
                    head_dim=128, vocab_size=151936, tie_word_embeddings=True, **CAUSAL)  # fmt: skip


@job
def g_gemma3_4b_l8_b1_s4096():
    return language("Gemma3ForCausalLM", "Gemma3TextConfig", 1, 4096, True, hidden_size=2560, intermediate_size=10240,
                    num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                    vocab_size=262144, sliding_window=1024, **CAUSAL)  # fmt: skip


@job
def g_mistral_window_l4_b2_s4096():
    return language("MistralForCausalLM", "MistralConfig", 2, 4096, optimizer=partial(sgd, rate=0.01),
                    num_hidden_layers=4, vocab_size=32768, sliding_window=1024, **LLAMA8B)  # fmt: skip


@job
def g_latent_l4_b2_s4096():
    model, x = full_models.Deep(65536, 4096, 4, 32, 10240).to(DEV, torch.bfloat16), ids(65536, 2, 4097)
    return train(model, lambda: model.loss(x), fused(model), None, clip=1.0)


@job
def g_gpt_l12_b8_s1024_fp16_compiled():
    return gpt(8, 1024, 1600, 12, 25, amp=torch.float16, scaler=True, compiled=True)


@job
def g_phi2_l8_b4_s2048_fp16():
    model = hf("PhiForCausalLM", "PhiConfig", hidden_size=2560, intermediate_size=10240, num_hidden_layers=8,
               num_attention_heads=32, vocab_size=51200, **CAUSAL)  # fmt: skip
    x = ids(50000, 4, 2048)
    return train(model, lambda: model(input_ids=x, labels=x).loss, foreach(model), torch.float16, True, 1.0)


@job
def g_olmo2_1b_l8_b4_s4096():
    return language("Olmo2ForCausalLM", "Olmo2Config", 4, 4096, True, optimizer=foreach, hidden_size=2048,
                    intermediate_size=8192, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16,
                    vocab_size=100352, **CAUSAL)  # fmt: skip


@job
def g_llama_tf32_l6_b2_s2048():
    exact(True)
    model = hf("LlamaForCausalLM", "LlamaConfig", hidden_size=2048, intermediate_size=5632, num_hidden_layers=6,
               num_attention_heads=32, num_key_value_heads=8, vocab_size=32000, **CAUSAL)  # fmt: skip
    x = ids(32000, 2, 2048)
    return train(model, lambda: model(input_ids=x, labels=x).loss, fused(model), None, clip=1.0)


@job
def g_gpt_cudnn_l8_b4_s4096():
    return gpt(4, 4096, 2048, 8, 16, pure=True, by=SDPBackend.CUDNN_ATTENTION)


@job
def g_gpt_math_l6_b16_s1024():
    return gpt(16, 1024, 1024, 6, 16, by=SDPBackend.MATH, optimizer=foreach)


@job
def g_gpt_efficient_l8_b2_s8192():
    return gpt(2, 8192, 1024, 8, 16, by=SDPBackend.EFFICIENT_ATTENTION)


@job
def g_gpt_l4_b2_s4096_fp32():
    exact(False)
    return gpt(2, 4096, 1024, 4, 16, 32000, amp=None, optimizer=sgd)


@job
def g_switch_e16_b16_s2048():
    return gpt(16, 2048, 1024, 6, 16, 32000, experts=16)


# ---- pictures and volumes ----
@job
def g_dit_xl_l10_b64_compiled():
    model = varied_vision.Patches(1152, 16, 10, 4, 32, 2, conditions=1001).to(DEV)
    x, y, target = noise(64, 4, 32, 32), ids(1000, 64), noise(64, 256, 16)
    made = torch.compile(lambda: F.mse_loss(model(x, y).float(), target))
    return train(model, made, fused(model))


@job
def g_siglip_so400m_l12_b24_s384():
    model = hf("SiglipVisionModel", "SiglipVisionConfig", hidden_size=1152, intermediate_size=4304, num_hidden_layers=12,
               num_attention_heads=16, image_size=384, patch_size=14)  # fmt: skip
    x, y = noise(24, 3, 384, 384), noise(24, 1152)
    return train(model, lambda: F.mse_loss(model(pixel_values=x).pooler_output.float(), y), foreach(model))


@job
def g_convnext_large_b48_fp16():
    return timm("convnext_large", 48, last=True, optimizer=foreach, amp=torch.float16, scaler=True)


@job
def g_efficientnet_b4_b64_s380_fp16():
    return timm("efficientnet_b4", 64, 380, last=True, optimizer=sgd, amp=torch.float16, scaler=True)


@job
def g_resnet101_b256():
    return zoo("resnet101", 256, (224, 224), True, sgd)


@job
def g_painter_b16_s64():
    model = full_models.Painter().to(DEV, memory_format=torch.channels_last)
    x, e = (noise(16, 4, 64, 64).to(memory_format=torch.channels_last) for _ in range(2))
    t, text = ids(1000, 16), noise(16, 77, 768)
    return train(model, lambda: F.mse_loss(model(x, t, text).float(), e), foreach(model), clip=1.0)


@job
def g_r2plus1d_18_b24():
    import torchvision

    return zoo("r2plus1d_18", 24, (16, 112, 112), optimizer=sgd, package=torchvision.models.video, outputs=400)


# ---- sound, tables, graphs, sequences ----
@job
def g_whisper_medium_l8_b16():
    model = hf("WhisperForConditionalGeneration", "WhisperConfig", d_model=1024, encoder_layers=8, decoder_layers=8,
               encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
               use_cache=False)  # fmt: skip
    x, y = noise(16, 80, 3000), ids(50000, 16, 256)
    return train(model, lambda: model(input_features=x, labels=y).loss, fused(model), torch.float16, True)


@job
def g_conformer_d512_l8_b48_t1600():
    model, x, y = varied_models.Conformer(512, 8, 8).to(DEV), noise(48, 1600, 80), ids(1023, 48, 60) + 1
    frames, letters = torch.full((48,), 399), torch.full((48,), 60)

    def loss():
        out = model(x).float().log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(out, y, frames, letters, zero_infinity=True)

    return train(model, loss, fused(model))


@job
def g_ranking_b65536():
    rows = [100000] * 12 + [1000] * 8
    model = varied_models.Ranking(rows, 128).to(DEV)
    dense, label = noise(65536, 13), torch.rand(65536, device=DEV).round()
    bags, starts = [ids(n, 65536 * 8) for n in rows], torch.arange(0, 65536 * 8, 8, device=DEV)
    loss = lambda: F.binary_cross_entropy_with_logits(model(dense, bags, starts)[:, 0], label)
    return train(model, loss, torch.optim.SGD(model.parameters(), 0.01), None)


@job
def g_gcn_n150000_e3000000():
    model, edges = varied_models.graph_net("GCNConv", 256, 256, 64).to(DEV), ids(150000, 2, 3000000)
    x, y = noise(150000, 256), ids(64, 150000)
    return train(model, lambda: F.cross_entropy(model(x, edges), y), fused(model), None)


@job
def g_lstm_3x1024_b128_s256():
    model, x = varied_models.Recurrent("LSTM", 1024, 3, 16000).to(DEV), ids(16000, 128, 256)
    return train(model, lambda: F.cross_entropy(model(x).float().flatten(0, 1), x.flatten()), fused(model))


# ---- two GPUs ----
@job
def t_gpt_ddp_l18_b8_s1024():
    model, x = ddp(fresh_models.Gpt(50304, 1280, 18, 20).to(DEV), gradient_as_bucket_view=True), ids(50304, 8, 1025)
    return train(model, lambda: model(x), fused(model), clip=1.0)


@job
def t_llama3_8b_l6_fsdp2_kept_b2_s4096():
    model = hf("LlamaForCausalLM", "LlamaConfig", num_hidden_layers=6, vocab_size=128256, **LLAMA8B)
    model, x = sharded(model, model.model.layers, reshard_after_forward=False), ids(128000, 2, 4096)
    return train(model, lambda: model(input_ids=x, labels=x).loss, fused(model), None, clip=1.0)


@job
def t_qwen3_4b_l12_fsdp2_b2_s4096_recompute():
    model = hf("Qwen3ForCausalLM", "Qwen3Config", hidden_size=2560, intermediate_size=9728, num_hidden_layers=12,
               num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=151936, **CAUSAL)  # fmt: skip
    model.gradient_checkpointing_enable()
    model, x = sharded(model, model.model.layers), ids(150000, 2, 4096)
    return train(model, lambda: model(input_ids=x, labels=x).loss, foreach(model), None)


@job
def t_gpt_tp_l4_b8_s2048():
    model = fresh_models.split(fresh_models.Gpt(50304, 6144, 4, 48).to(DEV, torch.bfloat16), WORLD)
    x = ids(50304, 8, 2049)
    return train(model, lambda: model.loss(x), foreach(model), None)


@job
def t_convnext_base_ddp_b64_fp16():
    import timm as library

    model = ddp(library.create_model("convnext_base").to(DEV, memory_format=torch.channels_last))
    x, y = noise(64, 3, 224, 224).to(memory_format=torch.channels_last), ids(1000, 64)
    return train(model, lambda: F.cross_entropy(model(x), y), fused(model), torch.float16, True)


if __name__ == "__main__":
    main()
