"""How Slurm is reached: one typed interface, and who carries it."""
