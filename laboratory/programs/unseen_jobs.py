"""Jobs of kinds that no earlier list has, simulated before they were measured: nothing is fitted to them.

    python unseen_jobs.py --jobs NAME[,NAME...] [--out FILE.jsonl] [--detail FOLDER]       # --list prints the names
    torchrun --nproc-per-node 2 unseen_jobs.py --jobs y_NAME [--out FILE.jsonl]

Measured as varied_jobs.py does; jobs named y_ are for two GPUs. Needs torch 2.11, torchvision 0.26, transformers 5.17 and
accelerate 1.15."""

import torch
from torch.nn import functional as F

import fresh_models
import unseen_models as models
from fresh_jobs import CAUSAL, RANK, WORLD, ddp, fused, language, main, sharded
from varied_jobs import DEV, hf, ids, job, noise, sgd, train


# ---- language ----
@job
def x_deepseek_v3_l6_b4_s1024():
    return language("DeepseekV3ForCausalLM", "DeepseekV3Config", 4, 1024, True, hidden_size=1024, intermediate_size=4096,
                    moe_intermediate_size=512, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=16,
                    n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4, first_k_dense_replace=2,
                    kv_lora_rank=256, q_lora_rank=512, vocab_size=32000, **CAUSAL)  # fmt: skip


@job
def x_gpt_oss_l6_b2_s2048():
    return language("GptOssForCausalLM", "GptOssConfig", 2, 2048, True, hidden_size=1440, intermediate_size=1440,
                    num_hidden_layers=6, num_attention_heads=24, num_key_value_heads=8, num_local_experts=16,
                    num_experts_per_tok=4, vocab_size=32000, **CAUSAL)  # fmt: skip


@job
def x_qwen3_next_l4_b2_s1024():
    return language("Qwen3NextForCausalLM", "Qwen3NextConfig", 2, 1024, True, hidden_size=1024, num_hidden_layers=4,
                    num_attention_heads=8, num_key_value_heads=2, head_dim=128, linear_num_value_heads=16,
                    linear_num_key_heads=8, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=512,
                    shared_expert_intermediate_size=512, vocab_size=32000, **CAUSAL)  # fmt: skip


@job
def x_recurrent_gemma_l6_b8_s512():
    return language("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", 8, 512, hidden_size=1024, lru_width=1024,
                    intermediate_size=6144, num_hidden_layers=6, num_attention_heads=8, vocab_size=32000,
                    attention_window_size=256, **CAUSAL)  # fmt: skip


@job
def x_modern_bert_b32_s512():
    return language("ModernBertForMaskedLM", "ModernBertConfig", 32, 512, num_hidden_layers=16)


@job
def x_big_bird_l6_b2_s4096():
    return language("BigBirdForMaskedLM", "BigBirdConfig", 2, 4096, num_hidden_layers=6, max_position_embeddings=4096)


@job
def x_conv_bert_b16_s512():
    return language("ConvBertForMaskedLM", "ConvBertConfig", 16, 512)


@job
def x_jagged_attention_l8_t16384():
    model = models.Ragged(32000, 768, 8, 12).to(DEV)
    lengths = [2048, 1536, 1024, 3072, 512, 768, 256, 4096, 1280, 640, 896, 256]
    words = [ids(32000, n) for n in lengths]
    return train(model, lambda: model.loss(words), fused(model), clip=1.0)


@job
def x_gpt_activations_on_cpu_l12_b4_s1024():
    model, x = fresh_models.Gpt(50304, 1024, 12, 16).to(DEV), ids(50304, 4, 1025)

    def loss():
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return model.loss(x)

    return train(model, loss, fused(model))


@job
def x_gpt_trainer_b16_s512():
    return models.trainer("GPT2LMHeadModel", "GPT2Config", 16, 512)


@job
def x_proteins_b32_s384():
    return language("EsmForMaskedLM", "EsmConfig", 32, 384, most=30, hidden_size=640, num_hidden_layers=18,
                    num_attention_heads=20, intermediate_size=2560, vocab_size=33, position_embedding_type="rotary",
                    pad_token_id=1, mask_token_id=32, max_position_embeddings=1026)  # fmt: skip


@job
def x_beams_bart_b8_n4():
    model = (
        hf("BartForConditionalGeneration", "BartConfig", decoder_layers=6, encoder_layers=6, d_model=768).half().eval()
    )
    x = ids(50000, 8, 256) + 4

    def step():
        with torch.no_grad():
            model.generate(x, num_beams=4, max_new_tokens=24, min_new_tokens=24, do_sample=False)

    return step


# ---- pictures, films, sounds ----
@job
def x_dino_crops_b32():
    return models.own_teacher(32)


@job
def x_video_mae_b16():
    model = hf("VideoMAEForPreTraining", "VideoMAEConfig")
    x, hidden = noise(16, 16, 3, 224, 224), torch.zeros(16, 1568, dtype=torch.bool)
    hidden[:, torch.randperm(1568)[:1408]] = True
    hidden = hidden.to(DEV)
    return train(model, lambda: model(pixel_values=x, bool_masked_pos=hidden).loss, fused(model))


@job
def x_depth_dpt_b8():
    model = hf("DPTForDepthEstimation", "DPTConfig", num_hidden_layers=12, hidden_size=768, intermediate_size=3072,
               num_attention_heads=12, backbone_out_indices=[2, 5, 8, 11])  # fmt: skip
    x, y = noise(8, 3, 384, 384), noise(8, 384, 384)
    return train(model, lambda: F.l1_loss(model(pixel_values=x).predicted_depth.float(), y), fused(model))


@job
def x_optical_flow_raft_b4():
    import torchvision

    model = torchvision.models.optical_flow.raft_small(weights=None).to(DEV)
    a, b, y = noise(4, 3, 256, 448), noise(4, 3, 256, 448), noise(4, 2, 256, 448)
    return train(
        model, lambda: sum((p - y).abs().mean() for p in model(a, b, num_flow_updates=8)), fused(model), None, clip=1.0
    )


@job
def x_patch_series_b128():
    model = hf("PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=21, context_length=512, patch_length=16,
               patch_stride=8, prediction_length=96, d_model=256, num_hidden_layers=4, num_attention_heads=8,
               ffn_dim=512)  # fmt: skip
    x, y = noise(128, 512, 21), noise(128, 96, 21)
    return train(model, lambda: model(past_values=x, future_values=y).loss, fused(model), None)


@job
def x_state_space_l6_b16_s4096():
    model = models.Convolved(256, 6, 4096).to(DEV)
    x, y = noise(16, 4096, 1), ids(10, 16)
    return train(model, lambda: F.cross_entropy(model(x), y), fused(model), None)


@job
def x_tacotron_b32_t120():
    model = models.Speaker(80, 512).to(DEV)
    words, x = ids(70, 32, 80), noise(120, 32, 80)
    return train(model, lambda: F.mse_loss(model(words, x), x), fused(model), None, clip=1.0)


# ---- points, tables, second derivatives ----
@job
def x_points_b16_n2048():
    model = models.Points(40).to(DEV)
    x, y = noise(16, 2048, 3), ids(40, 16)
    return train(model, lambda: F.cross_entropy(model(x), y), fused(model), None)


@job
def x_curvature_b1024():
    return models.factored(1024)


@job
def x_quantised_resnet18_b128():
    model = models.rounded_resnet().to(DEV)
    x, y = noise(128, 3, 224, 224), ids(1000, 128)
    return train(model, lambda: F.cross_entropy(model(x), y), sgd(model), None)


@job
def x_sequences_of_clicks_b256_s200():
    model = models.Clicks(60000, 256, 2, 200).to(DEV)
    x, others = ids(60000, 256, 201), ids(60000, 256, 200, 4)
    return train(model, lambda: model.loss(x, others), fused(model))


@job
def x_sparse_graph_n100000():
    model = models.Spread(128, 256, 40, 3, 100000, 1200000).to(DEV)
    x, y = noise(100000, 128), ids(40, 100000)
    return train(model, lambda: F.cross_entropy(model(x), y), fused(model), None)


# ---- two GPUs ----
@job
def y_ring_attention_l4_b1_s16384():
    model, x = models.Ringed(32000, 1024, 4, 8, RANK, WORLD).to(DEV), ids(32000, 1, 16384 // WORLD + 1)
    model = ddp(model)
    return train(model, lambda: model(x), fused(model))


@job
def y_heads_exchanged_l6_b1_s16384():
    model, x = models.Exchanged(32000, 1024, 6, 8, WORLD).to(DEV), ids(32000, 1, 16384 // WORLD + 1)
    model = ddp(model)
    return train(model, lambda: model(x), fused(model))


@job
def y_fsdp1_t5_b16_s256():
    return models.fully_sharded_t5(16, 256)


@job
def y_gpt_fsdp2_four_parts_b4_s1024():
    model = fresh_models.Gpt(32000, 1536, 16, 12).to(DEV)
    model, x = sharded(model, model.layers), ids(32000, 4, 1025)
    optimizer = fused(model)

    def step():
        for part in range(4):
            model.set_requires_gradient_sync(part == 3)
            (model(x) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@job
def y_bert_trainer_ddp_b32_s128():
    return models.trainer("BertForMaskedLM", "BertConfig", 32, 128)


@job
def y_gradients_by_hooks_l16_b8_s1024():
    model, x = fresh_models.Gpt(32000, 1024, 16, 16).to(DEV), ids(32000, 8, 1025)
    return models.reduced_by_hooks(model, lambda: model.loss(x), WORLD)


@job
def y_experts_of_two_l6_b8_s1024():
    model, x = models.Mixed(32000, 1024, 6, 16, 16, RANK, WORLD).to(DEV), ids(32000, 8, 1025)
    return models.apart(model, lambda: model.loss(x))


@job
def y_optimizer_in_backward_vit_b64():
    import torchvision

    model, x, y = torchvision.models.vit_b_16(weights=None).to(DEV), noise(64, 3, 224, 224), ids(1000, 64)
    return models.stepped_in_backward(model, lambda made: F.cross_entropy(made(x), y))


if __name__ == "__main__":
    main()
