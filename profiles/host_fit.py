"""Fits the cost of each kind of host work to programs whose times and counts are known.

Least squares on relative errors with non-negative costs; short phases of a program count less. A cost that the programs
say little about stays near that of a host known before: each relative deviation from it counts like a tenth of a
part's relative error.

With a GPU the programs are timed twice: in front of a library that stands in for CUDA and does nothing, which gives the
program's own work, and in front of the GPU: the additional time is attributed to the API calls. So a launch's cost
holds, besides the driver's time, the cost of what its code evicts from the caches. Programs that are no training steps
are used for their own work alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiles.host import CALL_KINDS, WORK_KINDS

AGAIN = ", again"
"""The suffix of a part's name for the program's run right after itself; its other run is right after other programs.
The two together show what the caches save.
"""
PHASE = ": "
"""The separator between a program's name and that of its phase. Each counts alone: a whole step does not tell what
makes forward passes dear from what makes backward passes dear, since it always has as much of one as of the other.
"""
Counts = Mapping[str, Mapping[str, float]]
"""The units of each kind by part: a program that runs once, or a phase of one, with `AGAIN` or without."""
Times = Mapping[str, float]
"""The nanoseconds by part."""
_PRIOR_WEIGHT = 0.1
_SWEEPS = 5_000
MAIN_PART, SMALL_PART = 0.2, 0.05
"""The shares of a program's time that count as a main part, and as a small one."""
OUTLIER_FROM = 3.0
"""The standard deviations from which an error is an outlier."""
STANDARD_OF_MEDIAN = 1.4826
"""The standard deviation of a normal distribution over the median of distances from its mean."""
ALIKE = 0.9
"""The cosine of two programs' shares by kind from which on both consist of the same work."""
Shares = NDArray[np.float64]
"""The shares of a program's time, by kind."""


@dataclass(frozen=True, slots=True)
class Fit:
    cost_ns: dict[str, float]
    errors: dict[str, float]
    """The model's time over the measured one, less 1, by program and `AGAIN`; each with costs found without it and
    without programs that consist of the same work. Programs that then alone determine the cost of a kind are not among
    them: that cost would be that of another host.
    """

    @property
    def error(self) -> float:
        """The root mean square of the errors. An outlier counts like the largest error that is none."""
        sizes = np.abs(list(self.errors.values()))
        usual = OUTLIER_FROM * STANDARD_OF_MEDIAN * float(np.median(sizes))
        return float(np.sqrt(np.mean(np.square(np.minimum(sizes, usual)))))


def fit(
    counts: Counts,
    prior_ns: Mapping[str, float],
    real_ns: Times | None,
    detached_ns: Times | None,
    no_calls: Collection[str] = (),
) -> Fit:
    """Fits the costs of all kinds. Without `real_ns` (no GPU) those of API calls are the prior's, without `detached_ns`
    all kinds are found at once. The programs `no_calls` say nothing about calls. Raises ValueError if no program has
    both counts and times.
    """
    timed = real_ns if real_ns is not None else detached_ns
    assert timed is not None, "nothing was measured"
    parts = [name for name in counts if name in timed and (detached_ns is None or name in detached_ns)]
    if not parts:
        raise ValueError("no program has both counts and times")
    costs = _costs(parts, counts, prior_ns, real_ns, detached_ns, no_calls)
    kinds = WORK_KINDS if real_ns is None else (*CALL_KINDS, *WORK_KINDS)
    runs = _by_run(parts)
    whole = {run: sum(timed[part] for part in of) for run, of in runs.items()}
    shares = {
        run: np.array([sum(counts[part].get(kind, 0.0) for part in of) * costs[kind] / whole[run] for kind in kinds])
        for run, of in runs.items()
    }
    others = {
        run: [one for one in runs if not (_program(one) == _program(run) or _alike(shares[one], shares[run]))]
        for run in runs
    }
    told = [run for run in runs if _others_tell(shares[run], [shares[one] for one in others[run]])]
    errors = {}
    for left_out in told or runs:
        rest = [part for one in others[left_out] for part in runs[one]]
        found = _costs(rest, counts, prior_ns, real_ns, detached_ns, no_calls) if rest else costs
        errors[left_out] = _modelled(runs[left_out], counts, found, kinds) / whole[left_out] - 1
    return Fit(costs, errors)


def scale(counts: Counts, prior_ns: Mapping[str, float], real_ns: Times | None, detached_ns: Times | None) -> Fit:
    """Fits one factor for all costs of a host known before, or without `real_ns` for those of the program's own work:
    the geometric mean of the programs' times over their times on that host. Raises ValueError if no program has both
    counts and times.
    """
    timed = real_ns if real_ns is not None else detached_ns or {}
    kinds = WORK_KINDS if real_ns is None else (*CALL_KINDS, *WORK_KINDS)
    runs = _by_run([name for name in counts if name in timed])
    known = {run: _modelled(of, counts, prior_ns, kinds) for run, of in runs.items()}
    ratios = {run: sum(timed[part] for part in runs[run]) / ns for run, ns in known.items() if ns > 0}
    if not ratios:
        raise ValueError("no program has both counts and times")

    def mean(names: Sequence[str]) -> float:
        return float(np.exp(np.mean(np.log([ratios[name] for name in names]))))

    factor = mean(list(ratios))
    others = {name: [one for one in ratios if _program(one) != _program(name)] or [name] for name in ratios}
    errors = {name: mean(others[name]) / ratio - 1 for name, ratio in ratios.items()}
    return Fit({kind: ns * (factor if kind in kinds else 1.0) for kind, ns in prior_ns.items()}, errors)


def _program(name: str) -> str:
    """The program that a part or a run belongs to."""
    return name.removesuffix(AGAIN).partition(PHASE)[0]


def _run(part: str) -> str:
    return _program(part) + (AGAIN if part.endswith(AGAIN) else "")


def _by_run(parts: Iterable[str]) -> dict[str, list[str]]:
    """The parts of each program and `AGAIN`."""
    runs: dict[str, list[str]] = {}
    for part in parts:
        runs.setdefault(_run(part), []).append(part)
    return runs


def _modelled(parts: Iterable[str], counts: Counts, cost_ns: Mapping[str, float], kinds: Iterable[str]) -> float:
    return sum(counts[part].get(kind, 0.0) * cost_ns[kind] for kind in kinds for part in parts)


def _sizes(times: Times, parts: Iterable[str]) -> Times:
    """The sizes to which the parts' errors are relative: between a part's own time and its program's. So the short end
    of a step, which all programs have, does not decide the costs of its kinds in the long parts.
    """
    whole = {run: sum(times[part] for part in of) for run, of in _by_run(parts).items()}
    return {part: math.sqrt(times[part] * whole[_run(part)]) for part in parts}


def _alike(one: Shares, other: Shares) -> bool:
    """Returns true if both spend their time on the same kinds. A program is like itself."""
    return bool(one @ other >= ALIKE * np.sqrt((one @ one) * (other @ other)))


def _others_tell(left_out: Shares, others: Sequence[Shares]) -> bool:
    """Returns true if each kind that is a main part of the program's time is at least a small part of some other
    program's.
    """
    most = np.max(others, axis=0, initial=0.0) if others else np.zeros_like(left_out)
    return not np.any((left_out > MAIN_PART) & (most < SMALL_PART))


def _costs(
    parts: Sequence[str],
    counts: Counts,
    prior_ns: Mapping[str, float],
    real_ns: Times | None,
    detached_ns: Times | None,
    no_calls: Collection[str],
) -> dict[str, float]:
    costs = dict(prior_ns)
    if detached_ns is None:
        assert real_ns is not None
        sizes = _sizes(real_ns, parts)
        return costs | _solve(parts, counts, prior_ns, (*CALL_KINDS, *WORK_KINDS), real_ns, sizes)
    sizes = _sizes(real_ns or detached_ns, parts)
    costs |= _solve(parts, counts, prior_ns, WORK_KINDS, detached_ns, sizes)
    if real_ns is not None:
        calling = [name for name in parts if _program(name) not in no_calls]
        longer = {name: max(0.0, real_ns[name] - detached_ns[name]) for name in calling}
        costs |= _solve(calling, counts, prior_ns, CALL_KINDS, longer, sizes)
    return costs


def _solve(
    parts: Sequence[str],
    counts: Counts,
    prior_ns: Mapping[str, float],
    kinds: Sequence[str],
    times: Times,
    sizes: Times,
) -> dict[str, float]:
    """The costs of `kinds` with which the parts add up to `times`; errors count relative to `sizes`."""
    scale = np.array([prior_ns[kind] or 1.0 for kind in kinds])
    rows = [[counts[name].get(kind, 0.0) / sizes[name] for kind in kinds] for name in parts]
    matrix = np.vstack([np.array(rows).reshape(-1, len(kinds)) * scale, _PRIOR_WEIGHT * np.eye(len(kinds))])
    wanted = np.concatenate([[times[name] / sizes[name] for name in parts], np.full(len(kinds), _PRIOR_WEIGHT)])
    return dict(zip(kinds, (float(x) for x in _non_negative(matrix, wanted) * scale), strict=True))


def _non_negative(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least-squares solution without negative parts, by coordinate descent."""
    gram, target = matrix.T @ matrix, matrix.T @ wanted
    found = np.ones(matrix.shape[1])
    for _ in range(_SWEEPS):
        before = found.copy()
        for i in range(len(found)):
            found[i] = max(0.0, found[i] + (target[i] - gram[i] @ found) / gram[i, i])
        if np.max(np.abs(found - before)) < 1e-9:
            break
    return found
