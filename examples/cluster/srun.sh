#!/usr/bin/env bash
# A sweep as the tasks of one `srun`, without MPI: each task runs one shard. docs/clusters.md explains it.
#   srun --ntasks=8 --gpus-per-task=1 srun.sh --config h200 --out results/h200
# The arguments are the options of `flashbench sweep`. Run the same line again to finish what was interrupted.
set -euo pipefail

: "${SLURM_PROCID:?is not set: start this script with srun}"
: "${SLURM_NTASKS:?is not set: start this script with srun --ntasks=COUNT}"

exec "${FLASHBENCH:-flashbench}" sweep "$@" --shard "$((SLURM_PROCID + 1))/$SLURM_NTASKS" --resume
