"""What Slurm itself does, as a policy."""
