"""Each feature of a site on a real Slurm: does a job start, wait and leave others alone as it should?"""
