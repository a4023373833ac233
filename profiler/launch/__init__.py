"""How the ranks of a run are started: by torchrun on this machine, rank by rank, or under Slurm."""
