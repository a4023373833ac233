"""The lines of a batch script that carry options: `#SBATCH --nodes=2`, `#DALLY --model=resnet50`."""

import shlex


def marked_words(script: str, mark: str) -> list[str]:
    """The words behind a mark, of all lines that begin with it up to the first command, in order.

    As in sbatch, quotes keep words together and `#` begins a comment. A line with an open quote is passed
    over: sbatch refuses its own, and says why.

    Args:
        script: The whole script.
        mark: What the lines begin with, like `#SBATCH`.
    """
    found: list[str] = []
    for line in script.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if line.startswith(mark) and line[len(mark) : len(mark) + 1].isspace():
            found += _words(line[len(mark) :])
    return found


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []
