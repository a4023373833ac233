"""A private Slurm cluster on this machine, for tests and the testbed."""
