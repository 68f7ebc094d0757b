#!/bin/bash
# Pre-training on two machines with eight GPUs each under Slurm; the run folder must be on a shared disk.
# Not run by us: we have no GPU and no Slurm. From the repository, after `make setup`:
#
#   sbatch docs/slurm.sh imagenet_r50_200 runs/r50 --data.source /data/imagenet
#
# Longer than --time? Submit it again: it resumes where it stopped. To queue several in a row:
#
#   for i in 1 2 3 4; do sbatch --dependency=singleton docs/slurm.sh RECIPE runs/... ; done
#
#SBATCH --job-name=scfs
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log

set -euo pipefail
recipe=$1 run=$2
shift 2

# After a crash, the restarted processes need a new store, not the old one.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
main=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)

# srun takes one core for a task unless told otherwise, since Slurm 22.05.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" .venv/bin/torchrun \
  --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-8}" --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "$main:29500" --rdzv-id "$SLURM_JOB_ID" \
  -m scfs pretrain "$recipe" --run.folder "$run" --resume "$@"
