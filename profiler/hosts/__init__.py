"""Where ranks run: on this machine, in a local network, over SSH or under Slurm; how they start and end."""
