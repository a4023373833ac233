"""`dally-sbatch` as a command, with a stub in sbatch's place that tells how it was called."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from dally.atomic_file import user_name
from slurm_plugin.request import decode
from tests.slurm_plugin.answering import answering
from tests.slurm_plugin.submit.stubbed_site import StubbedSite

ME = user_name(os.geteuid())
ROOT = Path(__file__).parents[3]
MARKED = re.compile(r"--comment=dally:(\S*?)&?tag=[0-9a-f]{16}( .*)?")


@pytest.fixture
def site(tmp_path: Path) -> StubbedSite:
    return StubbedSite(tmp_path)


def test_our_options_come_after_the_users_and_before_the_script(site: StubbedSite) -> None:
    site.submit("--model=vgg11", "-N2", "--comment", "my words", "job.sh", "--model", "x")
    *front, comment, script, first, second = site.argv
    assert front == ["-N2", "--comment", "my words", "--hold"]
    found = MARKED.fullmatch(comment)
    assert found is not None
    assert found.groups() == ("model=vgg11", " my words")
    assert [script, first, second] == ["job.sh", "--model", "x"]


def test_the_tag_is_another_every_time(site: StubbedSite) -> None:
    tags = set()
    for _ in range(2):
        site.submit("job.sh")
        tags.add(site.argv[-2])
    assert len(tags) == 2


def test_the_comment_of_the_script_is_kept(site: StubbedSite) -> None:
    site.write("#!/bin/sh\n#SBATCH -G1 --comment='in the script'\n")
    site.submit("job.sh")
    assert site.argv[-2].endswith(" in the script")


@pytest.mark.parametrize(
    ("options", "requeue"),
    [
        ([], False),
        (["--checkpoint-signal=USR1"], True),
        (["--checkpoint-signal=USR1", "--no-requeue"], False),
        (["--checkpoint-signal=USR1", "--requeue"], False),
    ],
)
def test_a_job_that_can_be_preempted_may_be_requeued(
    site: StubbedSite, options: list[str], requeue: bool
) -> None:
    site.submit(*options, "job.sh")
    assert site.argv.count("--requeue") == requeue + ("--requeue" in options)


def test_everything_is_printed_as_sbatch_prints_it(site: StubbedSite) -> None:
    site.stub(exit_code=3)
    site.configure('url = ""', 'profiles = "testbed"')
    done = site.submit("--parsable", "--model=resnet50", "job.sh")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "Submitted batch job 17\n",
        "a warning of sbatch\n",
    )


def test_a_script_from_standard_input_reaches_sbatch_unchanged(site: StubbedSite) -> None:
    script = b"#!/bin/sh\n#SBATCH -G1\n#DALLY --model=a\n# \xff\n"
    site.submit("--parsable", stdin=script)
    assert json.loads(site.record.read_text())["stdin"].encode("latin-1") == script
    assert "model=a" in site.argv[-1]


def test_a_broken_pipe_ends_sbatch_as_it_always_does(site: StubbedSite) -> None:
    sbatch = site.folder / "bin" / "sbatch"
    sbatch.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    ignored = int(site.submit("job.sh").stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))


def test_a_dry_run_shows_the_command_and_submits_nothing(site: StubbedSite) -> None:
    done = site.submit("--dry-run", "--model=vgg11", "--checkpoint-signal=USR1", "job.sh", "two words")
    command, understood = done.stdout.splitlines()
    assert command.startswith("sbatch --hold --requeue '--comment=dally:model=vgg11&signal=USR1&tag=")
    assert command.endswith(" job.sh 'two words'")
    assert understood == "Dally: model vgg11, writes a checkpoint on USR1 within 60 s"
    assert not site.record.exists()


def test_a_dry_run_says_what_is_recorded_and_that_a_job_that_keeps_its_place_is_not_preempted(
    site: StubbedSite,
) -> None:
    done = site.submit("--dry-run", "--no-requeue", "--checkpoint-signal=USR1", "--learn=records", "job.sh")
    assert "never preempted, as --no-requeue says" in done.stdout
    assert f"is recorded in {site.folder}/records/{ME}/JOB" in done.stdout


@pytest.mark.parametrize("option", ["--help", "-h", "--version", "-V"])
def test_help_and_version_are_our_own(site: StubbedSite, option: str) -> None:
    done = site.submit(option)
    assert "dally-sbatch" in done.stdout
    assert (done.returncode, site.record.exists()) == (0, False)


def test_a_job_with_fixed_nodes_goes_to_slurm_with_a_note(site: StubbedSite) -> None:
    done = site.submit("--contiguous", "--model=a", "job.sh")
    assert site.argv == ["--contiguous", "job.sh"]
    assert done.stderr.splitlines()[0] == (
        "dally-sbatch: note: --contiguous fixes the placement; Slurm schedules this job"
    )


@pytest.mark.parametrize("option", ["--test-only", "--usage"])
def test_what_submits_nothing_is_left_to_sbatch(site: StubbedSite, option: str) -> None:
    done = site.submit(option, "job.sh")
    assert site.argv == [option, "job.sh"]
    assert done.stderr == "a warning of sbatch\n"


@pytest.mark.parametrize("arguments", [["-G1", ":", "-G2", "job.sh"], ["--model", "a;b", "job.sh"]])
def test_what_is_wrong_is_told_in_one_line(site: StubbedSite, arguments: list[str]) -> None:
    done = site.submit(*arguments)
    assert (done.returncode, done.stdout, site.record.exists()) == (1, "", False)
    assert re.fullmatch(r"dally-sbatch: .+\n", done.stderr)


def test_an_option_of_a_plugin_takes_its_value_along(site: StubbedSite) -> None:
    site.submit("--container-image", "image", "job.sh")
    assert site.argv[:2] == ["--container-image", "image"]
    assert site.argv[-1] == "job.sh"


def test_a_job_with_lines_of_pbs_goes_to_slurm_with_a_note(site: StubbedSite) -> None:
    site.write("#!/bin/sh\n#SBATCH --gpus=4\n#PBS -q night\nsleep 1\n")
    done = site.submit("job.sh")
    assert site.argv == ["job.sh"]
    assert done.stderr.startswith(
        "dally-sbatch: note: sbatch reads the script's #PBS lines, which Dally does not"
    )


def test_a_healthy_controller_gets_the_job(site: StubbedSite) -> None:
    with answering(200, b"{}", "/health") as url:
        site.configure(f'url = "{url}"')
        site.submit("job.sh", http_proxy="http://127.0.0.1:9")
    assert "--hold" in site.argv


@pytest.mark.parametrize("where", [["--progress=%j.json"], ["--progress=../r.json", "--chdir=/data/me"]])
def test_the_file_of_its_reports_is_told_to_controller_and_job(site: StubbedSite, where: list[str]) -> None:
    site.submit("--gpus=4", *where, "job.sh")
    file = str(site.folder / "%j.json") if len(where) == 1 else "/data/r.json"
    (comment,) = [word for word in site.argv if word.startswith("--comment=")]
    request = decode(comment.removeprefix("--comment="))
    assert request is not None
    assert (request.progress, site.told) == (file, {"DALLY_PROGRESS": file})


def test_an_elastic_job_is_told_what_the_policy_plans_for_its_batch(site: StubbedSite) -> None:
    body = b'{"ok": true, "plans_by": "epochs", "batching": "linear"}'
    with answering(200, body, "/health") as url:
        site.configure(f'url = "{url}"')
        elastic = site.submit("--min-gpus=1", "job.sh").stderr
        told = site.told
        companion = site.submit("--companion-of=17", "--checkpoint-signal=USR2", "job.sh").stderr
        (comment,) = [word for word in site.argv if word.startswith("--comment=")]
        assert site.told == told, "the companion's batches are its job's"
        site.submit("--progress=a", "job.sh")
    assert told == {"DALLY_BATCHING": "linear"}
    request = decode(comment.removeprefix("--comment="))
    assert request is not None
    assert (request.companion_of, request.signal) == ("17", "USR2")
    assert "--progress" not in companion
    assert "the policy plans by epochs; report them with --progress=FILE, or it guesses" in elastic
    assert "DALLY_BATCHING" not in site.told


@pytest.mark.parametrize(
    ("told", "options", "segment"),
    [
        ("true", ["--gres=gpu:4"], ["--segment=1"]),
        ("true", ["--gres=gpu:4", "--segment=0"], ["--segment=1"]),
        ("true", ["--gres=gpu:4", "--segment=1"], []),
        ("true", ["--gres=gpu:4", "--nodes=4", "--segment=2"], []),
        ("true", ["--gpus=8"], []),
        ("false", ["--gres=gpu:4"], []),
        ("false", ["--gres=gpu:4", "--segment=0"], []),
        ("1", ["--gres=gpu:4"], []),
    ],
)
def test_a_job_gets_a_segment_where_it_could_not_start_without_and_keeps_its_own(
    site: StubbedSite, told: str, options: list[str], segment: list[str]
) -> None:
    with answering(200, f'{{"ok": true, "segments": {told}}}'.encode(), "/health") as url:
        site.configure(f'url = "{url}"')
        site.submit(*options, "job.sh")
    own = site.argv[len(options) :]
    assert own[0] == "--hold"
    assert [word for word in own if word.startswith("--segment")] == segment


@pytest.mark.parametrize("told", ["true", "false"])
def test_a_segment_that_dally_cannot_keep_is_slurms(site: StubbedSite, told: str) -> None:
    asked = "--gpus=8" if told == "true" else "--gres=gpu:4"
    with answering(200, f'{{"ok": true, "segments": {told}}}'.encode(), "/health") as url:
        site.configure(f'url = "{url}"')
        done = site.submit(asked, "--segment=1", "job.sh")
    assert site.argv == [asked, "--segment=1", "job.sh"]
    said = "dally-sbatch: note: --segment fixes the placement; Slurm schedules this job"
    assert done.stderr.splitlines()[0] == said


@pytest.mark.parametrize("told", ["true", "false"])
def test_blocks_of_its_own_are_dallys_where_slurm_takes_segments_with_a_node_list(
    site: StubbedSite, told: str
) -> None:
    with answering(200, f'{{"ok": true, "segments": {told}}}'.encode(), "/health") as url:
        site.configure(f'url = "{url}"')
        done = site.submit("--gres=gpu:4", "--exclusive=topo", "job.sh")
    said = "dally-sbatch: note: --exclusive=topo fixes the placement; Slurm schedules this job"
    assert (said in done.stderr.splitlines()) == (told == "false")
    added = ["--hold", "--segment=1"] if told == "true" else []
    assert [word for word in site.argv if word in ("--hold", "--segment=1")] == added


@pytest.mark.parametrize("body", [b"{}", b'{"plans_by": 3, "batching": 7}'])
def test_an_answer_that_tells_nothing_of_the_policy_is_as_good(site: StubbedSite, body: bytes) -> None:
    with answering(200, body, "/health") as url:
        site.configure(f'url = "{url}"')
        site.submit("--min-gpus=1", "job.sh")
    assert "--hold" in site.argv
    assert site.told == {}


def test_without_a_controller_the_job_goes_to_slurm_with_a_warning(site: StubbedSite) -> None:
    site.configure('url = "http://127.0.0.1:9"')
    done = site.submit("--model=a", "--comment=my words", "job.sh")
    assert site.argv == ["--comment=my words", "--comment=dally:plain=1 my words", "job.sh"]
    assert done.stderr.splitlines()[0] == (
        "dally-sbatch: warning: no controller answers at http://127.0.0.1:9: Connection refused; "
        "Slurm schedules this job"
    )


def test_a_sick_controller_counts_as_none(site: StubbedSite) -> None:
    with answering(503, path="/health") as url:
        site.configure(f'url = "{url}"')
        done = site.submit("job.sh")
    assert site.argv == ["--comment=dally:plain=1", "job.sh"]
    assert "is not well: HTTP 503" in done.stderr


def test_a_site_may_refuse_jobs_while_there_is_no_controller(site: StubbedSite) -> None:
    site.configure('fallback = "refuse"', 'url = "http://127.0.0.1:9"')
    done = site.submit("job.sh")
    assert (done.returncode, site.record.exists()) == (1, False)
    assert done.stderr.startswith("dally-sbatch: no controller answers")


@pytest.mark.parametrize("text", [None, "partitions = 3", "not toml"])
def test_without_a_configuration_the_job_goes_to_slurm_with_a_warning(
    site: StubbedSite, text: str | None
) -> None:
    (site.folder / "dally.toml").unlink()
    if text is not None:
        (site.folder / "dally.toml").write_text(text)
    done = site.submit("job.sh")
    assert site.argv == ["job.sh"]
    assert done.stderr.startswith("dally-sbatch: warning: ")


def test_a_grace_beyond_the_sites_is_told(site: StubbedSite) -> None:
    done = site.submit("--checkpoint-signal=USR1", "--checkpoint-grace=1:00:00", "job.sh")
    assert done.stderr.startswith(
        "dally-sbatch: note: checkpoint grace 3600 s; this site gives 600 s at most\n"
    )


def test_without_sbatch_there_is_one_line(site: StubbedSite) -> None:
    done = site.submit("job.sh", PATH=str(site.folder))
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == ["dally-sbatch: cannot run sbatch: No such file or directory"]


def test_a_signal_that_the_script_does_not_handle_is_warned_of_and_the_job_goes_in(site: StubbedSite) -> None:
    site.write("#!/bin/sh\n#SBATCH --gpus=4\nsrun python train.py\n")
    done = site.submit("--model=vgg11", "--checkpoint-signal=USR2", "job.sh")
    assert site.argv[-1] == "job.sh"
    assert done.stderr.splitlines()[0] == (
        "dally-sbatch: warning: the script has no trap for USR2, so this signal ends it before a checkpoint "
        "is written; begin it with: trap : USR2"
    )


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ([], "note: no --model, so Dally can only guess what distance costs it; `dally models` lists"),
        (
            ["--model=resnet5O"],
            "note: no profile of model resnet5O, so Dally can only guess what distance costs",
        ),
    ],
)
def test_a_job_without_a_profile_is_told_so_and_goes_in(
    site: StubbedSite, options: list[str], note: str
) -> None:
    site.configure('url = ""', 'profiles = "testbed"')
    done = site.submit(*options, "job.sh")
    assert site.argv[-1] == "job.sh"
    assert done.stderr.startswith(f"dally-sbatch: {note}")


def test_a_name_close_to_a_models_is_asked_about(site: StubbedSite) -> None:
    site.configure('url = ""', 'profiles = "testbed"')
    assert (
        site.submit("--model=resnet5O", "job.sh").stderr.splitlines()[0].endswith("; did you mean resnet50?")
    )


def test_nothing_is_said_of_profiles_that_cannot_be_read_from_here(site: StubbedSite) -> None:
    site.configure('url = ""', f'profiles = "{site.folder}/on-the-head-node"')
    assert site.submit("--model=vgg11", "job.sh").stderr == "a warning of sbatch\n"


@pytest.mark.parametrize(
    "options", [["--model", "job.sh"], ["--model=job.sh"], ["--model", "train.py", "job.sh"]]
)
def test_a_script_in_the_place_of_the_model_is_refused_without_waiting_for_input(
    site: StubbedSite, options: list[str]
) -> None:
    done = site.submit(*options)
    assert (done.returncode, site.record.exists()) == (1, False)
    said = r"dally-sbatch: --model is '(job\.sh|train\.py)', which is a script; say --model=NAME, then .*\n"
    assert re.fullmatch(said, done.stderr)


def test_a_file_without_a_scripts_name_is_refused_as_a_model_only_where_no_script_is_given(
    site: StubbedSite,
) -> None:
    (site.folder / "vgg11").write_text("#!/bin/sh\n")
    assert site.submit("--model", "vgg11").stderr.startswith(
        "dally-sbatch: --model is 'vgg11', which is a script"
    )
    assert site.submit("--model", "vgg11", "job.sh").returncode == 0


def test_a_job_that_is_to_be_recorded_finds_the_recorder_on_its_path(site: StubbedSite) -> None:
    site.submit("--learn=records", "--model=vgg11", "job.sh", PYTHONPATH=f"/mine:{ROOT}")
    assert site.told == {
        "DALLY_LEARN": str(site.folder / "records" / ME),
        "DALLY_STEPS": str(site.folder / "records" / ME / "steps-%j.json"),
        "PYTHONPATH": f"{ROOT}/workloads/recorder/inside:/mine:{ROOT}",
    }
    assert "--learn" not in " ".join(site.argv)
    site.submit("--learn=~/records", "--model=vgg11", "job.sh", HOME="/home/ann")
    assert site.told["DALLY_LEARN"] == f"/home/ann/records/{ME}"


@pytest.mark.parametrize(
    ("export", "told"),
    [("--export=NONE", True), ("--export=HOME", True), ("--export=ALL,X=1", False), ("--nice=1", False)],
)
def test_a_job_that_does_not_get_its_environment_is_told_that_it_is_not_recorded(
    site: StubbedSite, export: str, told: bool
) -> None:
    done = site.submit("--learn=records", "--model=vgg11", export, "job.sh")
    assert ("keeps PYTHONPATH from the job: nothing is recorded" in done.stderr) is told


def test_a_site_may_record_every_job(site: StubbedSite) -> None:
    site.configure('url = ""', 'learn = "/shared/records"')
    site.submit("--model=vgg11", "job.sh")
    assert site.told["DALLY_LEARN"] == f"/shared/records/{ME}"
    site.submit("--model=vgg11", "--learn=mine", "job.sh")
    assert site.told["DALLY_LEARN"] == str(site.folder / "mine" / ME)


def test_a_plan_on_the_scripts_command_line_is_told_with_a_note(site: StubbedSite) -> None:
    site.write(
        "#!/bin/sh\n#SBATCH --gpus=8\nx --tensor-model-parallel-size 4 --seq-length 9 --global-batch-size 2\n"
    )
    done = site.submit("--dry-run", "--model=llama3-8b", "job.sh")
    assert (
        "dally-sbatch: note: plan tp=4,sequence=9 and batch 2 are read from the command line" in done.stderr
    )
    assert "no profile of model" not in done.stderr
    assert "Dally: model llama3-8b, plan tp=4,sequence=9 with batches of 2, never preempted" in done.stdout


def test_one_line_tells_of_a_plan_that_is_unclear_and_a_model_that_is_not_named(site: StubbedSite) -> None:
    site.write("#!/bin/sh\n#SBATCH --gpus=8\nx --tensor-model-parallel-size $TP\n")
    (line,) = site.submit("--dry-run", "job.sh").stderr.splitlines()
    assert line.startswith(
        "dally-sbatch: note: no plan is read from the command line: tensor-model-parallel-size"
    )


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (["--min-gpus=2"], "GPUs from 2 to what it asks for"),
        (["--min-gpus=2", "--max-gpus=8"], "GPUs from 2 to 8"),
    ],
)
def test_a_dry_run_tells_the_range_of_gpus(site: StubbedSite, limits: list[str], told: str) -> None:
    assert told in site.submit("--dry-run", "--model=vgg11", *limits, "job.sh").stdout


def test_words_that_are_no_text_are_shown_and_a_path_of_these_is_refused_in_a_line(site: StubbedSite) -> None:
    odd = os.fsdecode(b"\xe9")
    shown = site.submit(
        "--dry-run", "--model=vgg11", f"--job-name=a{odd}", "job.sh", PYTHONIOENCODING="utf-8:strict"
    )
    assert (shown.returncode, "Traceback" in shown.stderr) == (0, False)
    assert f"--job-name=a{odd}" in shown.stdout
    refused = site.submit(f"--progress=/tmp/{odd}", "job.sh")
    assert refused.returncode == 1
    assert re.fullmatch("dally-sbatch: progress file is .*, in UTF-8 .*\n", refused.stderr)


def test_a_pipe_that_a_script_names_is_not_waited_for(site: StubbedSite) -> None:
    os.mkfifo(site.folder / "pipe\x1b[2J.json")
    site.write("#!/bin/sh\n#SBATCH --gpus=8\ndeepspeed x.py --deepspeed_config pipe\x1b[2J.json\n")
    done = site.submit("job.sh")
    assert "cannot be read" in done.stderr
    assert "\x1b" not in done.stderr
