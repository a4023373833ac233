"""`dally replay` as a user meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from tests.dally.recording.recorded import tamper

JOBS = "job_id,submit_s,gpus,duration_s,user,group,model,status\n"


def dally(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run folder of a recorded simulation."""
    trace = tmp_path / "trace.csv"
    rows = [f"j{n},{n * 60},{1 + n % 8},{900 + 37 * n},u{n % 3},,resnet50,\n" for n in range(40)]
    trace.write_text(JOBS + "".join(rows))
    inputs = ("--trace", trace, "--cluster", "demo", "--profiles", "dally", "--mtbf-h", "3")
    out = tmp_path / "out"
    made = dally("simulate", *inputs, "--policy", "dally:lease_s=600", "--record", "--out", out)
    assert made.exit_code == 0, made.output
    return out / "dally_lease_s=600"


def test_a_recorded_simulation_is_decided_again(run: Path) -> None:
    said = dally("replay", run)
    assert said.exit_code == 0
    head, verdict = said.stdout.splitlines()
    assert head.startswith(f"{run / 'facts.jsonl'}: ")
    assert " decisions of dally:lease_s=600 asked again, with " in head
    assert verdict == "all the same"


def test_a_simulation_is_not_recorded_unasked(run: Path, tmp_path: Path) -> None:
    inputs = ("--trace", tmp_path / "trace.csv", "--cluster", "demo", "--policy", "fifo")
    assert dally("simulate", *inputs, "--out", tmp_path / "other").exit_code == 0
    assert not (tmp_path / "other" / "fifo" / "facts.jsonl").exists()
    said = dally("replay", tmp_path / "other" / "fifo")
    assert said.exit_code == 1
    assert said.stderr.startswith("dally: ")
    assert "facts.jsonl: no such recording" in said.stderr


def test_a_recording_does_not_change_the_run(run: Path, tmp_path: Path) -> None:
    inputs = ("--trace", tmp_path / "trace.csv", "--cluster", "demo", "--profiles", "dally", "--mtbf-h", "3")
    plain = tmp_path / "plain"
    assert dally("simulate", *inputs, "--policy", "dally:lease_s=600", "--out", plain).exit_code == 0
    for name in ("jobs.csv", "events.jsonl", "run.json"):
        assert (plain / run.name / name).read_bytes() == (run / name).read_bytes()


def test_what_differs_is_told_and_the_exit_code_is_1(run: Path) -> None:
    tamper(run / "facts.jsonl", lambda lines: lines[0].update(policy="dally:lease_s=700"))
    said = dally("replay", run)
    assert said.exit_code == 1
    assert " are not the same\nwhat differs first:\n  at " in said.stdout
    assert "    then: " in said.stdout
    assert "    now:  " in said.stdout


def test_another_policy_is_compared_and_that_is_no_error(run: Path) -> None:
    said = dally("replay", run, "--policy", "fifo")
    assert said.exit_code == 0
    assert "fifo would have started, stopped or moved other jobs in " in said.stdout
    assert "Waits, timers and reasons are not compared." in said.stdout


def test_the_policy_of_the_recording_named_is_held_to_it(run: Path) -> None:
    assert "all the same" in dally("replay", run, "--policy", "dally:lease_s=600").stdout


def test_programs_get_json(run: Path) -> None:
    data = json.loads(dally("replay", run, "--policy", "fifo", "--json").stdout)
    assert data["policies"] == ["dally:lease_s=600"]
    assert 0 < data["differing"] <= data["decisions"]
    assert data["acts"]["then"] + data["acts"]["now"] > 0
    assert data["differences"][0].keys() == {"line", "t", "what", "then", "now"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no recording; its first line must have a schema"),
        ("\x00\xff", "no recording"),
        ("[1]\n{}\n", "1: not a JSON object, and the segment goes on after it"),
        ('{"schema":1}\n', "1: it cannot be so: KeyError('policy')"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_text(text, encoding="latin-1")
    said = dally("replay", path)
    assert (said.exit_code, said.stdout) == (1, "")
    assert words in said.stderr
    assert said.stderr.count("\n") == 1


def test_a_torn_line_is_told(run: Path) -> None:
    path = run / "facts.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    said = dally("replay", run)
    assert said.exit_code == 0
    assert " is torn: the recorder was killed there" in said.stdout


def test_an_unknown_policy_is_named(run: Path) -> None:
    said = dally("replay", run, "--policy", "best")
    assert said.exit_code == 1
    assert said.stderr.startswith("dally: unknown policy 'best'; valid: ")


def test_jobs_that_slow_each_other_are_decided_again(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"j{n},{n * 60},{9 + n % 8},{900 + 37 * n},u,,bert-large,\n" for n in range(20)]
    trace.write_text(JOBS + "".join(rows))
    inputs = ("--trace", trace, "--cluster", "demo", "--profiles", "dally", "--contention")
    out = tmp_path / "out"
    assert dally("simulate", *inputs, "--policy", "srtf", "--record", "--out", out).exit_code == 0
    assert '"fact":"repace"' in (out / "srtf" / "facts.jsonl").read_text()
    assert "all the same" in dally("replay", out / "srtf").stdout
