"""Shared by policies that change how many GPUs a job has: speeds by size, sizes made into placements."""
