"""Configurations of ten kinds of sites, each in a folder as Slurm has it; all made up."""

from pathlib import Path

FOLDER = Path(__file__).parent
SITES = tuple(sorted(path.name for path in FOLDER.iterdir() if (path / "slurm.conf").exists()))
