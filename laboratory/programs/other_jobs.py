"""Jobs of kinds that no earlier list has, simulated before they were measured: nothing is fitted to them.

    python other_jobs.py --jobs NAME[,NAME...] [--out FILE.jsonl] [--detail FOLDER]       # --list prints the names
    torchrun --nproc-per-node 2 other_jobs.py --jobs u_NAME [--out FILE.jsonl]

Measured as varied_jobs.py does; jobs named u_ are for two GPUs. Needs torch 2.11 and transformers 5.17."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fresh_models
import other_models as models
import varied_jobs
from fresh_jobs import CAUSAL, RANK, WORLD, ddp, fused, language, main, sharded
from varied_jobs import DEV, hf, ids, job, noise, sgd, train


# ---- language ----
@job
def w_mamba2_l8_b4_s1024():
    return language("Mamba2ForCausalLM", "Mamba2Config", 4, 1024, hidden_size=768, num_hidden_layers=8, num_heads=24,
                    head_dim=64, state_size=64, n_groups=1, vocab_size=32000, **CAUSAL)  # fmt: skip


@job
def w_linear_attention_l12_b8_s2048():
    model, x = models.Linear(32000, 1024, 12, 16).to(DEV), ids(32000, 8, 2049)
    return train(model, lambda: model.loss(x), fused(model), clip=1.0)


@job
def w_preferences_l12_b8_s1024():
    model = fresh_models.Gpt(32000, 1024, 12, 16).to(DEV)
    fixed = copy.deepcopy(model).requires_grad_(False)
    good, bad = ids(32000, 8, 1025), ids(32000, 8, 1025)

    def loss():
        with torch.no_grad():
            kept = models.chances(fixed, good) - models.chances(fixed, bad)
        return -F.logsigmoid(0.1 * (models.chances(model, good) - models.chances(model, bad) - kept)).mean()

    return train(model, loss, fused(model), clip=1.0)


@job
def w_qwen3_moe_l6_b4_s2048():
    return language("Qwen3MoeForCausalLM", "Qwen3MoeConfig", 4, 2048, True, hidden_size=1024, intermediate_size=2048,
                    moe_intermediate_size=768, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4,
                    head_dim=128, num_experts=32, num_experts_per_tok=4, vocab_size=32000, **CAUSAL)  # fmt: skip


@job
def w_longformer_b4_s2048():
    model = hf("LongformerForMaskedLM", "LongformerConfig", attention_window=256, num_hidden_layers=6,
               max_position_embeddings=2100, vocab_size=30000)  # fmt: skip
    x = ids(30000, 4, 2048)
    return train(model, lambda: model(input_ids=x, labels=x).loss, fused(model))


@job
def w_documents_compiled_l12_b4_s4096():
    model, x = models.Documents(32000, 1024, 12, 8, 512).to(DEV), ids(32000, 4, 4097)
    model.loss = torch.compile(model.loss)
    return train(model, lambda: model.loss(x), fused(model))


@job
def w_llama_8bit_products_l6_b2_s4096():
    model, x = fresh_models.Gpt(32000, 4096, 6, 32).to(DEV), ids(32000, 2, 4097)
    models.in_8_bits(model.layers)
    return train(model, lambda: model.loss(x), fused(model))


@job
def w_gpt_adafactor_l12_b8_s1024():
    from transformers.optimization import Adafactor

    model, x = fresh_models.Gpt(50304, 768, 12, 12).to(DEV), ids(50304, 8, 1025)
    return train(model, lambda: model.loss(x), Adafactor(model.parameters(), 1e-3, relative_step=False))


@job
def w_llava_l8_b4():
    model = hf("LlavaForConditionalGeneration", "LlavaConfig", image_token_index=31999, text_config=dict(
        model_type="llama", hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=4, vocab_size=32000), vision_config=dict(
        model_type="clip_vision_model", hidden_size=1024, intermediate_size=4096, num_hidden_layers=12,
        num_attention_heads=16, image_size=336, patch_size=14))  # fmt: skip
    words = torch.cat((torch.full((4, 576), 31999, device=DEV), ids(31000, 4, 448)), 1)
    x = noise(4, 3, 336, 336)
    return train(model, lambda: model(input_ids=words, pixel_values=x, labels=words).loss, fused(model))


# ---- pictures, sounds, physics ----
@job
def w_resnet50_compiled_b192():
    import torchvision

    model = torchvision.models.resnet50(weights=None).to(DEV, memory_format=torch.channels_last)
    x, y = noise(192, 3, 224, 224).to(memory_format=torch.channels_last), ids(1000, 192)
    made = torch.compile(model)
    return train(model, lambda: F.cross_entropy(made(x), y), sgd(model))


@job
def w_sam_vision_b2():
    model = hf("SamVisionModel", "SamVisionConfig")
    x = noise(2, 3, 1024, 1024)
    return train(model, lambda: model(pixel_values=x).last_hidden_state.float().square().mean(), fused(model))


@job
def w_wide_resnet_sharpness_b256():
    model = models.Wide(160, 3, 100).to(DEV, memory_format=torch.channels_last)
    x, y = noise(256, 3, 32, 32).to(memory_format=torch.channels_last), ids(100, 256)
    return models.sharpness(model, lambda: F.cross_entropy(model(x), y), sgd(model))


@job
def w_fourier_operator_b8_s256():
    model = models.Fourier(48, 32, 4).to(DEV)
    x, y = noise(8, 3, 256, 256), noise(8, 1, 256, 256)
    return train(model, lambda: F.mse_loss(model(x), y), torch.optim.Adam(model.parameters(), 1e-3), None)


@job
def w_sounds_ctc_b32_t800():
    model = models.Sounds(80, 512, 4, 64).to(DEV)
    x, words = noise(32, 80, 800), ids(63, 32, 60) + 1
    times, lengths = torch.full((32,), 200), torch.full((32,), 60)
    return train(model, lambda: F.ctc_loss(model(x), words, times, lengths), fused(model), None, clip=5.0)


@job
def w_encodec_b16():
    model = hf("EncodecModel", "EncodecConfig")
    x = noise(16, 1, 24000)
    return train(model, lambda: F.l1_loss(model.decoder(model.encoder(x)), x), fused(model), None)


@job
def w_differential_equation_b256():
    model = models.Flowing(64, 8).to(DEV)
    x, y = noise(256, 3, 32, 32), ids(10, 256)
    return train(model, lambda: F.cross_entropy(model(x), y), sgd(model), None)


# ---- small and many ----
@job
def w_tables_b8192():
    model = models.Tables([50] * 24, 16, 64, 4).to(DEV)
    rows, x, y = ids(50, 8192, 24), noise(8192, 16), torch.rand(8192, device=DEV).round()
    return train(model, lambda: F.binary_cross_entropy_with_logits(model(rows, x), y))


@job
def w_actor_critic_b256():
    return models.actor_critic(17, 6, 256, 256)


@job
def w_many_tasks_b32():
    return models.many_tasks(32, 10)


@job
def w_gaussian_process_n4096():
    model = models.Process(8).to(DEV)
    x, y = noise(4096, 8), noise(4096)
    return train(model, lambda: model.loss(x, y), torch.optim.Adam(model.parameters(), 1e-2), None)


# ---- two GPUs ----
@job
def u_gpt_power_sgd_l12_b8_s1024():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    model, x = ddp(fresh_models.Gpt(50304, 1024, 12, 16).to(DEV)), ids(50304, 8, 1025)
    state = power.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    model.register_comm_hook(state, power.powerSGD_hook)
    return train(model, lambda: model(x), fused(model))


@job
def u_vit_accumulated_b64():
    import torchvision

    model = ddp(torchvision.models.vit_b_16(weights=None).to(DEV), gradient_as_bucket_view=True)
    optimizer = fused(model)
    x, y = noise(64, 3, 224, 224), ids(1000, 64)

    def part():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y) / 4
        loss.backward()

    def step():
        with model.no_sync():
            for _ in range(3):
                part()
        part()
        optimizer.step()
        optimizer.zero_grad()

    return step


@job
def u_clicks_exchanged_b16384():
    model = models.Shared(26, 200000, 64, RANK, WORLD).to(DEV)
    x, rows, y = noise(16384, 13), ids(200000, 26 // WORLD, 16384 * WORLD), torch.rand(16384, device=DEV).round()
    dense = ddp(model.dense)
    return train(model, lambda: F.binary_cross_entropy_with_logits(model(dense, x, rows), y), sgd(model, 0.01), None)


@job
def u_llama_lora_fsdp2_l16_b2_s2048():
    model = models.low_rank(fresh_models.Gpt(32000, 2048, 16, 16), 16).to(DEV)
    model, x = sharded(model, model.layers), ids(32000, 2, 2049)
    trained = [p for p in model.parameters() if p.requires_grad]
    return train(model, lambda: model(x), torch.optim.AdamW(trained, 1e-4, fused=True), None, clip=1.0)


@job
def u_gpt_local_steps_l12_b8_s1024():
    model, x = fresh_models.Gpt(50304, 1024, 12, 16).to(DEV), ids(50304, 8, 1025)
    return models.local_steps(model, lambda: model.loss(x), fused(model), 4)


@job
def u_gpt_interleaved_m8():
    return models.interleaved(fresh_models.Gpt(32000, 2048, 16, 16), RANK, WORLD, ids(32000, 8, 1025))


@job
def u_whisper_fsdp2_b16():
    model = hf("WhisperForConditionalGeneration", "WhisperConfig", d_model=1024, encoder_layers=12, decoder_layers=12,
               encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
               num_mel_bins=128, use_cache=False)  # fmt: skip
    model = sharded(model, [*model.model.encoder.layers, *model.model.decoder.layers])
    x, words = noise(16, 128, 3000), ids(50000, 16, 128)
    return train(model, lambda: model(input_features=x, labels=words).loss, fused(model), None)


if __name__ == "__main__":
    main()
