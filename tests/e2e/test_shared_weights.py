"""Ranks that initialise equal weights on the CPU share their memory, and nothing else changes."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from .conftest import Finished, Run

pytestmark = pytest.mark.torch
MODEL_MIB = 4 * 2048 * 2048 * 4 / 2**20
"""The MiB that the script's model takes."""
Seen = list[tuple[str, str, float, str]]
"""By rank: checksums before and after rank 0 has changed its own, the next random number, private MiB."""


def seen(done: Finished) -> Seen:
    assert done.exit_code == 0, done.output
    line = next(line for line in done.log(0).splitlines() if line.startswith("SEEN "))
    return list(ast.literal_eval(line.removeprefix("SEEN ")))


def test_ranks_share_what_they_initialise_until_they_write(run: Run) -> None:
    shared = run("shared_weights.py", n=4, options=("--nproc-per-node", "2"))
    own = run("shared_weights.py", n=4, options=("--nproc-per-node", "2", "--no-shared-weights"))
    with_sharing, without = seen(shared), seen(own)
    assert [entry[:3] for entry in with_sharing] == [entry[:3] for entry in without], "the same values"
    built, changed = {entry[0] for entry in with_sharing}, {entry[1] for entry in with_sharing[1:]}
    assert built == changed, "nobody sees what rank 0 has written"
    assert with_sharing[0][1] not in built
    assert all(float(used) > MODEL_MIB for *_, used in without)
    assert all(float(used) < MODEL_MIB / 4 for *_, used in with_sharing), with_sharing
    assert json.dumps(shared.simulated, sort_keys=True) == json.dumps(own.simulated, sort_keys=True)


def test_ranks_share_what_they_load_copy_and_convert(run: Run, tmp_path: Path) -> None:
    shared = run("shared_copies.py", str(tmp_path), n=2)
    own = run("shared_copies.py", str(tmp_path), n=2, options=("--no-shared-weights",))
    with_sharing, without = steps(shared), steps(own)
    for (what, used, _), (_, used_alone, _) in zip(with_sharing[1], without[1], strict=True):
        assert used < MODEL_MIB / 4, f"{what}: {used} MiB"
        assert used_alone >= MODEL_MIB, f"{what}: {used_alone} MiB"
    values = [[(what, digest) for what, _, digest in rank] for rank in with_sharing]
    assert values == [[(what, digest) for what, _, digest in rank] for rank in without], "the same values"
    assert dict(values[1])["load"] == dict(values[1])["the file has changed"] == dict(values[1])["load_state_dict"]
    written = [dict(rank)["rank 0 has written"] for rank in values]
    assert written[0] != written[1]
    assert json.dumps(shared.simulated, sort_keys=True) == json.dumps(own.simulated, sort_keys=True)


def steps(done: Finished) -> list[list[tuple[str, float, str]]]:
    """Returns for each rank what was done, private MiB since the start, checksum."""
    assert done.exit_code == 0, done.output
    line = next(line for line in done.log(0).splitlines() if line.startswith("SEEN "))
    seen = ast.literal_eval(line.removeprefix("SEEN "))
    return [[(what, float(used), digest) for what, used, digest in rank] for rank in seen]
