"""Hosts reached over SSH: whether they are fit, what their network carries, and Slurm on them."""
