"""Measures how far each model is from kernels that its figures were not fitted to: `python -m laboratory.fits.left_out
[--gpu NAME] [--model NAME ...] [FILE]`. Prints a table, and what belongs into profiles/models/errors.py; all models
take some minutes. FILE: see laboratory.fits.model_error.

The measured kernels of a model are grouped: a group is a family (signatures that differ in sizes alone) at one size,
within a factor of eight in time. The groups are dealt to FOLDS parts. For each part the figures of the model are fitted
anew to all other kernels that depend on them, also those of other models, and the part is predicted. A figure that
those kernels say little about is not known then: each counts as known beforehand to a factor of e^PRIOR, and what that
leaves open adds to the error. Figures that all models share are not fitted; neither is the form of the models.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from laboratory.fits.figures import FOLDER, EstimateOf, Models
from laboratory.fits.model_error import MEASURED, Measured, read
from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.models.errors import UNMEASURED
from profiles.models.machine import Estimate
from profiles.signature import Signature, parse
from profiles.timings.keys import family_key
from profiles.triton import interpreter

FOLDS = 5
PRIOR = UNMEASURED
"""The standard deviation of a figure's logarithm before any kernel is measured."""
SIZES_APART = 8.0
LEAST_ERROR = 0.03
"""The smallest error that counts: repeats of a measurement differ by so much."""
STEP = 0.02
"""The change of a figure's logarithm with which its effect is measured."""
OF_OTHERS = 0.05
"""The share of the known information on a figure that a model's kernels must have; with less it is another model's
figure, and not fitted.
"""
ROUNDS, PARTS = 5, (1.0, 0.5, 0.2)
"""The rounds of a fit, and the parts of a step that are tried when it does not help as a whole."""
USERS_OF_ENGINES = frozenset(("products/engines.py", "products/convolution.py", "triton.py", "products/recurrent.py"))
Floats = NDArray[np.float64]
Choice = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LeftOut:
    kernels: int
    groups: int
    figures: int
    fitted: float
    """The mean error of the models as they are. Long kernels count more: with the root of their time."""
    refitted: float
    """The mean error with the figures fitted anew to all kernels."""
    error: float
    """The mean error of kernels that were left out, with what is not known of the figures without them."""


class Work:
    """The measured kernels, and their times by models with other figures."""

    def __init__(self, gpu: Gpu, measured: Sequence[Measured]) -> None:
        self._gpu = gpu
        self._models = Models()
        self._what: list[Signature] = [parse(one.signature) for one in measured]
        as_they_are = self._models.build({})
        traced = [files_of(as_they_are, gpu, what) for what in self._what]
        self.model = [estimate.model for estimate, _ in traced]
        self._files = [files for _, files in traced]
        self._log_modelled = np.log([estimate.solo_ns for estimate, _ in traced])
        self.errors = self._log_modelled - np.log([1e3 * one.us for one in measured])
        self.weight = np.sqrt([one.us for one in measured])
        self.slopes = np.zeros((len(measured), len(self._models.figures)))
        """The slopes of ln(time), by the logarithm of each figure."""
        for place, figure in enumerate(self._models.figures):
            kernels = [kernel for kernel, files in enumerate(self._files) if figure.file in files]
            if kernels:
                self.slopes[kernels, place] = self.changes(kernels, {place: STEP}) / STEP

    def group(self, kernel: int) -> tuple[object, ...]:
        size = round(float(self._log_modelled[kernel]) / log(SIZES_APART))
        return *family_key(self._what[kernel]), size

    def changes(self, kernels: Sequence[int], logarithms: Mapping[int, float]) -> Floats:
        """The changes of ln(time) with these changes of the figures' logarithms."""
        estimate = self._models.build({place: exp(by) for place, by in logarithms.items()})
        times = [estimate(self._gpu, self._what[kernel]).solo_ns for kernel in kernels]
        return np.log(times) - self._log_modelled[list(kernels)]


class Fitting:
    """The figures of one model, and all kernels that depend on them."""

    def __init__(self, work: Work, model: str) -> None:
        self._work = work
        own = np.array([name == model for name in work.model])
        known = work.slopes**2 * work.weight[:, None]
        """The information that each kernel has on each figure."""
        self.figures = np.flatnonzero(known[own].sum(0) > OF_OTHERS * known.sum(0))
        depend = own | np.any(work.slopes[:, self.figures], axis=1)
        self.kernels = [int(kernel) for kernel in np.flatnonzero(depend)]
        self.own = own[self.kernels]
        self.weight = work.weight[self.kernels]
        self.groups = [work.group(kernel) for kernel in self.kernels]
        self.slopes = work.slopes[self.kernels][:, self.figures]

    def errors(self, logarithms: Floats) -> Floats:
        """The ln(modelled / measured) of each kernel, with these changes of the figures' logarithms."""
        errors: Floats = self._work.errors[self.kernels]
        if np.any(logarithms):
            changes = dict(zip(map(int, self.figures), map(float, logarithms), strict=True))
            errors = errors + self._work.changes(self.kernels, changes)
        return errors

    def first_order(self, logarithms: Floats) -> Floats:
        """The values of `errors` if slopes did not change: for fits, which ask often."""
        errors: Floats = self._work.errors[self.kernels] + self.slopes @ logarithms
        return errors

    def mean(self, errors: Floats, of: Choice) -> float:
        return float(np.average(np.abs(errors[of]), weights=self.weight[of]))

    def fit(self, among: Choice, start: Floats) -> tuple[Floats, Floats]:
        """Finds the least absolute errors of these kernels to first order, by reweighted least squares; and the
        covariance of the result.
        """
        found, errors = start, self.first_order(start)
        scale = max(self.mean(errors, among), LEAST_ERROR)
        weight = np.where(among, self.weight / self.weight[among].mean(), 0.0) / scale
        prior = np.eye(len(start)) / PRIOR**2

        def cost(logarithms: Floats, errors: Floats) -> float:
            return float(weight @ np.abs(errors) + logarithms @ prior @ logarithms / 2)

        covariance = _inverse(prior)
        for _ in range(ROUNDS):
            curvature = weight / np.maximum(np.abs(errors), LEAST_ERROR)
            covariance = _inverse((self.slopes.T * curvature) @ self.slopes + prior)
            step = -covariance @ (self.slopes.T @ (curvature * errors) + prior @ found)
            for part in PARTS:
                tried = found + part * step
                if cost(tried, tried_errors := self.first_order(tried)) < cost(found, errors):
                    found, errors = tried, tried_errors
                    break
            else:
                break
        worse = self.mean(self.errors(found), among) > self.mean(self.errors(start), among)  # slopes do change
        return start if worse else found, covariance


def _inverse(matrix: Floats) -> Floats:
    found: Floats = np.linalg.inv(matrix).astype(np.float64)
    return found


def files_of(estimate: EstimateOf, gpu: Gpu, what: Signature) -> tuple[Estimate, frozenset[str]]:
    """The estimate, and the files of the models whose figures it depends on."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        found = estimate(gpu, what)
    finally:
        sys.setprofile(None)
    prefix = f"{FOLDER}/"
    files = {file.removeprefix(prefix) for file in seen if file.startswith(prefix)}
    if files & USERS_OF_ENGINES:
        files.add("products/tiles.py")  # has the engines
    return found, frozenset(files)


def left_out(work: Work, model: str) -> LeftOut:
    fitting = Fitting(work, model)
    every = np.ones(len(fitting.kernels), dtype=bool)
    nothing = np.zeros(len(fitting.figures))
    best, _ = fitting.fit(every, nothing)
    groups = sorted({group for group, own in zip(fitting.groups, fitting.own, strict=True) if own}, key=str)
    predicted = np.zeros(len(fitting.kernels))
    for fold in range(min(FOLDS, len(groups))):
        out = set(groups[fold::FOLDS])
        held = np.array([group in out for group in fitting.groups])
        found, covariance = fitting.fit(~held, best) if not held.all() else (nothing, PRIOR**2 * np.eye(len(nothing)))
        left_open = np.einsum("ij,jk,ik->i", fitting.slopes, covariance, fitting.slopes)
        predicted[held] = np.sqrt(fitting.errors(found) ** 2 + left_open)[held]
    return LeftOut(
        int(fitting.own.sum()),
        len(groups),
        len(fitting.figures),
        fitting.mean(fitting.errors(nothing), fitting.own),
        fitting.mean(fitting.errors(best), fitting.own),
        fitting.mean(predicted, fitting.own),
    )


@contextmanager
def remembered_programs() -> Iterator[None]:
    """A context in which the work of Triton's programs is remembered: it does not depend on figures, and takes long to
    find out.
    """
    known: dict[tuple[object, ...], Any] = {}
    find = interpreter.launch_work

    def work(program: Any, grid: tuple[int, int, int], integers: dict[str, Any]) -> Any:
        key = id(program), grid, tuple(sorted(integers.items()))
        if key not in known:
            known[key] = program, find(program, grid, integers)
        return known[key][1]

    with mock.patch.object(interpreter, "launch_work", work):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m laboratory.fits.left_out", description=__doc__)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--model", action="append", metavar="NAME", help="of these models alone")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    measured = read(arguments.file or MEASURED / f"{arguments.gpu}-kernels.jsonl.gz")
    print("| model | kernels | groups | figures | as it is | fitted to all | left out |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    shares = defaultdict(float)
    with remembered_programs():
        work = Work(load_gpu(arguments.gpu), measured)
        for model in arguments.model or sorted(set(work.model)):
            found = left_out(work, model)
            shares[model] = max(found.fitted, found.error)
            errors = f"{found.fitted:.1%} | {found.refitted:.1%} | {found.error:.1%}"
            print(f"| {model} | {found.kernels} | {found.groups} | {found.figures} | {errors} |", flush=True)
    print("\nERROR_SHARES = {")
    for model, share in shares.items():
        print(f'    "{model}": {share:.2f},')
    print("}")


if __name__ == "__main__":
    main()
