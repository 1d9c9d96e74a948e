"""Scripts that check objects of other ranks themselves: whose fault their exceptions are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu.folding.gathered import Gathered
from emu.folding.ranks import FoldedRanks
from phantora_async.folding import Folding, mesh_of

FOLDING = Folding(mesh_of("dp=8", 8), frozenset((0, 7)))


def ended(tmp_path: Path, text: str) -> str:
    """Why folding is to blame for what the script raises; "" if it is not. `gather` fills a list with what eight ranks
    would give, five of them being played by rank 1.
    """
    gathered = Gathered(FoldedRanks(FOLDING))

    def gather(output: list[Any]) -> None:
        output[:] = [{"host": f"node{rank}", "loss": rank / 10} for rank in (0, *[1] * 6, 7)]
        gathered.remember(output, 5)

    path = tmp_path / "train.py"
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), {"gather": gather, "out": [None] * 8})
    except (Exception, SystemExit) as error:
        found = gathered.explains(error)
        return "" if found is None else found.words
    raise AssertionError("it raises nothing")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gather(out)\nassert len({one['host'] for one in out}) == 8", 2),
        ("gather(out)\nhosts = {one['host'] for one in out}\nn = len(hosts)\nassert n == 8, n", 4),
        (
            (
                "gather(out)\n"
                "seen = set()\n"
                "for one in out:\n"
                "    if one['host'] in seen:\n"
                "        raise ValueError\n"
                "    seen.add(one['host'])"
            ),
            5,
        ),
        (
            (
                "gather(out)\n"
                "hosts = []\n"
                "for one in out: hosts.append(one['host'])\n"
                "if len(set(hosts)) < 8:\n"
                "    import sys\n"
                "    sys.exit('too few')"
            ),
            6,
        ),
        (
            (
                "def all():\n"
                "    gather(out)\n"
                "    return [one['host'] for one in out]\n"
                "def main():\n"
                "    hosts = all()\n"
                "    assert len(set(hosts)) == 8\n"
                "main()"
            ),
            6,
        ),
        (("def check(hosts, n):\n    assert len(hosts) == n\ngather(out)\ncheck({one['host'] for one in out}, 8)"), 2),
        (
            (
                "class A:\n"
                "    def check(self, n):\n"
                "        if n < 8:\n"
                "            raise RuntimeError(n)\n"
                "gather(out)\n"
                "A().check(len({one['host'] for one in out}))"
            ),
            4,
        ),
        ("gather(out)\nby = {one['host']: one for one in out}\nby['node3']", 3),
        ("gather(out)\nlosses = [one['loss'] for one in out]\nassert max(losses) - min(losses) < 0.1", 3),
    ],
)
def test_a_check_of_gathered_objects_cannot_be_folded(tmp_path: Path, text: str, line: int) -> None:
    told = ended(tmp_path, text)
    made = next(number for number, one in enumerate(text.splitlines(), 1) if "gather(out)" in one)
    assert told.startswith("the script cannot be folded: ")
    assert f" at train.py:{line}, which uses objects that were gathered at train.py:{made}: those of 5 ranks" in told


@pytest.mark.parametrize(
    "text",
    [
        "gather(out)\nx = None\nx.y",
        "gather(out)\nbest = min(one['loss'] for one in out)\ndef step(x):\n    assert x > 5\nstep(3)",
        "n = 8\nassert n < 8",
        "gather(out)\nprint(len(out))\nraise ValueError('mine')",
        "def log(hosts):\n    step()\ndef step():\n    raise ValueError\ngather(out)\nlog(out)",
        "gather(out)\nimport json\njson.loads('{')",
    ],
)
def test_other_errors_are_the_script_s_own(tmp_path: Path, text: str) -> None:
    assert ended(tmp_path, text) == ""
