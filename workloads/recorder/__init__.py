"""Records what the ranks of any PyTorch job send each other, without a change of the job.

`environment` gives the variables that start it: Python then finds `inside/sitecustomize.py`. The records are
read by `profile-models learn`.
"""

from collections.abc import Mapping
from pathlib import Path

INSIDE = Path(__file__).parent / "inside"
"""The folder whose `sitecustomize` every Python of the job imports."""

FOLDER_VARIABLE = "DALLY_LEARN"
"""The user's folder for records, which must be his own; each job has one in it, if Slurm gives a number."""

STEPS_VARIABLE = "DALLY_STEPS"
"""The file in which the first rank tells how long a step takes, %j for the job's number; unset: in none."""


def environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """What is added to a job's environment so that it is recorded.

    Args:
        folder: The user's folder for records, in one in which others may write; neither need exist.
        variables: The environment as it is.
    """
    path = variables.get("PYTHONPATH", "")
    return {
        "PYTHONPATH": f"{INSIDE}:{path}" if path else str(INSIDE),
        FOLDER_VARIABLE: str(folder),
    }
