import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dally.errors import InputError
from slurm_plugin.client.backends import open_slurm, pyslurm_problem
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.pyslurm_backend import PyslurmSlurm

MODULE = """
import os
from tests.slurm_plugin.mock_pyslurm import ERRORS, RPCError
globals().update(ERRORS)
__version__ = "{version}"
cut = os.environ.get("SLURM_BITSTR_LEN")
"""


Write = Callable[[str], None]


@pytest.fixture
def pyslurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module pyslurm that this process and its children import."""

    def write(source: str) -> None:
        (tmp_path / "pyslurm.py").write_text(source, encoding="utf-8")

    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    monkeypatch.setenv("SLURM_BITSTR_LEN", "64")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyslurm", raising=False)
    yield write
    sys.modules.pop("pyslurm", None)


@pytest.mark.parametrize("name", ["command-line", "auto"])
def test_the_command_line_is_taken_without_a_look_at_pyslurm(pyslurm: Write, name: str) -> None:
    pyslurm(MODULE.format(version="25.11.2"))
    assert isinstance(open_slurm(name), CommandLine)


def test_pyslurm_is_taken_where_it_is_asked_for_and_works(pyslurm: Write) -> None:
    pyslurm(MODULE.format(version="25.11.2"))
    assert isinstance(open_slurm("pyslurm"), PyslurmSlurm)


def test_task_lists_are_not_cut(pyslurm: Write) -> None:
    pyslurm(MODULE.format(version="25.11.2"))
    open_slurm("pyslurm")
    assert sys.modules["pyslurm"].cut == "0"


BROKEN = {
    "raise ImportError('libslurm.so.44 is missing')": "libslurm.so.44 is missing",
    "raise SystemExit(1)": "ended Python with exit code 1",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "ended Python with exit code -9",
    MODULE.format(version="24.5.0"): "version 24.5.0, must be 25.11",
}


@pytest.mark.parametrize("source", BROKEN)
def test_pyslurm_that_does_not_work_here_is_an_error_when_asked_for_by_name(
    pyslurm: Write, source: str
) -> None:
    pyslurm(source)
    with pytest.raises(InputError, match=r"(?s).*" + BROKEN[source] + r".*pip install '\.\[pyslurm\]'"):
        open_slurm("pyslurm")


@pytest.mark.parametrize("source", BROKEN)
def test_auto_takes_the_command_line_where_pyslurm_does_not_work(pyslurm: Write, source: str) -> None:
    pyslurm(source)
    assert isinstance(open_slurm("auto"), CommandLine)


def test_an_import_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: object, timeout: float, **options: object) -> None:
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert pyslurm_problem() == "importing it took more than 30 s"
