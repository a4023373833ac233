"""Runs on disk: the run folder and its summary."""
