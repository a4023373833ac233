"""The group of commands: what a wrong name and a failed import say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from dally.optional import MissingModuleError, import_optional


def dally(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(("typed", "meant"), [("simulat", "simulate"), ("polices", "policies")])
def test_a_mistyped_command_is_told_which_was_meant(typed: str, meant: str) -> None:
    done = dally(typed)
    assert done.exit_code == 2
    assert done.stderr.endswith(f"Error: No such command '{typed}'. Did you mean '{meant}'?\n")


def test_a_name_that_is_like_no_command_is_only_refused() -> None:
    assert dally("xyzzy").stderr.endswith("Error: No such command 'xyzzy'.\n")


@pytest.mark.parametrize(
    ("file", "place"), [("analysis/__init__.py", "analysis"), ("analysis.py", "analysis.py")]
)
def test_a_users_module_of_the_same_name_is_named(tmp_path: Path, file: str, place: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    argv = [sys.executable, "-P", "-m", "dally", "report", "runs"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"dally: analysis.report is not in analysis at {tmp_path / place}, which hides "
        "Dally's; take it off the Python path (PYTHONPATH, the current folder), or rename it\n"
    )


def test_a_package_that_is_missing_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draws.py").write_text("import matplotless.pyplot")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingModuleError) as caught:
        import_optional("draws", "analysis")
    assert str(caught.value) == (
        "the Python package matplotless is not installed; in Dally's folder: pip install '.[analysis]'"
    )


def test_a_package_that_is_broken_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halfdone.py").write_text("from json import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingModuleError, match=r"^json cannot be imported: cannot import name 'nothing_of"):
        import_optional("halfdone")


def test_a_name_that_is_no_text_is_told_in_a_line(tmp_path: Path) -> None:
    trace = tmp_path / os.fsdecode(b"\xe9.csv")
    trace.write_text("job_id,submit_s,gpus,duration_s\n1,0,8,100\n")
    out = str(tmp_path / "out")
    done = dally("simulate", f"--trace={trace}", "--cluster=demo", "--policy=fifo", f"--out={out}")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert r"\udce9.csv" in done.stderr
    assert done.stderr.endswith(" cannot be written in utf-8; rename it\n")
