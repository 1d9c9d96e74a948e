"""Programs of pytorch/examples and nanoGPT, in clones of their repositories."""

from __future__ import annotations

from ..job import CHOSEN, DECIDED, UPDATED, Framework, Job


def example(folder: str, script: str, title: str, modules: tuple[str, ...] = ()) -> Framework:
    return Framework(f"pytorch/examples: {title}", (), modules, (f"{folder}/{script}",), "pytorch/examples", "77f55b9")


IMAGENET = Framework(
    "pytorch/examples: imagenet", ("torchvision",), ("torchvision",), (), "pytorch/examples", "77f55b9"
)
FSDP2 = example("distributed/FSDP2", "example.py", "FSDP2")
TP = example("distributed/tensor_parallelism", "tensor_parallel_example.py", "tensor parallel")
SP = example("distributed/tensor_parallelism", "sequence_parallel_example.py", "sequence parallel")
FSDP_TP = example("distributed/tensor_parallelism", "fsdp_tp_example.py", "FSDP2 and tensor parallel")
DDP = example("distributed/ddp-tutorial-series", "multigpu_torchrun.py", "DDP tutorial")
BASIC_DDP = example("distributed/ddp", "example.py", "DDP")
MNIST = example("mnist", "main.py", "mnist", ("torchvision",))
MNIST_RNN = example("mnist_rnn", "main.py", "mnist_rnn", ("torchvision",))
HOGWILD = example("mnist_hogwild", "main.py", "mnist_hogwild", ("torchvision",))
SIAMESE = example("siamese_network", "main.py", "siamese network", ("torchvision",))
VAE = example("vae", "main.py", "VAE", ("torchvision",))
DCGAN = example("dcgan", "main.py", "DCGAN", ("torchvision",))
WORDS = example("word_language_model", "main.py", "word language model")
MINGPT = example("distributed/minGPT-ddp/mingpt", "main.py", "minGPT-ddp", ("hydra", "boto3"))
NANOGPT = Framework(
    "nanoGPT",
    (),
    (),
    (
        *("train.py", "config/train_shakespeare_char.py", "--max_iters=4", "--log_interval=1"),
        *("--gradient_accumulation_steps=2", "--eval_iters=2", "--n_layer=2"),
    ),
    "karpathy/nanoGPT",
    "3adf61e",
)

JOBS = (
    Job(
        IMAGENET,
        "imagenet-spawn",
        "ResNet-18, ranks started by mp.spawn",
        options=(
            "--steps",
            "4",
            "--launcher",
            "--",
            "python",
            "imagenet/main.py",
            "--dummy",
            "-b",
            "32",
            "-j",
            "1",
            "--dist-url",
            "tcp://127.0.0.1:23456",
            "--multiprocessing-distributed",
            "--world-size",
            "1",
            "--rank",
            "0",
        ),
        shows=(r"Epoch: \[0\]\[",),
        warns=(*CHOSEN, "decides by a value that is not computed"),
    ),
    Job(FSDP2, "example-fsdp2", "trains, saves", steps=10, warns=UPDATED),
    Job(
        FSDP2,
        "example-fsdp2-mixed",
        "mixed precision, explicit prefetching, torch.distributed.checkpoint",
        ("--mixed-precision", "--explicit-prefetching", "--dcp-api"),
        steps=10,
        warns=UPDATED,
    ),
    Job(TP, "example-tp", "TP 2", shows=("Tensor Parallel training completed",), steps=10),
    Job(SP, "example-sp", "sequence parallel 2", shows=("Sequence Parallel training completed",), steps=10),
    Job(FSDP_TP, "example-fsdp-tp", "FSDP2 2 x TP 2", ranks=4, shows=("2D training successfully completed",), steps=10),
    Job(
        DDP,
        "example-ddp",
        "two epochs, snapshots",
        ("2", "1"),
        shows=("Training snapshot saved",),
        steps=64,
        warns=UPDATED,
    ),
    Job(
        MINGPT,
        "example-mingpt",
        "DDP, fp16",
        ("data_config.path=text.txt", "trainer_config.max_epochs=1", "gpt_config.n_layer=2"),
        options=("--steps", "4"),
        shows=("Epoch",),
        steps=4,
    ),
    Job(BASIC_DDP, "example-basic-ddp", "one step", shows=("training completed in rank 1",), steps=1),
    Job(
        MNIST,
        "example-mnist",
        "trains, tests",
        ("--epochs", "1"),
        ranks=1,
        shows=("Test set: Average loss",),
        steps=16,
        warns=CHOSEN,
    ),
    Job(
        MNIST_RNN,
        "example-mnist-rnn",
        "an LSTM trains, tests",
        ("--epochs", "1", "--accel"),
        ranks=1,
        shows=("Test set: Average loss",),
        steps=16,
        warns=CHOSEN,
    ),
    Job(
        HOGWILD,
        "example-mnist-hogwild",
        "two processes train one model",
        ("--epochs", "1", "--cuda"),
        ranks=1,
        shows=("Test set: Average loss",),
        steps=16,
        warns=CHOSEN,
    ),
    Job(
        SIAMESE,
        "example-siamese",
        "trains, tests",
        ("--epochs", "1"),
        ranks=1,
        shows=("Test set: Average loss",),
        steps=16,
        warns=DECIDED,
    ),
    Job(
        VAE,
        "example-vae",
        "trains, tests, saves images",
        ("--epochs", "1"),
        ranks=1,
        shows=("Test set loss",),
        steps=8,
        warns=UPDATED,
    ),
    Job(
        DCGAN,
        "example-dcgan",
        "two optimizers",
        ("--dataset", "fake", "--accel"),
        ranks=1,
        options=("--steps", "6"),
        shows=("Loss_D",),
        steps=6,
        warns=UPDATED,
    ),
    Job(
        WORDS,
        "example-words-lstm",
        "LSTM",
        ("--data", "words", "--accel", "--epochs", "1", "--log-interval", "1", "--use-optimizer"),
        ranks=1,
        options=("--steps", "6"),
        shows=("epoch   1",),
        steps=6,
    ),
    Job(
        WORDS,
        "example-words-transformer",
        "Transformer",
        (
            "--data",
            "words",
            "--accel",
            "--epochs",
            "1",
            "--log-interval",
            "1",
            "--model",
            "Transformer",
            "--use-optimizer",
        ),
        ranks=1,
        options=("--steps", "6"),
        shows=("epoch   1",),
        steps=6,
    ),
    Job(NANOGPT, "nanogpt", "DDP", ("--compile=False",), shows=("iter 4: loss",), steps=4),
    Job(NANOGPT, "nanogpt-compile", "DDP, compiled", shows=("compiling the model", "iter 4: loss"), steps=4),
)
