"""`dally simulate`, `dally why` and `dally policies` as a user meets them."""

import gzip
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.cluster import load_cluster
from dally.commands import main
from dally.profiles.files import load_profiles, write_profile
from dally.profiles.schema import ProfileMode
from dally.runs.records import read_events, read_jobs, read_run
from tests.patience import LONGEST_S

JOBS = "job_id,submit_s,gpus,duration_s,user,group,model,status\n"


def dally(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = [f"j{n},{n * 60},{1 + n % 8},{900 + 37 * n},u{n % 3},,resnet50,\n" for n in range(40)]
    path.write_text(JOBS + "".join(rows))
    return path


def simulate(trace: Path, out: Path, *more: str) -> Result:
    return dally("simulate", "--trace", str(trace), "--cluster", "demo", "--out", str(out), *more)


def test_two_policies_side_by_side(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = simulate(trace, out, "--policy", "dally", "--policy", "fifo", "--profiles", "realistic")
    assert result.exit_code == 0, result.output
    assert "dally" in result.output
    assert "JCT mean" in result.output
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.json",
        "dally",
        "fifo",
    ]
    files = {path.name for path in (out / "fifo").iterdir()}
    assert files == {"cluster.toml", "events.jsonl", "jobs.csv", "run.json"}
    assert load_cluster(out / "fifo" / "cluster.toml") == load_cluster("demo")
    assert len(read_jobs(out / "fifo")) == 40
    assert read_run(out / "fifo")["predictions"]["modes"] == ["imported"]


def test_json_prints_the_summaries_and_nothing_else(trace: Path, tmp_path: Path) -> None:
    result = simulate(trace, tmp_path / "out", "--policy", "fifo", "--json")
    summary = json.loads(result.stdout)["fifo"]
    assert summary["completed"] == 40
    assert summary["jct_s"]["mean"] >= 900


def test_the_same_inputs_give_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    options = ("--policy", "dally:lease_s=600", "--profiles", "dally", "--seed", "3", "--mtbf-h", "20")
    for name in ("one", "two"):
        assert simulate(trace, tmp_path / name, *options).exit_code == 0
    for path in (tmp_path / "one").rglob("*"):
        twin = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert path.is_dir() or path.read_bytes() == twin.read_bytes(), path.name


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--policy", "magic"], "unknown policy 'magic'; valid: a-srpt, dally, drl, elastic-scaling"),
        (["--policy", "dally:speed=9"], "policy dally has no knob 'speed'; valid: timers"),
        (
            ["--policy", "dally:timers=fast"],
            "knob timers of policy dally is 'fast', must be: auto",
        ),
        (
            ["--policy", "dally:lease_s=-1"],
            "knob lease_s of policy dally is '-1', must be: number, more than 0",
        ),
        (
            ["--policy", "dally:lease_s=nan"],
            "knob lease_s of policy dally is 'nan', must be: number",
        ),
        (["--policy", "dally:timers"], "'timers' is no knob"),
        (["--policy", "fifo", "--profiles", "nowhere"], "nowhere"),
        (["--policy", "fifo", "--model-mix", "resnet50"], "model mix: 'resnet50' must be like"),
        (["--policy", "fifo", "--congestion", "-1"], "congestion is -1, must be a positive number"),
        (["--policy", "fifo", "--checkpoint-s", "0"], "checkpoint_s is 0, must be a positive number"),
        (["--policy", "fifo", "--mtbf-h", "0"], "mtbf_h is 0, must be a positive number"),
        (["--policy", "fifo", "--mtbf-h", "9", "--failures", "f.csv"], "exclude each other"),
        (["--policy", "fifo", "--failures", "none.csv"], "none.csv: No such file or directory"),
        (["--policy", "fifo", "--cluster", "moon"], "cluster 'moon' is neither a file"),
        (["--policy", "fifo", "--trace", "moon"], "no trace file 'moon'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    trace: Path, tmp_path: Path, more: list[str], message: str
) -> None:
    result = simulate(trace, tmp_path / "out", *more)
    refused(result, message)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def refused(result: Result, message: str) -> None:
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("dally: ")
    assert isinstance(result.exception, SystemExit)


def test_a_job_larger_than_the_cluster_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(JOBS + "small,0,1,10,,,,\nhuge,0,65,10,,,,\n")
    result = simulate(path, tmp_path / "out", "--policy", "fifo")
    refused(result, "job huge: a gang of 65 GPUs does not fit: cluster demo has 64")


def test_a_job_larger_than_the_cluster_is_counted_and_recorded_when_skipped(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(JOBS + "small,0,1,10,,,,\nhuge,0,65,10,,,,\n")
    result = simulate(path, tmp_path / "out", "--policy", "fifo", "--skip-bad")
    assert result.exit_code == 0
    assert "left out 1 job that the cluster cannot hold" in result.stderr
    statuses = {record.job_id: record.status for record in read_jobs(tmp_path / "out" / "fifo")}
    assert statuses == {"small": "COMPLETED", "huge": "REJECTED"}


def test_what_was_left_out_of_the_trace_is_counted(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(JOBS + "a,0,1,10,,,,\nb,0,1,0,,,,\nc,0,0,5,,,,\n")
    refused(
        simulate(tmp_path / "trace.csv", tmp_path / "out", "--policy", "fifo"),
        "--skip-bad leaves such rows out",
    )
    options = ("--policy", "fifo", "--skip-bad", "--min-duration-s", "1")
    result = simulate(tmp_path / "trace.csv", tmp_path / "out", *options)
    assert result.exit_code == 0
    assert "trace: left out 1: gpus is below 1; 1 duration raised to the least one" in result.stderr


def test_a_truncated_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress((JOBS + "a,0,1,10,,,,\n" * 2000).encode())[:-20])
    refused(simulate(path, tmp_path / "out", "--policy", "fifo"), "trace.csv.gz")


def test_an_existing_folder_is_never_written_into(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    refused(simulate(trace, tmp_path / "out", "--policy", "fifo"), "exists already")


@pytest.mark.slow
def test_interrupted_it_keeps_a_valid_partial_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = "philly-like:jobs=50000,gpus=1:90/8:10,load=0.9,cluster_gpus=64"
    arguments = ["--trace", spec, "--cluster", "demo", "--policy", "fifo", "--policy", "dally"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dally", "simulate", *arguments, "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob(".out.*/fifo/events.jsonl")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 130
    assert "fifo is incomplete: interrupted" in stderr
    assert read_run(out / "fifo")["complete"] is False
    assert {record.status for record in read_jobs(out / "fifo")} <= {"COMPLETED", "RUNNING", "WAITING"}
    assert not (out / "dally").exists()


def test_why_tells_the_life_of_a_job(trace: Path, tmp_path: Path) -> None:
    simulate(trace, tmp_path / "out", "--policy", "dally:lease_s=600")
    run = tmp_path / "out" / "dally_lease_s=600"
    preempted = next(record for record in read_jobs(run) if record.preemptions)
    result = dally("why", preempted.job_id, "--run", str(run))
    assert result.exit_code == 0
    for part in ("submitted, asks for", "starts on", "loses its GPUs to", "lease over", "ends, completed"):
        assert part in result.output
    events = [
        json.loads(line)
        for line in dally("why", preempted.job_id, "--run", str(run), "--json").stdout.splitlines()
    ]
    assert next(iter(events))["event"] == "submit"


def test_why_names_jobs_that_are_there(trace: Path, tmp_path: Path) -> None:
    simulate(trace, tmp_path / "out", "--policy", "fifo")
    refused(dally("why", "j99", "--run", str(tmp_path / "out" / "fifo")), "has no job 'j99'; there are j9")
    refused(
        dally("why", "j99", "--run", str(tmp_path / "out")),
        f"name one of the runs in it: {tmp_path}/out/fifo",
    )


def test_why_refuses_what_is_no_run_folder(tmp_path: Path) -> None:
    refused(dally("why", "a", "--run", str(tmp_path)), "is not a run folder: cannot read run.json")


def test_policies_lists_every_policy_with_its_knobs() -> None:
    listed = dally("policies").output
    data = json.loads(dally("policies", "--json").output)
    for policy in data:
        assert policy["name"] in listed
        assert policy["summary"]
        assert policy["source"]
        for knob in policy["knobs"]:
            assert f"{knob['name']}={knob['default']}" in listed
    assert "dally" in [policy["name"] for policy in data]


def test_help_shows_an_example_of_every_command() -> None:
    for name in ("simulate", "why", "policies", "trace", "cluster"):
        assert f"dally {name} " in dally(name, "--help").output.split("xample", 1)[1]


def test_models_without_a_profile_are_named(trace: Path, tmp_path: Path) -> None:
    trace.write_text(trace.read_text().replace("resnet50", "resnet-xl"))
    result = simulate(trace, tmp_path / "out", "--policy", "fifo", "--profiles", "realistic")
    assert result.exit_code == 0
    assert "profiles realistic (imported)" in result.stdout
    assert "no profile, taken as insensitive to the network: resnet-xl" in result.stderr
    predictions = read_run(tmp_path / "out" / "fifo")["predictions"]
    assert predictions["models_without_profile"] == ["resnet-xl"]


def test_what_is_assumed_of_models_without_a_profile_is_told(trace: Path, tmp_path: Path) -> None:
    result = simulate(trace, tmp_path / "out", "--policy", "fifo", "--assumed-slowdown", "1.25")
    assert "no profiles: taken as 1.25 x slower with each level farther apart" in result.stdout
    assert read_run(tmp_path / "out" / "fifo")["assumed_slowdown"] == 1.25
    wrong = simulate(trace, tmp_path / "wrong", "--policy", "fifo", "--assumed-slowdown", "0.5")
    assert "assumed_slowdown is 0.5, must be 1 or more" in wrong.stderr


def test_cpu_profiles_beside_gpu_profiles_must_be_asked_for(trace: Path, tmp_path: Path) -> None:
    shipped = load_profiles("realistic").profiles[:2]
    (tmp_path / "mixed").mkdir()
    for number, mode in enumerate((ProfileMode.GLOO, ProfileMode.NCCL)):
        provenance = replace(shipped[number].provenance, mode=mode)
        write_profile(replace(shipped[number], provenance=provenance), tmp_path / "mixed" / f"{mode}.json")
    options = ("--policy", "fifo", "--profiles", str(tmp_path / "mixed"))
    refused(simulate(trace, tmp_path / "out", *options), "gloo")
    assert simulate(trace, tmp_path / "out", *options, "--mixed-profiles").exit_code == 0
    assert read_run(tmp_path / "out" / "fifo")["predictions"]["modes"] == ["gloo", "nccl"]


def test_jobs_that_never_end_are_told_by_the_exit_status(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(JOBS + "wide,0,64,1000,,,,\n")
    (tmp_path / "failures.csv").write_text("machine,down_s,up_s\ngpu1,500,\n")
    options = ("--policy", "fifo", "--failures", str(tmp_path / "failures.csv"))
    result = simulate(tmp_path / "trace.csv", tmp_path / "out", *options)
    assert result.exit_code == 1
    assert "fifo is incomplete: 1 job left waiting for machines that stay down" in result.stderr
    assert "fifo (incomplete)" in result.stdout
    assert [record.status for record in read_jobs(tmp_path / "out" / "fifo")] == ["WAITING"]


def test_a_run_in_which_nothing_gets_done_is_told_and_compared_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.stall_detector.LEAST_PART", 1.0)  # nobody restarts for nothing
    monkeypatch.setattr("simulator.stall_detector.WINDOW", 5)
    jobs = "".join(f"j{number},0,64,100000,,,,\n" for number in range(4))
    (tmp_path / "trace.csv").write_text(JOBS + jobs)
    result = simulate(tmp_path / "trace.csv", tmp_path / "out", "--policy", "gandiva", "--policy", "fifo")
    assert result.exit_code == 1
    assert "gandiva is incomplete: nothing gets done since" in result.stderr
    assert not re.search(r"[-+]\d+ %", result.stdout)
    facts = read_run(tmp_path / "out" / "gandiva")
    assert (facts["complete"], facts["note"][:22]) == (False, "nothing gets done sinc")


def test_jobs_that_failed_are_told_and_means_without_them_are_compared_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.engine.MOST_FAILURES_WITHOUT_PROGRESS", 1)
    (tmp_path / "trace.csv").write_text(JOBS + "long,0,64,1000,,,,\nshort,0,64,100,,,,\n")
    (tmp_path / "failures.csv").write_text("machine,down_s,up_s\ngpu1,50,60\n")
    options = ("--policy", "fifo", "--policy", "sjf", "--failures", str(tmp_path / "failures.csv"))
    result = simulate(tmp_path / "trace.csv", tmp_path / "out", *options)
    assert result.exit_code == 0
    assert "no mean counts 1 job that failed under fifo: " in result.stderr
    assert not re.search(r"[-+]\d+ %", result.stdout)


def test_arrivals_can_be_moved_closer_together(trace: Path, tmp_path: Path) -> None:
    simulate(trace, tmp_path / "out", "--policy", "fifo", "--arrival-scale", "0.5")
    submitted = [record.submit_s for record in read_jobs(tmp_path / "out" / "fifo")]
    assert submitted == [n * 30 for n in range(40)]


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "dally", "policies"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (process.returncode, process.stderr) == (1, "dally: cannot write: No space left on device\n")


def test_contention_slows_jobs_that_share_links_and_is_on_record(trace: Path, tmp_path: Path) -> None:
    slow = ("--policy", "gandiva", "--profiles", "realistic", "--congestion", "0.02")
    assert simulate(trace, tmp_path / "alone", *slow).exit_code == 0
    assert simulate(trace, tmp_path / "beside", *slow, "--contention", "--record").exit_code == 0
    alone, beside = (
        read_run(tmp_path / name / "gandiva")["summary"]["comm_s"]["mean"] for name in ("alone", "beside")
    )
    assert beside > alone > 0
    assert "contention" not in read_run(tmp_path / "alone" / "gandiva")
    assert read_run(tmp_path / "beside" / "gandiva")["contention"] is True
    replayed = dally("replay", str(tmp_path / "beside" / "gandiva"))
    assert replayed.exit_code == 0, replayed.output
    paced = next(event for event in read_events(tmp_path / "beside" / "gandiva") if event["event"] == "pace")
    told = dally("why", paced["job"], "--run", str(tmp_path / "beside" / "gandiva"))
    assert "goes on at another pace" in told.output


def test_how_mixed_gangs_split_their_batch_matters_and_is_on_record_unless_evenly(tmp_path: Path) -> None:
    trace, mixed = tmp_path / "wide.csv", ("--policy", "fifo", "--profiles", "gavel", "--cluster", "hadar-60")
    trace.write_text(JOBS + "j1,0,24,900,,,resnet-50,\nj2,0,32,900,,,resnet-50,\n")
    options = {"even": (), "proportional": ("--batch-split", "proportional", "--record")}
    for name, more in options.items():
        assert simulate(trace, tmp_path / name, *mixed, *more).exit_code == 0
    even, proportional = (read_run(tmp_path / name / "fifo") for name in options)
    assert "batch_split" not in even
    assert proportional["batch_split"] == "proportional"
    run_s = [{job.job_id: job.run_s for job in read_jobs(tmp_path / name / "fifo")} for name in options]
    assert run_s[1]["j2"] < run_s[0]["j2"]
    assert dally("replay", str(tmp_path / "proportional" / "fifo")).exit_code == 0


def test_a_forked_job_runs_as_one_copy_under_a_policy_that_knows_nothing_of_copies(tmp_path: Path) -> None:
    trace = tmp_path / "forked.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s,kind,max_copies\nf,0,2,900,forked,4\n")
    assert simulate(trace, tmp_path / "out", "--policy", "srtf").exit_code == 0
    (job,) = read_jobs(tmp_path / "out" / "srtf")
    assert (job.run_s, job.gpu_s, job.levels) == (900, 1800, "machine:1")


def test_what_policies_know_is_said_everywhere(trace: Path, tmp_path: Path) -> None:
    result = simulate(trace, tmp_path / "known", "--policy", "fifo", "--estimate-error", "0.5")
    assert "running times known: exact ± 0.5" in result.stdout
    facts = json.loads((tmp_path / "known" / "fifo" / "run.json").read_text())
    assert (facts["knowledge"], facts["estimate_error"]) == ("exact", 0.5)
    result = simulate(trace, tmp_path / "unknown", "--policy", "fifo", "--knowledge", "none", "--json")
    assert {run["knowledge"] for run in json.loads(result.stdout).values()} == {"none"}
    assert json.loads((tmp_path / "unknown" / "fifo" / "run.json").read_text())["knowledge"] == "none"


def test_how_wrong_the_profiles_are_that_policies_see_is_said_everywhere(trace: Path, tmp_path: Path) -> None:
    asked = ("--policy", "fifo", "--profiles", "dally", "--knowledge", "limits", "--profile-error", "0.3")
    result = simulate(trace, tmp_path / "wrong", *asked)
    assert "running times known: limits, profiles ± 0.3" in result.stdout
    facts = json.loads((tmp_path / "wrong" / "fifo" / "run.json").read_text())
    assert facts["profile_error"] == 0.3
    compared = json.loads((tmp_path / "wrong" / "comparison.json").read_text())
    assert compared["fifo"]["knowledge"] == "limits, profiles ± 0.3"


def test_a_run_with_wrong_profiles_is_replayed_as_it_was(tmp_path: Path) -> None:
    asked = ("--profiles", "dally", "--policy", "srsf-delay", "--seed", "2", "--record")
    for name, error in (("right", "0"), ("wrong", "2")):
        trace = Path("poisson:jobs=60,load=1.2,cluster_gpus=32,gpus=2:1/8:1/12:1")
        options = ("--profile-error", error, "--model-mix", "vgg11=1,resnet50=1")
        assert simulate(trace, tmp_path / name, *asked, *options).exit_code == 0
        assert dally("replay", str(tmp_path / name / "srsf-delay")).exit_code == 0
    events = [(tmp_path / name / "srsf-delay" / "events.jsonl").read_text() for name in ("right", "wrong")]
    assert events[0] != events[1]


def test_a_profile_error_without_profiles_is_one_line(trace: Path, tmp_path: Path) -> None:
    result = simulate(trace, tmp_path / "out", "--policy", "fifo", "--profile-error", "0.3")
    refused(result, "profile_error is 0.3, but there are no profiles")


def test_hidden_profiles_without_profiles_are_one_line(trace: Path, tmp_path: Path) -> None:
    result = simulate(trace, tmp_path / "out", "--policy", "fifo", "--hide-profiles")
    refused(result, "hide_profiles is on, but there are no profiles to hide")


def test_an_error_of_what_is_not_exact_is_one_line(trace: Path, tmp_path: Path) -> None:
    result = simulate(
        trace, tmp_path / "out", "--policy", "fifo", "--knowledge", "limits", "--estimate-error", "0.5"
    )
    refused(result, "estimate_error goes with knowledge exact, not with limits")


def test_a_recording_of_what_was_known_is_decided_again(trace: Path, tmp_path: Path) -> None:
    for knowledge in ("limits", "history", "none"):
        out = tmp_path / knowledge
        simulate(trace, out, "--policy", "srsf-delay", "--knowledge", knowledge, "--record")
        replayed = dally("replay", str(next(out.glob("*/facts.jsonl"))))
        assert replayed.exit_code == 0, replayed.output
