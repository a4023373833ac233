"""Dally on Slurm: the controller, its access to Slurm, and the sbatch wrapper."""
