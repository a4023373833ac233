"""Real training programs, used alike by the profiler, by Slurm jobs and by the testbed."""
