"""Where a script's text gives ranks other tasks, and which ranks differ there."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from phantora_async.folding.request import mesh_of
from phantora_async.folding.script_text import program_of, source_of, sources_of
from phantora_async.folding.script_values import Ranks
from phantora_async.folding.told_apart import Told, told_apart

WORLD = 16
RANKS = Ranks((4,) * 4, mesh_of("dp=8,tp=2", WORLD))
"""Four servers of four GPUs."""


def places(text: str, *arguments: str) -> list[Told]:
    source = source_of(text)
    return told_apart([source] if source is not None else [], arguments, RANKS)


def parted(told: Told) -> set[frozenset[int]]:
    """Returns the ranks that do the same there."""
    assert told.kinds is not None
    kinds = sorted(enumerate(told.kinds), key=lambda one: str(one[1]))
    return {frozenset(rank for rank, _ in group) for _, group in itertools.groupby(kinds, key=lambda one: str(one[1]))}


def halves(ranks: set[int]) -> set[frozenset[int]]:
    return {frozenset(ranks), frozenset(range(WORLD)) - ranks}


THIRD = {2, 6, 10, 14}
"""The third GPU of each server."""


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("if rank == 7: x()", {7}),
        ("if 7 != rank: x()", {7}),
        ("if dist.get_rank() == 7 and step > 5: x()", {7}),
        ("if self.rank in (3, 5): x()", {3, 5}),
        ("if int(os.environ['RANK']) == 12: x()", {12}),
        ("if os.environ.get('RANK', '0') == '12': x()", {12}),
        ("y = a if RANK == 1 else b", {1}),
        ("if rank == dist.get_world_size() - 1: x()", {15}),
        ("if rank > 5: x()", set(range(6))),
        ("if rank % 2: x()", set(range(0, 16, 2))),
        ("if local_rank == 2: x()", THIRD),
        ("if os.environ['LOCAL_RANK'] == '2': x()", THIRD),
        ("if rank % 4 == 2: x()", THIRD),
        ("if rank % torch.cuda.device_count() == 2: x()", THIRD),
        ("r = dist.get_rank()\ngpu = r % int(os.environ['LOCAL_WORLD_SIZE'])\nif gpu == 2: x()", THIRD),
        ("if torch.cuda.current_device() == 2: x()", THIRD),
        ("if dist.get_node_local_rank() == 2: x()", THIRD),
        ("device = torch.device(f'cuda:{local_rank}')\nif device.index == 2: x()", THIRD),
        ("def main(gpu, args):\n    if gpu == 2: x()\nmain(int(os.environ['LOCAL_RANK']), a)", THIRD),
        ("class T:\n    def __init__(self, g):\n        self.g = g\nt = T(local_rank)\nif t.g == 2: x()", THIRD),
        ("def of(): return int(os.getenv('LOCAL_RANK', -1))\nn = of()\nif n == 2: x()", THIRD),
        ("def of(): return rank, local_rank\nr, n = of()\nif n == 2: x()", THIRD),
        ("K = 2\nif local_rank == K: x()", THIRD),
        ("if local_rank != int(sys.argv[2]): x()", THIRD),
        ("p.add_argument('--gpu', type=int, default=1)\nif local_rank == args.gpu: x()", THIRD),
        ("p.add_argument('--local-rank', type=int, default=0)\nif args.local_rank == 2: x()", THIRD),
        ("n = {2: 8}.get(local_rank, 16)\nx(n)", THIRD),
        ("class C:\n    WORK = {0: light, 2: heavy}\n    def x(self): self.WORK.get(self.local_rank, light)()", THIRD),
        ("{12: heavy}.get(rank, light)()", {12}),
        ("getattr(self, f'at_{local_rank == 2}')()", THIRD),
        ("WORK = {2: heavy}\nWORK.get(local_rank, light)()", THIRD),
        (
            "class C:\n    gpu: int = field(default_factory=lambda: int(os.environ['LOCAL_RANK']))\nif c.gpu == 2: x()",
            THIRD,
        ),
        (
            "def own(): return int(os.environ['LOCAL_RANK'])\nclass C:\n    gpu: int = field(default_factory=own)\n"
            "if c.gpu == 2: x()",
            THIRD,
        ),
        ("if not local_rank: x()", {0, 4, 8, 12}),
        ("pending = dcp.async_save(state)", {0, 4, 8, 12}),  # in a thread, which uses the first GPU
        ("tqdm(y, disable=not accelerator.is_local_main_process)", {0, 4, 8, 12}),
        ("x = torch.ones([8, 16][local_rank % 2])", set(range(0, 16, 2))),
        ("for _ in range(node_rank // 3): x()", {12, 13, 14, 15}),
        ("if int(os.environ['GROUP_RANK']) == 2: x()", {8, 9, 10, 11}),
        ("if rank // 4 == 2: x()", {8, 9, 10, 11}),
        ("if socket.gethostname() == 'node002': x()", {8, 9, 10, 11}),
        ("if os.uname().nodename.endswith('2'): x()", {8, 9, 10, 11}),
        ("if mesh.get_local_rank('dp') == 0: x()", {0, 1}),
        ("if mesh['dp'].get_local_rank() == 0: x()", {0, 1}),
        ("if mesh['dp'].get_coordinate()[0] == 0: x()", {0, 1}),
        ("if mesh.get_local_rank(mesh_dim='dp') == 0: x()", {0, 1}),
        ("mesh = init_device_mesh('cuda', (8, 2))\nif mesh.get_coordinate()[0] == 0: x()", {0, 1}),
        ("mesh = init_device_mesh('cuda', (world_size // 2, 2))\nif mesh.get_coordinate() == [0, 1]: x()", {1}),
        ("mesh = init_device_mesh('cuda', (8, 2))\nrow, _ = mesh.get_coordinate()\nif row == 7: x()", {14, 15}),
        ("mesh = init_device_mesh('cuda', (8, 2))\nif mesh.get_local_rank(0) == 0: x()", {0, 1}),
        (
            "class T:\n  def __init__(self):\n    self.mesh = init_device_mesh('cuda', mesh_shape=(8, n))\n"
            "  def go(self):\n    if self.mesh.get_coordinate()[0] < 1: x()",
            {0, 1},
        ),
        ("whole = init_device_mesh('cuda', (8, 2))\nmine = whole['dp']\nif mine.get_coordinate()[0] < 1: x()", {0, 1}),
        ("if dp_rank == 0: x()", {0, 1}),
    ],
)
def test_which_ranks_differ(text: str, ranks: set[int]) -> None:
    for told in places(text, "--gpu", "2"):
        assert parted(told) == halves(ranks), told
    assert places(text, "--gpu", "2"), "found"


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.set_device(local_rank % torch.cuda.device_count())",
        "device = f'cuda:{local_rank}'\nx = torch.ones(8, device=device)\nif x.sum() > 3: y()",
        "torch.manual_seed(7 + rank)\nprint(f'{rank + 1} of {world_size}')",
        "start = rank * size\npart = data[start : start + size]",
        "loader = Sampler(data, rank=rank)\nmodel = DDP(net.to(local_rank), device_ids=[local_rank])",
        "loss = model(batch.to(local_rank))\nif loss.isnan(): x()",
        "dist.send(x, dst=(rank + 1) % world_size)",
        "save(folder / f'rank{rank}.pt')",
        "assert seen == list(range(rank, 64, world))",
        "if world_size > 1 and epoch % 2: x()",
        "if tp_size == 8 or ep_rank == 2: x()",
        "for name in names: getattr(net, name).to(local_rank)",
        "key = f'at{rank}'\nstore.get(key)",
        "if rank ==",
    ],
)
def test_what_all_ranks_do(text: str) -> None:
    assert places(text) == []


@pytest.mark.parametrize(
    ("text", "depends_on"),
    [
        ("if local_rank == config.chosen: x()", {"local rank"}),
        ("if node_rank in busy: x()", {"server"}),
        ("if rank == table[0]: x()", {"rank"}),
        ("if dist.get_rank(group) == 0: x()", {"rank in a group"}),
        ("row, col = mesh.get_coordinate()\ngetattr(self, f'at_{row}', self.rest)()", {"coordinate in a mesh"}),
        ("WORK = {0: heavy}\nWORK.get(mesh.get_coordinate()[1], light)()", {"coordinate in a mesh"}),
        ("mesh = init_device_mesh('cuda', (2, 8))\nif mesh.get_coordinate()[1] == 0: x()", {"coordinate in a mesh"}),
        ("mesh = init_device_mesh('cuda', (n, m))\nif mesh.get_coordinate()[1] == 0: x()", {"coordinate in a mesh"}),
        ("rank = 0\nif go:\n    rank = rank % 4\nrank = rank // 2\nif rank == 1: x()", {"rank"}),
    ],
)
def test_what_the_text_does_not_tell(text: str, depends_on: set[str]) -> None:
    (told,) = places(text)
    assert told.kinds is None
    assert told.depends_on == depends_on


def test_amounts_that_no_ranks_have_in_common() -> None:
    source = source_of("for _ in range(4 + 2 * rank): x()")
    assert source is not None
    (told,) = told_apart([source], (), Ranks((8,) * 4))
    assert (told.kinds, told.depends_on) == (None, {"rank"})


def test_a_value_that_grows_without_end_is_not_computed() -> None:
    assert places("x = 9\n" + "x = x * x * x * x\n" * 40 + "if rank == x: y()")[0].kinds is None
    assert places("if local_rank == len('a' * 10 ** 12): y()")[0].kinds is None
    assert places("if local_rank == max(range(10 ** 12)): y()")[0].kinds is None


def test_modules_of_the_user_s_own_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they are imported, and with the names that they give."""
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "train.py": "def main():\n    from job.steps import run\n    run(gpu)\nfrom job import gpu\n",
        "job/__init__.py": "import os\ngpu = int(os.environ['LOCAL_RANK'])\n",
        "job/steps.py": "from . import extra\ndef run(number):\n    if number == 2: x()\n",
        "job/extra.py": "import numpy, missing\nif node_rank == 1: x()\n",
        "other.py": "if rank == 3: x()\n",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    found = told_apart(sources_of(Path("train.py")), (), RANKS)
    assert {told.site: parted(told) for told in found} == {
        "steps.py:3": halves(THIRD),
        "extra.py:2": halves({4, 5, 6, 7}),
    }


def test_a_program_that_runs_another_one_is_read_as_that(tmp_path: Path) -> None:
    script, before, again = (tmp_path / name for name in ("train.py", "changed.py", "again.py"))
    script.write_text("import torch\n")
    before.write_text(f"import runpy\nrunpy.run_path({str(script)!r}, run_name='__main__')\n")
    again.write_text(f"from runpy import run_path\nrun_path({str(before)!r}, run_name='__main__')\n")
    assert [program_of(one) for one in (script, before, again, tmp_path, tmp_path / "none.py")] == [
        script,
        script,
        script,
        tmp_path,
        tmp_path / "none.py",
    ]
    again.write_text(f"import runpy\nrunpy.run_path({str(script)!r})\n")
    assert program_of(again) == again, "it takes values of the other file"
    again.write_text(f"import runpy\nrunpy.run_path({str(again)!r}, run_name='__main__')\n")
    assert program_of(again) == again
