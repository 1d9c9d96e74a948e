#!/bin/bash
# One run on one CPU node of a Slurm cluster; no GPU is asked for. sbatch examples/slurm.sh
# Many ranks on several nodes: docs/servers.md (run --listen, join).
#SBATCH --job-name=phantora
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=01:00:00
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
phantora-async run -n "${RANKS:-8}" --no-progress --run-dir "phantora-runs/slurm-${SLURM_JOB_ID:-0}" "${SCRIPT:-examples/train.py}" "$@"
