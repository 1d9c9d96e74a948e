"""Jobs that were simulated before they were measured, on one GPU and on several: nothing is fitted to them.

    python fresh_jobs.py --jobs NAME[,NAME...] [--out FILE.jsonl] [--detail FOLDER]       # --list prints the names
    torchrun --nproc-per-node 2 fresh_jobs.py --jobs d_NAME [--out FILE.jsonl]

Measured as varied_jobs.py does; jobs named d_ are for two or more GPUs. Needs torchvision 0.26, transformers 5.17,
timm 1.0, torch-geometric 2.8."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fresh_models as models
import varied_jobs
from varied_jobs import DEV, exact, hf, ids, job, noise, sgd, train

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
CAUSAL = dict(use_cache=False)


def fused(model, rate=1e-4):
    return torch.optim.AdamW(model.parameters(), rate, fused=True)


def timm(name, batch, side=224, last=False, optimizer=None, **options):
    import timm as library

    model, x, y = library.create_model(name).to(DEV).train(), noise(batch, 3, side, side), ids(1000, batch)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return train(model, lambda: F.cross_entropy(model(x), y), optimizer and optimizer(model), **options)


def zoo(name, batch, side, last=False, optimizer=None, package=None, outputs=1000, **options):
    import torchvision

    model = getattr(package or torchvision.models, name)(weights=None).to(DEV).train()
    x, y = noise(batch, 3, *side), ids(outputs, batch)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return train(model, lambda: F.cross_entropy(model(x), y), optimizer and optimizer(model), **options)


def language(name, config, batch, length, pure=False, most=30000, optimizer=fused, recompute=False, **options):
    """A causal or masked language model of transformers: weights in bf16 (pure), or f32 with autocast."""
    model = hf(name, config, **options)
    if pure:
        model = model.to(torch.bfloat16)
    if recompute:
        model.gradient_checkpointing_enable()
    x = ids(most, batch, length)
    return train(
        model, lambda: model(input_ids=x, labels=x).loss, optimizer(model), None if pure else torch.bfloat16, clip=1.0
    )


# ---- pictures ----
@job
def f_convnextv2_tiny_b64():
    return timm("convnextv2_tiny", 64)


@job
def f_deit3_small_b256():
    return timm("deit3_small_patch16_224", 256, optimizer=fused)


@job
def f_resnet50d_b128_fp16():
    return timm("resnet50d", 128, last=True, optimizer=sgd, amp=torch.float16, scaler=True)


@job
def f_mobilevitv2_b128():
    return timm("mobilevitv2_100", 128, 256, last=True)


@job
def f_regnety_032_b192():
    return timm("regnety_032", 192, last=True, optimizer=sgd)


@job
def f_beit_base_b64():
    return timm("beit_base_patch16_224", 64)


@job
def f_mixer_b16_b128():
    return timm("mixer_b16_224", 128, optimizer=fused)


@job
def f_resnetv2_50_b96_tf32():
    exact(True)
    return timm("resnetv2_50", 96, optimizer=sgd, amp=None)


@job
def f_swin_base_b48():
    return timm("swin_base_patch4_window7_224", 48)


@job
def f_densenet169_b96():
    return zoo("densenet169", 96, (224, 224), True, sgd)


@job
def f_resnet152_b96():
    return zoo("resnet152", 96, (224, 224), True, sgd)


@job
def f_resnet50_b64_fp32():
    exact(False)
    return zoo("resnet50", 64, (224, 224), optimizer=sgd, amp=None)


@job
def f_mobilenet_v2_b256():
    return zoo("mobilenet_v2", 256, (224, 224), True, sgd)


@job
def f_r3d_18_b16():
    import torchvision

    return zoo("r3d_18", 16, (16, 112, 112), optimizer=sgd, package=torchvision.models.video, outputs=400)


@job
def f_fcn_resnet50_b16():
    import torchvision

    model = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=19).to(DEV)
    model = model.to(memory_format=torch.channels_last)
    x, y = noise(16, 3, 512, 512).to(memory_format=torch.channels_last), ids(19, 16, 512, 512)
    return train(model, lambda: F.cross_entropy(model(x)["out"].float(), y), sgd(model))


@job
def f_segformer_b8_s512():
    model = hf("SegformerForSemanticSegmentation", "SegformerConfig", num_labels=19, depths=[3, 4, 6, 3],
               hidden_sizes=[64, 128, 320, 512], decoder_hidden_size=256)  # fmt: skip
    x, y = noise(8, 3, 512, 512), ids(19, 8, 512, 512)
    return train(model, lambda: model(pixel_values=x, labels=y).loss)


@job
def f_vae_b256():
    model = models.Autoencoder(128, 64).to(DEV)
    x = torch.rand(256, 3, 64, 64, device=DEV)
    return train(model, lambda: model.loss(x), optimizer=torch.optim.Adam(model.parameters(), 1e-3))


@job
def f_glow_b64():
    model = models.Flow(levels=3, steps=8, width=256).to(DEV)
    x = torch.rand(64, 3, 32, 32, device=DEV)
    return train(model, lambda: model.loss(x), optimizer=torch.optim.Adam(model.parameters(), 1e-4), amp=None)


# ---- language ----
@job
def f_qwen3_600m_b4_s2048():
    return language("Qwen3ForCausalLM", "Qwen3Config", 4, 2048, True, hidden_size=1024, intermediate_size=3072,
                    num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                    vocab_size=151936, tie_word_embeddings=True, **CAUSAL)  # fmt: skip


@job
def f_gemma3_1b_b2_s1024():
    return language("Gemma3ForCausalLM", "Gemma3TextConfig", 2, 1024, True, hidden_size=1152, intermediate_size=6912,
                    num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
                    vocab_size=262144, sliding_window=512, **CAUSAL)  # fmt: skip


@job
def f_pythia_410m_b8_s1024():
    return language("GPTNeoXForCausalLM", "GPTNeoXConfig", 8, 1024, hidden_size=1024, intermediate_size=4096,
                    num_hidden_layers=24, num_attention_heads=16, vocab_size=50304, **CAUSAL)  # fmt: skip


@job
def f_opt_1b3_b4_s1024():
    return language("OPTForCausalLM", "OPTConfig", 4, 1024, True, hidden_size=2048, ffn_dim=8192, num_hidden_layers=24,
                    num_attention_heads=32, vocab_size=50272, word_embed_proj_dim=2048, **CAUSAL)  # fmt: skip


@job
def f_phi3_l16_b2_s4096_recompute():
    return language("Phi3ForCausalLM", "Phi3Config", 2, 4096, True, recompute=True, hidden_size=3072,
                    intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=32,
                    vocab_size=32064, pad_token_id=0, **CAUSAL)  # fmt: skip


@job
def f_deberta_base_b32_s256():
    return language("DebertaV2ForMaskedLM", "DebertaV2Config", 32, 256, hidden_size=768, num_hidden_layers=12,
                    num_attention_heads=12, intermediate_size=3072, relative_attention=True, position_buckets=256,
                    pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True, vocab_size=32000)  # fmt: skip


@job
def f_distilbert_b128_s128_fp16():
    model = hf("DistilBertForSequenceClassification", "DistilBertConfig", num_labels=4)
    x, y = ids(30000, 128, 128), ids(4, 128)
    return train(model, lambda: model(input_ids=x, labels=y).loss, sgd(model, 0.01), torch.float16, True, 1.0)


@job
def f_bart_base_b32_s256():
    model = hf("BartForConditionalGeneration", "BartConfig", d_model=768, encoder_layers=6, decoder_layers=6,
               encoder_ffn_dim=3072, decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12,
               use_cache=False)  # fmt: skip
    x, y = ids(50000, 32, 256), ids(50000, 32, 96)
    return train(model, lambda: model(input_ids=x, labels=y).loss, fused(model))


@job
def f_clip_b256():
    model = hf("CLIPModel", "CLIPConfig")
    x, words = noise(256, 3, 224, 224), ids(49000, 256, 77)
    return train(model, lambda: model(input_ids=words, pixel_values=x, return_loss=True).loss, fused(model))


@job
def f_vit_mae_b128():
    model = hf("ViTMAEForPreTraining", "ViTMAEConfig")
    x = noise(128, 3, 224, 224)
    return train(model, lambda: model(pixel_values=x).loss, fused(model))


@job
def f_translate_b64_s128():
    model = models.Translator(32000, 512, 8, 6, 2048).to(DEV)
    x, y = ids(32000, 64, 128), ids(32000, 64, 129)
    return train(model, lambda: model.loss(x, y), torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98)))


@job
def f_long_gpt_b1_s16384():
    model, x = models.Gpt(32768, 1024, 8, 16).to(DEV), ids(32768, 1, 16385)
    return train(model, lambda: model.loss(x), fused(model))


@job
def f_gpt_fp32_b4_s1024():
    exact(False)
    model, x = models.Gpt(50304, 768, 12, 12).to(DEV), ids(50304, 4, 1025)
    return train(model, lambda: model.loss(x), amp=None, clip=1.0)


@job
def f_gpt_compiled_b8_s1024():
    model, x = models.Gpt(50304, 1024, 12, 16).to(DEV), ids(50304, 8, 1025)
    model.loss = torch.compile(model.loss)
    return train(model, lambda: model.loss(x), fused(model))


@job
def f_experts_b16_s512():
    model, x = models.Gpt(32000, 768, 8, 12, experts=8).to(DEV), ids(32000, 16, 513)
    return train(model, lambda: model.loss(x), fused(model))


# ---- other kinds ----
@job
def f_audio_tcn_b32():
    model = models.Temporal(64, 256, 10).to(DEV)
    x, y = noise(32, 64, 4096), noise(32, 64, 4096)
    return train(model, lambda: F.l1_loss(model(x).float(), y))


@job
def f_volumes_b4_tf32():
    exact(True)
    model = models.Volumes(32).to(DEV)
    x = noise(4, 1, 64, 64, 64)
    return train(model, lambda: F.mse_loss(model(x), x), amp=None)


@job
def f_clicks_b32768():
    model = models.Clicks(26, 200000, 64).to(DEV)
    x, rows, y = noise(32768, 13), ids(200000, 26, 32768), torch.rand(32768, device=DEV).round()
    return train(model, lambda: F.binary_cross_entropy_with_logits(model(x, rows), y), sgd(model, 0.01), amp=None)


@job
def f_sage_n100000_e2000000():
    from torch_geometric.nn import GraphSAGE

    model = GraphSAGE(128, 256, 3, 47).to(DEV)
    x, edges, y = noise(100000, 128), ids(100000, 2, 2000000), ids(47, 100000)
    return train(model, lambda: F.cross_entropy(model(x, edges), y), amp=None)


@job
def f_molecules_b64():
    model = models.Messages(64, 128, 4).to(DEV)
    nodes, edges = ids(20, 64 * 30), ids(64 * 30, 2, 64 * 120)
    far, y = torch.rand(64 * 120, device=DEV), noise(64)
    return train(model, lambda: F.l1_loss(model(nodes, edges, far, 64), y), amp=None)


@job
def f_world_model_b16_s32():
    model = models.Imagined(256, 512).to(DEV)
    x, actions = noise(16, 32, 3, 64, 64), noise(16, 32, 6)
    return train(model, lambda: model.loss(x, actions), torch.optim.Adam(model.parameters(), 3e-4), clip=100.0)


# ---- several GPUs ----
def ddp(model, **options):
    return nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], **options)


@job
def d_resnet50_syncbn_b128():
    import torchvision

    model = nn.SyncBatchNorm.convert_sync_batchnorm(torchvision.models.resnet50(weights=None)).to(DEV)
    model = ddp(model.to(memory_format=torch.channels_last))
    x, y = noise(128, 3, 224, 224).to(memory_format=torch.channels_last), ids(1000, 128)
    return train(model, lambda: F.cross_entropy(model(x), y), sgd(model))


@job
def d_gpt2_medium_bf16hook_b8():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = ddp(models.Gpt(50304, 1024, 24, 16).to(DEV), gradient_as_bucket_view=True)
    model.register_comm_hook(None, bf16_compress_hook)
    x = ids(50304, 8, 1025)
    return train(model, lambda: model(x), fused(model), clip=1.0)


@job
def d_bert_large_fsdp1_b16_s512():
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.bert.modeling_bert import BertLayer

    model = FullyShardedDataParallel(
        hf("BertForMaskedLM", "BertConfig", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
           intermediate_size=4096),
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={BertLayer}),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16), use_orig_params=True,
    )  # fmt: skip
    x = ids(30000, 16, 512)
    return train(model, lambda: model(input_ids=x, labels=x).loss, fused(model), None)


def sharded(model, layers, **options):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for layer in layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32), **options)
    return fully_shard(model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32), **options)


@job
def d_qwen3_1b7_fsdp2_b2_s2048():
    model = hf("Qwen3ForCausalLM", "Qwen3Config", hidden_size=2048, intermediate_size=6144, num_hidden_layers=28,
               num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936,
               tie_word_embeddings=True, **CAUSAL)  # fmt: skip
    model, x = sharded(model, model.model.layers), ids(150000, 2, 2048)
    return train(model, lambda: model(input_ids=x, labels=x).loss, fused(model), None, clip=1.0)


@job
def d_gpt_fsdp2_compiled_b4_s2048():
    model = models.Gpt(50304, 2048, 12, 16).to(DEV)
    for layer in model.layers:
        layer.compile()
    model, x = sharded(model, model.layers), ids(50304, 4, 2049)
    return train(model, lambda: model(x), fused(model), None)


@job
def d_vit_large_zero1_b64():
    import timm as library
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp(library.create_model("vit_large_patch16_224").to(DEV), static_graph=True)
    x, y = noise(64, 3, 224, 224), ids(1000, 64)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4)
    return train(model, lambda: F.cross_entropy(model(x), y), optimizer)


@job
def d_gpt_tp_sequence_b4_s2048():
    model, x = models.split(models.Gpt(50304, 4096, 8, 32).to(DEV, torch.bfloat16), WORLD), ids(50304, 4, 2049)
    return train(model, lambda: model.loss(x), torch.optim.AdamW(model.parameters(), 1e-4, foreach=True), None)


@job
def d_experts_exchanged_b8_s1024():
    model, x = models.Gpt(32000, 1024, 8, 16, experts=8, exchange=WORLD).to(DEV), ids(32000, 8, 1025)
    return train(model, lambda: model.loss(x), fused(model))


@job
def d_unet_ddp_b16_fp16():
    import varied_vision

    model = ddp(varied_vision.UNet((64, 128, 256, 512), 3, 2).to(DEV, memory_format=torch.channels_last))
    x, y = noise(16, 3, 256, 256).to(memory_format=torch.channels_last), ids(2, 16, 256, 256)
    return train(model, lambda: F.cross_entropy(model(x).float(), y), sgd(model), torch.float16, True)


@job
def d_gpt_pipelined_m8():
    return models.pipelined(models.Gpt(32000, 2048, 16, 16), RANK, WORLD, ids(32000, 8, 1025))


def main():
    """Measures the jobs that the command line names, on this rank of one or several."""
    if WORLD > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    varied_jobs.main(RANK, WORLD)
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
