"""torchtitan itself (its trainer, unmodified), with its data set package replaced by random text made here and a tokenizer made here.
    torchrun --nproc-per-node 4 titan_jobs.py NAME [torchtitan flags]      (torchtitan 0.2.2, torch 2.11)
Its own metrics lines are the measurement; peak memory follows as a RESULT line."""

import importlib.machinery, json, os, random, sys, tempfile, types


class Rows(list):
    def skip(s, n):
        return Rows(s[n:])


def load_dataset(*a, **k):
    r = random.Random(0)
    return Rows({"text": " ".join(f"w{r.randrange(1900)}" for _ in range(3000))} for _ in range(60))


d, dd = types.ModuleType("datasets"), types.ModuleType("datasets.distributed")
for m in (d, dd):
    m.__spec__ = importlib.machinery.ModuleSpec(m.__name__, None)
d.Dataset, d.load_dataset, d.distributed = Rows, load_dataset, dd
dd.split_dataset_by_node = lambda ds, rank, n: Rows(ds[rank::n])
sys.modules["datasets"], sys.modules["datasets.distributed"] = d, dd
COMMON = dict(
    metrics__log_freq=1,
    training__steps=10,
    training__dataset="c4_test",
    metrics__disable_color_printing=True,
    training__gc_freq=1000,
)
L8 = dict(
    model__name="llama3",
    model__flavor="8B",
    training__local_batch_size=1,
    training__seq_len=8192,
    activation_checkpoint__mode="selective",
    activation_checkpoint__selective_ac_option="op",
)
SHORT = L8 | dict(model__flavor="8B_l8", training__seq_len=4096)
JOBS = dict(
    tt8b_fsdp4=L8,
    tt8b_fsdp4_compile=L8 | dict(compile__enable=True),
    t_tt8b_l8_fsdp2_b2=SHORT | dict(training__local_batch_size=2),
    # On four H100s: simulated before they were measured.
    s_tt8b_l8_fsdp4=SHORT,
    s_tt8b_l8_fsdp4_compile=SHORT | dict(compile__enable=True),
    s_tt8b_l8_tp2_fsdp2=SHORT | dict(training__local_batch_size=2, parallelism__tensor_parallel_degree=2),
    s_ttmoe_l6_ep4=SHORT
    | dict(model__name="deepseek_v3", model__flavor="16B_l6", parallelism__expert_parallel_degree=4),
)


def short_models():
    """Published models with fewer layers, so that 80 GB hold them and steps are short."""
    from dataclasses import replace
    from torchtitan.models.deepseek_v3 import deepseekv3_args
    from torchtitan.models.llama3 import llama3_args

    llama3_args["8B_l8"] = replace(llama3_args["8B"], n_layers=8)
    deepseekv3_args["16B_l6"] = replace(deepseekv3_args["16B"], n_layers=6, attn_type="sdpa", attn_mask_type="causal")


def tokenizer(path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    v = {f"w{i}": i for i in range(1900)} | {"<unk>": 1900, "<s>": 1901, "</s>": 1902}
    t = Tokenizer(models.WordLevel(v, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.add_special_tokens(["<s>", "</s>"])
    t.save(f"{path}/tokenizer.json")
    json.dump(
        dict(bos_token="<s>", eos_token="</s>", add_bos_token=False, add_eos_token=False),
        open(f"{path}/tokenizer_config.json", "w"),
    )


if __name__ == "__main__":
    name = sys.argv[1]
    path = tempfile.mkdtemp()
    tokenizer(path)
    os.chdir(tempfile.mkdtemp())
    opts = COMMON | JOBS[name] | dict(model__hf_assets_path=path)
    flags = []
    for k, v in opts.items():
        k = "--" + k.replace("__", ".")
        flags += [k] if v is True else [k, str(v)]
    sys.argv = ["torchtitan"] + flags + sys.argv[2:]
    import torch
    from torchtitan.train import Trainer, main

    short_models()
    main(Trainer)
    if os.environ.get("RANK", "0") == "0":
        print(
            "RESULT "
            + json.dumps(
                dict(
                    job=name,
                    max_alloc=torch.cuda.max_memory_allocated(),
                    max_reserved=torch.cuda.max_memory_reserved(),
                    torch=torch.__version__,
                )
            ),
            flush=True,
        )
