"""Ray Tune searches with emulated runs: a trial is a run of examples/ddp_vision.py. Needs `pip install 'ray[tune]'`.

python examples/ray_tune.py --batches 16 32
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ray import tune

import phantora_async as pa

SCRIPT = str(Path(__file__).resolve().parent / "ddp_vision.py")


def trial(config: dict[str, Any]) -> None:
    run = pa.run(SCRIPT, ["--batch", str(config["batch"])], world_size=2, steps=5, show_ranks="none")
    tune.report({"image_s": run.step_time / (2 * config["batch"]), "memory": run.peak_reserved})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 32, 64])
    batches = parser.parse_args().batches
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 2}),
        param_space={"batch": tune.grid_search(batches)},
    )
    best = tuner.fit().get_best_result("image_s", "min")
    assert best.config is not None, "a trial that has reported"
    print(f"best: batch {best.config['batch']}, {best.metrics['memory'] / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
