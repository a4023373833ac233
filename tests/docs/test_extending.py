"""The package that docs/extending.md describes works as the page has it, and fails in one clear line."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {
    found[1]: found[2]
    for kind, text in BLOCKS
    if kind != "bash" and (found := re.match(r"# (\S+)\n(.*)", text, re.DOTALL))
}
"""The blocks whose first line names a file."""
COMMANDS = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's package, installed: its files, and what pip makes of its entry points."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = next(tomllib.loads(text) for kind, text in BLOCKS if kind == "toml")["project"]
    installed = tmp_path / "my_site-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(line)
    profile_models = "from profiler.commands import main; main(prog_name='profile-models')"
    modules = {"dally": ("-m", "dally"), "profile-models": ("-c", profile_models), "python": ()}
    return subprocess.run(
        [sys.executable, *modules[program], *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_commands_of_the_page_work_one_after_the_other(folder: Path) -> None:
    said = {line: run(folder, line) for line in COMMANDS}
    assert len(said) == 5
    for line, done in said.items():
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    shown, simulated, imported, profiled, contract = (done.stdout for done in said.values())
    assert "bookings" in shown
    assert "uses no GPU" in shown
    assert simulated
    assert "resnet50" in imported
    assert profiled
    passed = re.search(r"(\d+) passed", contract)
    assert passed
    assert int(passed[1]) > 30


def test_the_configuration_takes_the_backend_and_no_unknown_one(folder: Path) -> None:
    (folder / "ask.py").write_text(
        "from pathlib import Path\n"
        "from slurm_plugin.client.backends import open_slurm\n"
        "from slurm_plugin.config import load_config\n"
        "print(open_slurm(load_config(Path('dally.toml')).backend))\n"
    )
    done = run(folder, "python ask.py")
    assert "my_site.audited.AuditedSlurm object" in done.stdout, done.stderr
    (folder / "dally.toml").write_text('partitions = ["gpu"]\nbackend = "lost"\n')
    refused = run(folder, "python ask.py")
    assert "backend is 'lost', must be command-line, pyslurm, auto or audited" in refused.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "command", "message"),
    [
        (
            "my_site/bookings.py",
            '    seconds = 60 * number(minutes, "minutes")',
            "    seconds = 60 / 0",
            COMMANDS[0],
            r"dally: dally\.trace_formats 'bookings' \(my_site\.bookings, line \d+\) is broken: "
            "ZeroDivisionError: division by zero",
        ),
        (
            "my_site/bookings.py",
            'BOOKINGS = TraceFormat("bookings", lambda first_line: first_line == HEADER, read, dated=True)',
            "BOOKINGS = read",
            COMMANDS[0],
            r"dally: dally\.trace_formats 'bookings' is broken: <function read .*> is no TraceFormat",
        ),
        (
            "my_site/timings.py",
            "import csv",
            "import csvs",
            COMMANDS[2],
            r"profile-models: dally\.profile_importers 'timings' \(my_site\.timings, line 1\) is broken: "
            "ModuleNotFoundError: No module named 'csvs'",
        ),
        (
            "my_site/timings.py",
            "for row in csv.DictReader(file):",
            "for row in ():",
            COMMANDS[2],
            r"profile-models: dally\.profile_importers 'timings' is broken: it gave no profiles",
        ),
        (
            "my_site/audited.py",
            "super().__init__(slurm or CommandLine())",
            "raise KeyError('site')",
            "python -c \"from slurm_plugin.client.backends import open_slurm; open_slurm('audited')\"",
            r"dally\.extensions\.ExtensionError: dally\.slurm_backends 'audited' \(my_site\.audited, "
            r"line \d+\) is broken: KeyError: 'site'",
        ),
    ],
    ids=["format fails", "format is none", "importer is not found", "importer gives none", "backend fails"],
)
def test_a_broken_extension_is_one_line_that_names_it(
    folder: Path, name: str, old: str, new: str, command: str, message: str
) -> None:
    assert old in FILES[name]
    (folder / name).write_text(FILES[name].replace(old, new), encoding="utf-8")
    done = run(folder, command)
    assert done.returncode != 0
    assert re.fullmatch(message, done.stderr.splitlines()[-1]), done.stderr
    assert command.startswith("python") or done.stderr.count("\n") == 1


def test_a_wrong_row_of_another_package_s_format_is_named_by_its_line(folder: Path) -> None:
    with (folder / "bookings.txt").open("a", encoding="utf-8") as file:
        file.write("a20;2026-03-02T08:10:00;many;30\n")
    done = run(folder, COMMANDS[0])
    assert "bookings.txt, line 5: gpus is 'many', must be a whole number" in done.stderr


def test_without_the_package_its_format_is_unknown(folder: Path) -> None:
    (folder / "my_site-1.0.dist-info" / "entry_points.txt").unlink()
    done = run(folder, COMMANDS[0])
    assert "fits no trace format; formats: helios, csv, sacct, swf, philly" in done.stderr
