"""Many jobs for a long time: on a real Slurm with faults, and six weeks of a site in virtual time."""
