"""Measures local networks of several rates and writes docs/profiler-validation.md's tables and figure.

`python scripts/validate_profiler.py [FOLDER]`, on an idle machine; takes most of an hour. What FOLDER holds
is not measured again.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import click

from analysis.studies.common import StudyCommand, publish
from dally.profiles.files import load_profiles
from profiler.report.validation import errors_table, iterations_table, list_cells, rings_table

ROOT = Path(__file__).parent.parent
RATES = ("2Gb", "1Gb", "500Mb", "200Mb")
MODELS = ("alexnet", "mobilenetv3", "resnet18", "resnet50")
OPTIONS = "--emulate 9 --racks 2,2 --shapes 2x1,4x1 --sweep 64K:64M --budget 4 --resume"


@click.command(cls=StudyCommand)
@click.argument("folder", type=click.Path(path_type=Path), default=ROOT / "runs" / "profiler-validation")
def main(folder: Path) -> None:
    """Measure into FOLDER, a folder for each rate, and rewrite the generated sections."""
    program = Path(sys.executable).with_name("profile-models")
    for rate in RATES:
        places = ("--rate", rate, "--uplink", rate, "--out", folder / rate)
        if status := subprocess.run([program, "local", *MODELS, *OPTIONS.split(), *places]).returncode:
            sys.exit(status)
    profiles = [profile for rate in RATES for profile in load_profiles(folder / rate).profiles]
    cells, document = list_cells(profiles), ROOT / "docs" / "profiler-validation.md"
    sections = {
        "errors": errors_table(cells),
        "iterations": iterations_table(cells),
        "rings": rings_table(profiles),
    }
    publish(sections.items(), document)
    shutil.copy(folder / "1Gb" / "profiles.png", document.with_suffix(".png"))


if __name__ == "__main__":
    main()
