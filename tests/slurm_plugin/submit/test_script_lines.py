"""Options on the lines of a script."""

import pytest

from slurm_plugin.submit.script_lines import marked_words


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\n#SBATCH -N2 --time=5\n", ["-N2", "--time=5"]),
        ("#!/bin/sh\n\n# words\n#SBATCH -N2\n  # more\n#SBATCH -n4\n", ["-N2", "-n4"]),
        ("#!/bin/sh\nset -e\n#SBATCH -N2\n", []),
        ("#!/bin/sh\n  #SBATCH -N2\n#SBATCHX -n4\n", []),
        ("#SBATCH\t-N2\n", ["-N2"]),
        ("#SBATCH --comment='a b' -J \"c d\"\n", ["--comment=a b", "-J", "c d"]),
        ("#SBATCH --comment=a#b -N2\n", ["--comment=a"]),
        ("#SBATCH --comment='a\n#SBATCH -N2\n", ["-N2"]),
        ("", []),
    ],
)
def test_lines_count_up_to_the_first_command(script: str, words: list[str]) -> None:
    assert marked_words(script, "#SBATCH") == words


def test_each_mark_has_its_own_lines() -> None:
    script = "#!/bin/sh\n#SBATCH -N2\n#DALLY --model=a\n"
    assert marked_words(script, "#DALLY") == ["--model=a"]
