"""Triton's key of the C module by which it calls the driver."""

from __future__ import annotations

from typing import Any

import pytest

from emu.compiler import keys


def test_the_folder_of_a_run_is_not_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    manager = keys._any_run(lambda src, config: asked.append(config))
    for run in ("/tmp/run-1/lib", "/tmp/run-2/lib"):
        monkeypatch.setenv("TRITON_LIBCUDA_PATH", run)
        config = {"library_dirs": ["/triton/lib", run], "libraries": ["cuda"]}
        manager(b"source", config)
        assert config["library_dirs"] == ["/triton/lib", run], "the module is linked with the folder that there is"
    manager(b"source", {"library_dirs": ["/triton/lib", "/elsewhere"], "libraries": ["cuda"]})
    manager(b"source", {"library_dirs": None})
    assert asked[0] == asked[1]
    assert asked[0]["libraries"] == ["cuda"]
    assert asked[2]["library_dirs"] == ["/triton/lib", "/elsewhere"]
    assert asked[3] == {"library_dirs": None}
