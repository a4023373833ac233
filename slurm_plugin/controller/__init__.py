"""The controller: what Slurm shows, what the policy decides, what is ordered."""
