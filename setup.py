"""Builds the hook library into the wheel: a plain shared object, independent of the Python version."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from shutil import rmtree
from types import ModuleType

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def load(path: str) -> ModuleType:
    """A build script by its path: importing its package would need what the package needs."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildWithLibraries(build_py):
    """Compiles the hook library, netsim's core and the engine of replays to where the package goes: the wheel, or the
    checkout if editable.
    """

    def run(self) -> None:
        super().run()
        base = ROOT if self.editable_mode else Path(self.build_lib)
        hook = load("emu/hook/build.py").build(base / "emu" / "lib")
        if not self.editable_mode:
            rmtree(hook.parent / "objects", ignore_errors=True)
        sys.path.insert(0, str(ROOT))
        from netsim import native

        native.build(base / "netsim" / "native" / native.LIBRARY.name)
        engine = load("phantora_async/virtual_time/native/__init__.py")
        engine.build(base / "phantora_async" / "virtual_time" / "native" / engine.LIBRARY.name)


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class AnyPythonWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": AnyPythonWheel}, distclass=BinaryDistribution)
