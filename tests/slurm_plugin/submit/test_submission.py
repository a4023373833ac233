"""What `dally-sbatch` makes of options, script and environment."""

from pathlib import Path

import pytest

from dally.errors import InputError
from slurm_plugin.request import Request
from slurm_plugin.submit.submission import (
    Submission,
    build_request,
    fixed_reason,
    has_even_shares,
    marked_words,
    overlooked,
    read_submission,
    unread_reason,
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(line: str, script: str = "", variables: dict[str, str] | None = None) -> Submission:
    """A command line on a script called job.sh, or on one from standard input."""
    Path("job.sh").write_text(script)
    return read_submission(line.split(), variables or {}, script.encode, dict)


@pytest.mark.parametrize(
    ("line", "words", "rest"),
    [
        ("--model=a -N2 job.sh", ["-N2"], ["job.sh"]),
        ("-N2 --model a --time 5 job.sh --model b", ["-N2", "--time", "5"], ["job.sh", "--model", "b"]),
        ("--dry-run -sH --min-gpus=2 --wrap=ls", ["-sH", "--wrap=ls"], []),
        ("-N 2 -- job.sh", ["-N", "2"], ["--", "job.sh"]),
        ("--partition=é --nonsense=$(x) job.sh", ["--partition=é", "--nonsense=$(x)"], ["job.sh"]),
    ],
)
def test_sbatch_gets_its_own_options_as_they_were(line: str, words: list[str], rest: list[str]) -> None:
    submission = read(line)
    assert (list(submission.words), list(submission.rest)) == (words, rest)


@pytest.mark.parametrize(
    ("line", "script", "variables", "settings"),
    [
        ("job.sh", "#SBATCH -G1\n", {}, {"gpus": "1"}),
        ("job.sh", "#SBATCH -G1\n", {"SBATCH_GPUS": "2"}, {"gpus": "2"}),
        ("-G3 job.sh", "#SBATCH -G1\n", {"SBATCH_GPUS": "2"}, {"gpus": "3"}),
        ("job.sh", "#SBATCH -G1\n#SBATCH -G4\n", {}, {"gpus": "4"}),
        ("-G3", "#SBATCH -N1\n", {}, {"gpus": "3", "nodes": "1"}),
        ("-- job.sh", "#SBATCH -G1\n", {}, {"gpus": "1"}),
    ],
)
def test_the_command_line_wins_over_the_environment_over_the_script(
    line: str, script: str, variables: dict[str, str], settings: dict[str, str]
) -> None:
    assert read(line, script, variables).settings == settings


@pytest.mark.parametrize("place", ["here", "chdir", "path", "here, with --chdir"])
def test_the_script_is_found_where_sbatch_finds_it(place: str, tmp_path: Path) -> None:
    folder = tmp_path if place.startswith("here") else tmp_path / place
    folder.mkdir(exist_ok=True)
    (folder / "found.sh").write_text("#DALLY --model=a\n")
    options = ["--chdir=chdir"] if "chdir" in place else []
    submission = read_submission([*options, "found.sh"], {"PATH": "path"}, bytes, dict)
    assert submission.asked == {"model": "a"}


def test_a_script_from_standard_input_is_kept_byte_by_byte() -> None:
    script = b"#!/bin/sh\n#SBATCH -G1\n# \xff\xfe\n#DALLY --model=a\n"
    submission = read_submission(["--parsable"], {}, lambda: script, dict)
    assert (submission.stdin, submission.asked, submission.settings["gpus"]) == (script, {"model": "a"}, "1")


def test_with_wrap_standard_input_is_left_alone() -> None:
    def read_stdin() -> bytes:
        raise AssertionError

    assert read_submission(["--wrap", "ls"], {}, read_stdin, dict).stdin is None


def test_the_command_line_wins_over_dally_lines() -> None:
    script = (
        "#!/bin/sh\n#DALLY --model=a --min-gpus 2\n#DALLY --checkpoint-signal=USR1\ntrue\n#DALLY --model=c\n"
    )
    asked = read("--model=b job.sh", script).asked
    assert asked == {"model": "b", "min-gpus": "2", "checkpoint-signal": "USR1"}


@pytest.mark.parametrize(
    ("line", "script", "message"),
    [
        ("--gpus=1 : --gpus=2 job.sh", "", "heterogeneous"),
        ("job.sh", "#SBATCH -G1\n#SBATCH hetjob\n#SBATCH -G1\n", "heterogeneous"),
        ("job.sh", "#SBATCH packjob\n", "heterogeneous"),
        ("job.sh", "#SBATCH -G1\n#SBATCH HetJob\n#SBATCH -G1\n", "heterogeneous"),
        ("job.sh", "#DALLY --modle=a\n", "'--modle' on a #DALLY line; valid: --model"),
        ("job.sh", "#DALLY --nodes=2\n", "'--nodes' on a #DALLY line"),
        ("job.sh", "#DALLY resnet50\n", "'resnet50' on a #DALLY line"),
        ("job.sh", "#DALLY --dry-run\n", "'--dry-run' on a #DALLY line"),
        ("--model", "", "--model needs a value"),
        ("--model= job.sh", "", "--model needs a value"),
        ("--dry-run=yes job.sh", "", "--dry-run takes no value, got 'yes'"),
        ("-G3 missing.sh", "", "cannot read the script 'missing.sh': No such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_refused(line: str, script: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(line, script)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--gpus=1", ""),
        ("-Gh100:4", ""),
        ("--gpus-per-node=2", ""),
        ("--gpus-per-task=2", ""),
        ("--gpus-per-socket=2", ""),
        ("--gres=gpu", ""),
        ("--gres=shard:3,gpu:h100:2", ""),
        ("--tres-per-task=cpu=2,gres/gpu=1", ""),
        ("-G1 -p main", ""),
        ("-G1 -p main,gpu", ""),
        ("-G1 -p main,cpu", "partition cpu is not Dally's"),
        ("-N2", "the job asks for no GPUs"),
        ("-N2 --exclusive", ""),
        ("-N2 --exclusive=user", "--exclusive=user fixes the placement"),
        ("--gpus=0", "the job asks for no GPUs"),
        ("--gres=gpu:0", "the job asks for no GPUs"),
        ("--gres=none", "the job asks for no GPUs"),
        ("--gres=gpumem:4", "the job asks for no GPUs"),
        ("-G1 -w n1", ""),
        ("-G1 -F file", "--nodefile fixes the placement"),
        ("-G1 -x n1", ""),
        ("-G1 -C v100", ""),
        ("-G1 -C 'v100&(ib|roce)'", ""),
        ("-G2 -C [r1|r2]", ""),
        ("-G2 -C ib*2", "--constraint=ib*2 relates the nodes of a job to each other"),
        ("-G1 --prefer=v100", "--prefer fixes the placement"),
        ("-G1 --batch=v100", "--batch fixes the placement"),
        ("-G1 --exclusive", ""),
        ("-G1 --reservation=r", ""),
        ("-G1 --exclusive=user", "--exclusive=user fixes the placement"),
        ("-G1 --switches=1@5", ""),
        ("-G1 --contiguous", "--contiguous fixes the placement"),
        ("-G1 --spread-job", "--spread-job fixes the placement"),
        ("-G1 --segment=4", ""),
        ("-G1 --segment=2 --spread-segments", ""),
        ("-G1 --segment=2 --consolidate-segments", ""),
        ("-G1 --segment=0 --spread-segments", "--spread-segments fixes the placement"),
        ("-G1 --consolidate-segments", "--consolidate-segments fixes the placement"),
        ("-G1 --exclusive=mcs", "--exclusive=mcs fixes the placement"),
        ("--exclusive=topo", "the job asks for no GPUs"),
        ("-G1 -M other", "--clusters fixes the placement"),
    ],
)
def test_a_job_that_dally_cannot_place_is_told_from_one_that_it_can(line: str, reason: str) -> None:
    assert fixed_reason(read(f"{line} job.sh").settings, ("main", "gpu")) == reason


@pytest.mark.parametrize(
    ("line", "even"),
    [
        ("--gres=gpu:2", True),
        ("--gres=shard:3,gpu:h100:2", True),
        ("--gres=shard:3 --gpus=4", False),
        ("--gpus-per-node=h100:2", True),
        ("--gpus=8", False),
        ("--gpus=8 -N1", False),
        ("--gpus=h100:8 -N4", True),
        ("--gpus=8 -N3", False),
        ("--gpus=8 -N2-4", False),
        ("-n8 --gpus-per-task=1", False),
        ("-n8 -N2 --gpus-per-task=2", True),
        ("-n7 -N2 --gpus-per-task=2", False),
        ("--ntasks-per-node=4 --gpus-per-task=1", True),
        ("--ntasks-per-node=4 --gpus=8", False),
        ("--gpus-per-socket=2", False),
    ],
)
def test_even_shares_are_told_from_those_that_nodes_may_divide_as_they_like(line: str, even: bool) -> None:
    assert has_even_shares(read(f"{line} job.sh").settings) is even


@pytest.mark.parametrize(
    ("line", "script", "told"),
    [
        ("--model=a job.sh --model=b", "set -e\n", ""),
        ("job.sh --model=b", "", "note: --model stands behind the script's name, so the script gets it"),
        ("job.sh", "# x\n\nset -e\n#DALLY --model=a\n", "note: line 4 of the script counts for nothing"),
        ("--checkpoint-sig=USR2 job.sh", "", "is not Dally's; did you mean --checkpoint-signal?"),
        ("--container-image=a job.sh", "", ""),
        ("--ntask=2 job.sh", "", ""),
    ],
)
def test_what_seems_meant_for_dally_and_is_not_is_told(line: str, script: str, told: str) -> None:
    notes = " ".join(overlooked(read(line, script)))
    assert told in notes
    assert bool(told) == bool(notes)


@pytest.mark.parametrize(
    ("line", "script", "mark"),
    [
        ("job.sh", "#SBATCH -G1\necho hi\n#PBS -q night\n", "#PBS"),
        ("job.sh", "#BSUB-q night\n", "#BSUB"),
        ("job.sh", "  #PBS -q night\n#PBS\n#$ -q night\n", ""),
        ("--ignore-pbs job.sh", "#PBS -q night\n", ""),
        ("job.sh", "#SBATCH --ignore-pbs\n#PBS -q night\n", ""),
    ],
)
def test_lines_of_pbs_and_lsf_are_told_as_sbatch_reads_them(line: str, script: str, mark: str) -> None:
    assert unread_reason(read(line, script)).startswith(
        f"sbatch reads the script's {mark} lines" if mark else ""
    )
    assert bool(unread_reason(read(line, script))) == bool(mark)


def test_the_environment_can_pass_over_lines_of_pbs() -> None:
    assert not unread_reason(read("job.sh", "#PBS -q night\n", {"SBATCH_IGNORE_PBS": "1"}))


def test_script_and_environment_fix_the_placement_too() -> None:
    assert fixed_reason(read("-G1 job.sh", "#SBATCH -w ./hosts\n").settings, ("main",))
    assert fixed_reason(read("-G1 job.sh", "", {"SBATCH_CONSTRAINT": "a*2"}).settings, ("main",))


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("", Request(tag="f")),
        ("-H", Request(tag="f", held=True)),
        ("--model=resnet50", Request("resnet50", tag="f")),
        ("--checkpoint-signal=usr1", Request(signal="USR1", tag="f")),
        ("--checkpoint-signal SIGUSR2", Request(signal="USR2", tag="f")),
        ("--checkpoint-signal=10 --checkpoint-grace=90", Request(signal="USR1", grace_s=90, tag="f")),
        ("--checkpoint-signal=USR1 --checkpoint-grace=1:30", Request(signal="USR1", grace_s=90, tag="f")),
        (
            "--checkpoint-signal=USR1 --checkpoint-grace=1:00:01",
            Request(signal="USR1", grace_s=3601, tag="f"),
        ),
        ("--checkpoint-signal=USR1 --checkpoint-grace=0-1", Request(signal="USR1", grace_s=3600, tag="f")),
        ("--checkpoint-signal=USR1 --checkpoint-grace=0-0:2:3", Request(signal="USR1", grace_s=123, tag="f")),
        ("--min-gpus=2 --max-gpus=16", Request(min_gpus=2, max_gpus=16, tag="f")),
        ("--copies=4 --nodes=1 --gpus-per-node=2", Request(max_copies=4, tag="f")),
        ("--copies=4 --gres=gpu:v100:2", Request(max_copies=4, tag="f")),
        ("--copies=1 -N2 -G4", Request(tag="f")),
        ("--progress=/data/%j.json", Request(tag="f", progress="/data/%j.json")),
    ],
)
def test_the_request_says_what_the_user_said(line: str, request_: Request) -> None:
    assert build_request(read(f"{line} job.sh"), "f") == request_


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--checkpoint-signal=KILL", "checkpoint signal is 'KILL', must be one of USR1, USR2"),
        ("--checkpoint-signal=RTMIN", "checkpoint signal is 'RTMIN'"),
        ("--checkpoint-signal=9", "checkpoint signal is '9'"),
        ("--checkpoint-signal=USR1 --checkpoint-grace=soon", "checkpoint grace is 'soon', must be seconds"),
        ("--checkpoint-signal=USR1 --checkpoint-grace=7-0", "checkpoint grace is 604800 s"),
        ("--checkpoint-grace=60", "--checkpoint-grace without --checkpoint-signal"),
        ("--min-gpus=-1", "--min-gpus is '-1', must be a whole number"),
        ("--min-gpus=4 --max-gpus=2", "--min-gpus=4 is more than --max-gpus=2"),
        ("--copies=two", "--copies is 'two', must be a whole number"),
        ("--max-gpus=0", "--max-gpus is '0', must be a whole number, at least 1"),
        ("--copies=4 -N2 --gres=gpu:2", "--copies with --nodes=2; a copy is one node"),
        ("--copies=4 --gpus=2", "--copies needs the GPUs of one copy by --gpus-per-node"),
        ("--model=a;b", "model is 'a;b'"),
        ("--comment=dally:model=a", "the comment begins with dally:"),
    ],
)
def test_a_wrong_value_is_named(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_request(read(f"{line} job.sh"), "f")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\n#SBATCH -N2 --time=5\n", ["-N2", "--time=5"]),
        ("#!/bin/sh\n\n# words\n#SBATCH -N2\n  # more\n#SBATCH -n4\n", ["-N2", "-n4"]),
        ("#!/bin/sh\nset -e\n#SBATCH -N2\n", []),
        ("#!/bin/sh\n  #SBATCH -N2\n", []),
        ("#!/bin/sh\n#SBATCH--nodes=2\n#SBATCH-n 4\n", ["--nodes=2", "-n", "4"]),
        ("#!/bin/sh\n# a page\f break, and \x85 or \u2028 of others\n#SBATCH -N2\n", ["-N2"]),
        ("#SBATCH\t-N2\n", ["-N2"]),
        ("#SBATCH --comment='a b' -J \"c d\"\n", ["--comment=a b", "-J", "c d"]),
        ("#SBATCH --comment=a#b -N2\n", ["--comment=a"]),
        ("#SBATCH --comment='it\\'s' -N2\n", ["--comment=it's", "-N2"]),
        ('#SBATCH --comment="a \\"b\\"" -J a\\ b # don\'t\n', ['--comment=a "b"', "-J", "a b"]),
        ("#SBATCH --image repo\\#image -N2\r\n", ["--image", "repo#image", "-N2"]),
        ("", []),
    ],
)
def test_lines_count_up_to_the_first_command(script: str, words: list[str]) -> None:
    assert marked_words(script, "#SBATCH") == words


@pytest.mark.parametrize("mark", ["#SBATCH", "#DALLY"])
def test_an_open_quote_is_named(mark: str) -> None:
    with pytest.raises(InputError, match=f"the quote ' is not closed in \"{mark} --model=it's\""):
        read("job.sh", f"#!/bin/sh\n{mark} --model=it's\n")


def test_lines_of_an_old_name_of_slurms_count_too() -> None:
    assert read("job.sh", "#!/bin/sh\n#SLURM --gpus=2\n#SBATCH -N2\n").settings == {"gpus": "2", "nodes": "2"}


def test_each_mark_has_its_own_lines() -> None:
    script = "#!/bin/sh\n#SBATCH -N2\n#DALLY --model=a\n"
    assert marked_words(script, "#DALLY") == ["--model=a"]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("-G1 -w n[1-2]", ("n[1-2]", 0, 300)),
        ("-G1 --switches=2", ("", 2, 300)),
        ("-G1 --switches=1@2", ("", 1, 120)),
        ("-G1 --switches=1@0:30", ("", 1, 30)),
        ("-G1 --switches=1@1-0", ("", 1, 300)),
    ],
)
def test_where_a_job_may_run_is_told_to_dally(line: str, asked: tuple[str, int, int]) -> None:
    request = build_request(read(f"{line} job.sh"), "ab")
    assert (request.nodes, request.switches, request.switch_wait_s) == asked


def test_a_script_in_the_place_of_any_value_is_refused_where_no_script_is_given() -> None:
    with pytest.raises(
        InputError, match=r"^--progress is 'job\.sh', which is a script; say --progress=VALUE"
    ):
        read("--gpus=1 --progress job.sh")
    assert read("--progress=steps.job job.sh").asked == {"progress": "steps.job"}
