import signal
from pathlib import Path

from dally.profiles.files import load_profiles
from profiler.commands.here import doubled_up_to
from tests.patience import wait_until
from tests.profiler.commands.real import SMALL, end, marked, run, start


def test_ranks_double_up_to_all() -> None:
    assert [doubled_up_to(most) for most in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


def test_interrupted_it_leaves_a_partial_file_and_no_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(tmp_path, "here", *SMALL, "--ranks=1", "--out", out)
    wait_until(lambda: bool(marked(tmp_path, "profiler.rank")), "the first run")

    said = end(process, signal.SIGINT)

    assert process.returncode == 130
    assert "machine-1x1: interrupted (0 of 1 model kept in" in said
    assert [path.name for path in (out / "raw").glob("*.jsonl")] == ["machine-1x1.partial.jsonl"]
    wait_until(lambda: not marked(tmp_path), "all ranks to be gone")


def test_killed_it_leaves_no_process_and_can_be_resumed(tmp_path: Path) -> None:
    """Then it leaves a profile of this machine; one of two ranks is made in `test_notebooks.py`."""
    out = tmp_path / "out"
    process = start(tmp_path, "here", *SMALL, "--ranks=1", "--out", out)
    wait_until(lambda: bool(marked(tmp_path, "profiler.rank")), "the first rank")

    end(process, signal.SIGKILL)

    wait_until(lambda: not marked(tmp_path), "all ranks to be gone")
    done = run("here", *SMALL, "--ranks=1", "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert "mobilenetv3 (emulated)" in done.stdout
    assert [path.name for path in (out / "raw").glob("*.jsonl")] == ["machine-1x1.jsonl"]
    (profile,) = load_profiles(out).profiles
    assert [point.shape.gpus for point in profile.tiers["machine"]] == [1]
