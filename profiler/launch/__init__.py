"""How the ranks of a run are started: rank by rank, or under Slurm."""
