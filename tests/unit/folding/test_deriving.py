"""`--fold auto`: which mesh the options and the text of a script tell."""

from __future__ import annotations

import pytest

from phantora_async.folding import Underivable, derived

DDP = "model = DistributedDataParallel(model)\n"


@pytest.mark.parametrize(
    ("options", "world_size", "mesh"),
    [
        ("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16", 16384, "pp=16,dp=128,tp=8"),
        ("--tensor_model_parallel_size=2 --context-parallel-size 4", 64, "dp=8,cp=4,tp=2"),
        ("--tensor-model-parallel-size 2 --expert-model-parallel-size 4", 64, "dp=8,ep=4,tp=2"),
        ("--pipeline-model-parallel-size 4 --use-tp-pp-dp-mapping --lr 3e-4", 16, "dp=4,pp=4"),
        ("--tensor-model-parallel-size 1", 16, "dp=16"),
        (
            "--parallelism.data_parallel_replicate_degree 4 --parallelism.tensor_parallel_degree=8",
            256,
            "dp_replicate=4,dp_shard=8,tp=8",
        ),
        (
            "--parallelism.data_parallel_shard_degree -1 --parallelism.pipeline_parallel_degree 2",
            16,
            "pp=2,dp_shard=8",
        ),
    ],
)
def test_options_of_megatron_and_torchtitan(options: str, world_size: int, mesh: str) -> None:
    assert derived(options.split(), "", world_size).mesh == mesh


@pytest.mark.parametrize(
    ("text", "mesh"),
    [
        (DDP, "dp=32"),
        ("for block in model:\n    fsdp.fully_shard(block)\n", "dp=32"),
        ('mesh = init_device_mesh("cuda", (world // 8, 8), mesh_dim_names=("dp", "tp"))\n', "dp=4,tp=8"),
        ('init_device_mesh("cuda", mesh_shape=[2, n, 4], mesh_dim_names=["pp", "fsdp", "tp"])\n', "pp=2,fsdp=4,tp=4"),
        ('init_device_mesh("cuda", (4, 8), mesh_dim_names=("replicate", "fsdp"))\n', "replicate=4,fsdp=8"),
        (
            'P = 4\nW = int(os.environ["WORLD_SIZE"])\n'
            'init_device_mesh("cuda", (W // P, P), mesh_dim_names=("dp", "pp"))\n',
            "dp=8,pp=4",
        ),
        (
            'S, T = 4, 2\ninit_device_mesh("cuda", (n // (S * T), S, T), mesh_dim_names=("dp", "fsdp", "tp"))\n',
            "dp=4,fsdp=4,tp=2",
        ),
    ],
)
def test_the_text_of_a_script(text: str, mesh: str) -> None:
    assert derived((), text, 32).mesh == mesh


GIVEN = """
p.add_argument("--tp", type=int, default=2)
p.add_argument("--flat", action="store_true")
args = p.parse_args()
if args.flat:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
else:
    mesh = init_device_mesh("cuda", (world // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
"""


@pytest.mark.parametrize(
    ("options", "mesh"), [("", "dp=16,tp=2"), ("--tp 8", "dp=4,tp=8"), ("--tp=4", "dp=8,tp=4"), ("--flat", "dp=32")]
)
def test_options_of_the_script_s_own(options: str, mesh: str) -> None:
    """They say which of two calls is made, and how large its axes are."""
    assert derived(options.split(), GIVEN, 32).mesh == mesh


@pytest.mark.parametrize(
    ("options", "text", "why"),
    [
        ("", "print(1)\n", "neither its options nor its text tell how the script divides its work"),
        ("", DDP + "group = dist.new_group(ranks)\n", "calls new_group, whose ranks its text does not tell"),
        ("", DDP + "def", "cannot be read"),
        ("", 'init_device_mesh("cuda", (a, b), mesh_dim_names=("dp", "tp"))\n', "sizes of dp and tp are not in its"),
        ("", 'init_device_mesh("cuda", shape, mesh_dim_names=names)\n', "line 1 does not name its axes"),
        ("", 'init_device_mesh("cuda", (a, 8), mesh_dim_names=("x", "y"))\n', "none of x, y is known as data-parallel"),
        ("", 'init_device_mesh("cuda", (8, 8), mesh_dim_names=("dp", "tp"))\n', "a mesh of 64 ranks, not of 32"),
        ("--tensor-model-parallel-size 5", "", "a mesh of 5 ranks, which does not divide 32"),
        ("--tensor-model-parallel-size two", "", "two is no number"),
        ("--expert-model-parallel-size 2 --context-parallel-size 2", "", "across data and context parallelism"),
        ("--parallelism.expert_parallel_degree 2", "", "torchtitan's experts lie across other axes"),
        ("--parallelism.data_parallel_shard_degree 3", "", "do not make a mesh of 32 ranks"),
    ],
)
def test_what_cannot_be_told_is_said(options: str, text: str, why: str) -> None:
    with pytest.raises(Underivable, match=why):
        derived(options.split(), text, 32)
