"""`profile-models run`."""

import json
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.profiles.files import load_profiles
from dally.profiles.schema import Point, ProfileMode
from profiler.commands import main
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.dally.hosts.sshd import running_sshd
from tests.patience import wait_until
from tests.profiler.commands.real import end, marked, run, start

TRAINING = Path(__file__).with_name("ddp_training.py")
GRADIENTS_BYTES = 4 * (512 * 2048 + 2048)
LONGEST_S = 900.0
"""Of real trainings, which load torch in every rank, beside whatever else runs here."""

PRINTS = """\
for step in 1 2 3 4 5 6 7 8; do echo '{"seconds": 0.'$step'}'; done
"""
"""Eight step times, of 0.1 to 0.8 s."""

PARTS = """\
part=$OUT/part-$NODE_RANK-of-$NNODES
echo "$NODE_RANK of $1 in $PWD on $SLURMD_NODENAME" > $part.new
mv $part.new $part
[ $NODE_RANK = 0 ] || exec sleep 10000
until [ $(ls $OUT/part-*-of-$NNODES | wc -l) = $NNODES ]; do sleep 0.1; done
"""
"""Every machine says what it was told, and the first one waits for the others."""

FEW = ("--warm-up=2", "--steps=5")


def script(folder: Path, text: str) -> Path:
    """A training of the user's."""
    path = folder / "train.sh"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def points(out: Path) -> dict[str, Point]:
    """What the only profile of a folder holds, by tier and shape."""
    (profile,) = load_profiles(out).profiles
    return {
        f"{tier}-{point.shape.nodes}x{point.shape.gpus_per_node}": point
        for tier, points in profile.tiers.items()
        for point in points
    }


def step_s(out: Path) -> dict[str, float]:
    return {name: point.iteration.median_s for name, point in points(out).items() if point.iteration}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["run", "--model=mine", *map(str, arguments)])


def test_an_unchanged_torchrun_is_measured_over_shaped_links(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8", TRAINING)
    options = ("--shapes=1x2,rack-2x1", "--rate=100Mb", "--warm-up=1", "--steps=3", "--out", tmp_path / "out")

    done = run("run", "--model=mine", *options, "--", *torchrun, timeout_s=LONGEST_S)

    assert done.returncode == 0, done.stderr
    assert "mine (gloo)" in done.stdout or "mine (given)" in done.stdout
    measured = points(tmp_path / "out")
    assert list(measured) == ["machine-1x2", "rack-2x1"]
    assert measured["rack-2x1"].link is not None
    assert measured["rack-2x1"].link.bandwidth_bps == 100e6
    told = {name: (tmp_path / "out/steps/mine" / f"{name}.log").read_text() for name in measured}
    assert all("on 2 ranks, step time" in text for text in told.values())
    on_the_wire_s = GRADIENTS_BYTES * 8 / 100e6  # of two ranks each sends all of it once
    assert step_s(tmp_path / "out")["rack-2x1"] > 0.8 * on_the_wire_s, "faster than the link"


def test_the_steps_after_the_first_ones_count_and_end_a_run_that_would_go_on(tmp_path: Path) -> None:
    training = script(tmp_path, f"{PRINTS}sleep 10000\n")

    done = run("run", "--model=mine", *FEW, "--shapes=1x1", "--out", tmp_path / "out", "--", training)

    assert done.returncode == 0, done.stderr
    assert "machine-1x1: 0.5 s a step (median of 5, by jsonl)" in done.stderr
    assert step_s(tmp_path / "out") == {"machine-1x1": 0.5}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_midway_it_leaves_no_process_and_goes_on_with_what_is_missing(
    tmp_path: Path, number: signal.Signals
) -> None:
    training = script(tmp_path, f'[ "$NNODES" = 1 ] || [ -e {tmp_path}/go ] || sleep 10000\n{PRINTS}')
    out = tmp_path / "out"
    arguments = ("run", "--model=mine", *FEW, "--shapes=1x2,rack-2x1", "--out", out)
    first = out / "steps" / "mine" / "machine-1x2.json"
    process = start(tmp_path, *arguments, "--", training)
    wait_until(lambda: bool(marked(tmp_path, "10000")), "the second run")

    end(process, number)

    wait_until(lambda: not marked(tmp_path), "all processes to be gone")
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    assert not list(out.glob("*.json"))
    before = first.read_bytes()

    again = run(*arguments, "--", training)
    assert again.stderr == (
        f"profile-models: {first} exists; go on from it with --resume, or name another --out\n"
    )
    (tmp_path / "go").touch()
    resumed = run(*arguments, "--resume", "--", training)

    assert resumed.returncode == 0, resumed.stderr
    assert "machine-1x2" not in resumed.stderr
    assert first.read_bytes() == before
    assert list(step_s(out)) == ["machine-1x2", "rack-2x1"]


def test_a_folder_that_cannot_take_the_profile_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.commands.program_sites.count_gpus", lambda: 0)
    add = ("add", "other", "--machine=1", "--rack=2", "--gpus=2", "--out", str(tmp_path))
    assert CliRunner().invoke(main, add).exit_code == 0
    result = invoke("--shapes=1x2", "--out", tmp_path, "--", "true")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "mixes CPU and GPU profiles (given, gloo)" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_a_run_that_fails_is_told_with_its_cause_and_the_others_are_measured(tmp_path: Path) -> None:
    fails = 'if [ "$NNODES" = 2 ]; then echo "RuntimeError: CUDA out of memory" >&2; exit 1; fi\n'
    training, out = script(tmp_path, f"{fails}{PRINTS}"), tmp_path / "out"

    done = run("run", "--model=mine", *FEW, "--shapes=1x2,rack-2x1", "--out", out, "--", training)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "profile-models: not all was measured: rack-2x1: RuntimeError: CUDA out of memory; all that it "
        f"printed: {out}/steps/mine/rack-2x1.log (the same command with --resume adds what is missing)"
    )
    assert list(step_s(out)) == ["machine-1x2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 3", "machine 0, r1h1: exit status 3; all that it printed: "),
        ("echo hello", "the program ended and printed no step times; see "),
        ("echo '{\"seconds\": 1}'", "the program ended and printed only 1 step times, 5 are needed; see "),
        ('echo \'{"seconds": "soon"}\'', "the program ended and printed no step times; see "),
    ],
)
def test_a_program_that_tells_nothing_ends_it_with_one_line_and_no_profile(
    tmp_path: Path, text: str, said: str
) -> None:
    done = run(
        *("run", "--model=mine", *FEW, "--out", tmp_path / "out", "--", script(tmp_path, f"{text}\n")),
    )

    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("profile-models: "))
    assert line.startswith(f"profile-models: machine-1x2: {said}")
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shapes=9x1",), "rack-9x1 or network-9x1 fits nowhere"),
        (("--steps-from=(",), "--steps-from '(' is no regular expression"),
        (("--steps-from=step",), "must have a group of the seconds of a step"),
        (("--hosts=hosts.toml", "--slurm"), "--hosts and --slurm are two places; choose one"),
        (("--hosts=hosts.toml",), "hosts.toml: No such file or directory"),
        (("--model=my model",), "model is 'my model', must be letters, digits"),
    ],
)
def test_bad_input_is_told_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments, "--", "true")
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert not list(tmp_path.iterdir())


def test_a_profile_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["add", "mine", "--rack=1", "--network=2", "--gpus=2", "--out", str(tmp_path)])
    result = invoke("--resume", "--out", tmp_path, "--", "true")
    assert (
        result.output
        == f"profile-models: {tmp_path}/mine.json exists; `profile-models remove` takes it away\n"
    )


def test_a_dry_run_prints_a_line_for_each_machine_and_touches_nothing(tmp_path: Path) -> None:
    result = invoke("--gpus=4", "--dry-run", "--out", tmp_path / "out", "--", "torchrun", "train.py")

    lines = [line for line in result.output.splitlines() if line.startswith("ip netns exec ")]
    assert [line.split()[3] for line in lines] == [
        "r1h1",
        "r1h2",
        "r1h1",
        "r2h1",
        "r1h1",
        *("r1h2", "r2h1", "r2h2", "r1h1"),
    ]
    assert not (tmp_path / "out").exists()


@pytest.fixture
def hosts_file(tmp_path: Path) -> Iterator[Path]:
    """Two hosts of a rack, each with an sshd of its own on this machine."""
    with ExitStack() as stack:
        sshds = [stack.enter_context(running_sshd(name, tmp_path / name)) for name in ("h1", "h2")]
        (tmp_path / "known_hosts").write_text("".join(sshd.known for sshd in sshds))
        (tmp_path / "hosts.toml").write_text(
            'known_hosts = "known_hosts"\n' + "".join(f"{sshd.table}gpus = 2\n" for sshd in sshds)
        )
        yield tmp_path / "hosts.toml"


def test_hosts_are_measured_over_ssh(hosts_file: Path, tmp_path: Path) -> None:
    training = script(tmp_path, f"OUT={tmp_path}\n{PARTS}{PRINTS}sleep 10000\n")
    place = ("--hosts", hosts_file, "--out", tmp_path / "out")

    done = run("run", "--model=mine", *FEW, *place, "--", training, "{machines}")

    assert done.returncode == 0, done.stderr
    assert step_s(tmp_path / "out") == {"machine-1x2": 0.5, "rack-2x1": 0.5}
    said = [(tmp_path / f"part-{rank}-of-2").read_text() for rank in (0, 1)]
    assert said == [f"{rank} of 2 in {Path.cwd()} on \n" for rank in (0, 1)]


def test_under_slurm_each_shape_is_a_job_whose_nodes_are_told_their_part(local_slurm: LocalSlurm) -> None:
    training = script(local_slurm.work, f"OUT={local_slurm.work}\n{PARTS}{PRINTS}sleep 10000\n")
    out = local_slurm.work / "out"
    place = ("--slurm", "--shapes=1x2,network-2x1", "--out", out)
    command = ("run", "--model=mine", *FEW, *place, "--", training, "{machines}")

    done = run(*command, env=local_slurm.environment)

    assert done.returncode == 0, done.stderr
    assert step_s(out) == {"machine-1x2": 0.5, "network-2x1": 0.5}
    (profile,) = load_profiles(out).profiles
    assert profile.provenance.mode is ProfileMode.GIVEN
    (folder,) = (out / "steps").iterdir()
    hosts = json.loads((folder / "network-2x1.json").read_text())["run"]["hosts"]
    said = [(local_slurm.work / f"part-{rank}-of-2").read_text() for rank in (0, 1)]
    assert said == [f"{rank} of 2 in {Path.cwd()} on {host}\n" for rank, host in enumerate(hosts)]
    assert local_slurm.run("squeue", "--noheader", "--states=PENDING,RUNNING") == ""
