"""Taking a command line of sbatch apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.submit.sbatch_options import HasArg, set_by_variables, split_words

OWN = {"model": HasArg.REQUIRED, "dry-run": HasArg.NO}


@pytest.mark.parametrize(
    ("line", "options", "rest"),
    [
        ("job.sh", [], ["job.sh"]),
        ("job.sh --exclusive", [], ["job.sh", "--exclusive"]),
        ("-N2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("-n 4 job.sh", [("ntasks", "4")], ["job.sh"]),
        ("--nodes=2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("--nodes 2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("--nodel n1 job.sh", [("nodelist", "n1")], ["job.sh"]),
        ("--time 5 --time-min=1 job.sh", [("time", "5"), ("time-min", "1")], ["job.sh"]),
        ("--comment= job.sh", [("comment", "")], ["job.sh"]),
        ("-sHn4 job.sh", [("oversubscribe", None), ("hold", None), ("ntasks", "4")], ["job.sh"]),
        ("--cluster=a --tasks-per-node 8 job.sh", [("clusters", "a"), ("ntasks-per-node", "8")], ["job.sh"]),
        ("-HN 2 job.sh", [("hold", None), ("nodes", "2")], ["job.sh"]),
        ("-k job.sh", [("no-kill", None)], ["job.sh"]),
        ("-koff job.sh", [("no-kill", "off")], ["job.sh"]),
        ("--exclusive job.sh", [("exclusive", None)], ["job.sh"]),
        ("--exclusive=user job.sh", [("exclusive", "user")], ["job.sh"]),
        ("-- -job.sh", [], ["--", "-job.sh"]),
        ("-", [], ["-"]),
        ("-N1 : -N2 job.sh", [("nodes", "1")], [":", "-N2", "job.sh"]),
        ("--segment 4 job.sh", [("segment", "4")], ["job.sh"]),
        ("--ext 2:1:1 job.sh", [("extra-node-info", "2:1:1")], ["job.sh"]),
        ("--model a --dry-run job.sh", [("model", "a"), ("dry-run", None)], ["job.sh"]),
        ("--mod a job.sh", [("mod", None)], ["a", "job.sh"]),
        ("--nodes", [("nodes", None)], []),
        ("-N", [("nodes", None)], []),
    ],
)
def test_a_line_is_read_as_sbatch_reads_it(
    line: str, options: list[tuple[str, str | None]], rest: list[str]
) -> None:
    found = split_words(line.split(), OWN)
    assert [(option.name, option.value) for option in found.options] == options
    assert list(found.rest) == rest


@pytest.mark.parametrize(
    ("takes", "options", "rest"),
    [
        (HasArg.REQUIRED, [("container-image", "job.sh")], ["x"]),
        (HasArg.NO, [("container-image", None)], ["job.sh", "x"]),
        (HasArg.OPTIONAL, [("container-image", None)], ["job.sh", "x"]),
    ],
)
def test_an_option_of_a_plugin_is_read_as_the_plugin_says(
    takes: HasArg, options: list[tuple[str, str | None]], rest: list[str]
) -> None:
    found = split_words(["--container-image", "job.sh", "x"], OWN, lambda: {"container-image": takes})
    assert [(option.name, option.value) for option in found.options] == options
    assert list(found.rest) == rest


def test_nobody_is_asked_about_options_that_are_known() -> None:
    def ask() -> dict[str, HasArg]:
        raise AssertionError

    assert split_words(["--nodes=2", "--model", "a", "job.sh"], OWN, ask).rest == ("job.sh",)


_WORDS = st.one_of(
    st.sampled_from(
        ["-H", "-N2", "-n", "4", "--gres=gpu:1", "--wrap", "--", "-", ":", "--exclusive", "-sHk", "-"]
    ),
    st.text(min_size=0, max_size=6),
)


@given(st.lists(_WORDS, max_size=8))
def test_no_word_is_lost_or_moved(words: list[str]) -> None:
    found = split_words(words, OWN)
    assert [*(word for option in found.options for word in option.words), *found.rest] == words


@pytest.mark.parametrize(
    ("variables", "set_"),
    [
        ({"SBATCH_RESERVATION": "r", "SBATCH_ACCOUNT": "x"}, {"reservation": "r"}),
        ({"SLURM_CLUSTERS": "a"}, {"clusters": "a"}),
        ({"SBATCH_EXCLUSIVE": ""}, {"exclusive": ""}),
        ({"SBATCH_NO_REQUEUE": ""}, {"no-requeue": ""}),
        ({"SBATCH_NO_REQUEUE": "yes"}, {"no-requeue": "yes"}),
        ({"SBATCH_NO_REQUEUE": "1"}, {"no-requeue": "1"}),
        ({"SBATCH_NO_REQUEUE": "0"}, {}),
        ({"SBATCH_NO_REQUEUE": "no"}, {}),
        ({"SBATCH_COMMENT": "sbatch does not read it"}, {}),
    ],
)
def test_variables_set_what_they_set_in_sbatch(variables: dict[str, str], set_: dict[str, str]) -> None:
    assert set_by_variables(variables) == set_
