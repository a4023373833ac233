"""`dally status`, and what all commands say when nobody answers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally import __version__
from dally.commands import main
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.service.cli import lasting
from tests.slurm_plugin.answering import answering, without_munge
from tests.slurm_plugin.daemons import DaemonSite
from tests.slurm_plugin.service.test_queue_command import busy


def status(site: DaemonSite, *arguments: str, before: Callable[[], object] = lambda: None) -> Result:
    results: list[Result] = []
    site.run(before, lambda: results.append(site.dally("status", *arguments)))
    return results[0]


def test_it_shows_mode_cycle_jobs_gpus_and_timers(tmp_path: Path) -> None:
    result = status(busy(tmp_path))
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, f"controller normal mode, well; Dally {__version__}")
    assert lines[1] == ("policy     dally:timers=manual,machine=1,rack=2,lease_s=100, partitions gpu")
    assert lines.pop(2) == "run times  limits, until 50 jobs have ended; 0 so far"
    assert lines[2].startswith("last cycle ")
    assert lines[3] == "jobs       1 running, 1 pending, 1 ineligible"
    assert lines[4] == "GPUs       32 on 4 nodes: 32 used by Dally's jobs, 0 free, 0 unavailable"
    assert lines[5:] == [
        "timers     16 GPUs: machine 100s, rack 3m",
        "           32 GPUs: machine 100s, rack 3m",
    ]


def test_problems_are_shown_and_forgotten_by_nobody(tmp_path: Path) -> None:
    site = busy(tmp_path)
    result = status(site, before=lambda: setattr(site.slurm, "unavailable", True))
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("problems")]
    assert line.endswith("slurm_unavailable: squeue: Unable to contact slurm controller (connect failure)")


def test_a_journal_that_was_damaged_meanwhile_is_among_the_problems(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, listen="127.0.0.1:0")
    said: list[str] = []

    def damage() -> None:
        (site.state / "journal.sqlite").write_bytes(b"garbage" * 1000)

    site.run(damage, lambda: said.append(site.dally("status").stdout))
    assert "journal_lost: the journal was broken" in said[0]
    assert [event["event"] for event in site.events("journal_lost")] == ["journal_lost"]


def test_a_shadow_says_that_it_is_one_and_exits_3(tmp_path: Path) -> None:
    site = busy(tmp_path)
    site.mode = ControllerMode(shadow=True)
    result = status(site)
    assert result.exit_code == 3
    assert result.stdout.startswith("controller shadow mode, NOT WELL: shadow mode starts no jobs")


def test_json_has_all(tmp_path: Path) -> None:
    said = json.loads(status(busy(tmp_path), "--json").stdout)
    assert (said["mode"], said["gpus"]["total"], said["jobs"]["ineligible"]) == ("normal", 32, 1)


COMMANDS = (["queue"], ["queue", "--json"], ["status"], ["status", "--json"], ["why", "17"])


def ask(folder: Path, command: list[str], url: str) -> Result:
    (folder / "dally.toml").write_text(f'partitions = ["gpu"]\n{without_munge(folder)}url = "{url}"\n')
    return CliRunner().invoke(main, [*command, "--config", str(folder / "dally.toml")])


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_controller_there_is_one_line_that_names_its_address(
    tmp_path: Path, command: list[str]
) -> None:
    result = ask(tmp_path, command, "http://127.0.0.1:9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "dally: no controller answers at http://127.0.0.1:9: Connection refused\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_without_an_address_there_is_one_line_that_says_so(tmp_path: Path, command: list[str]) -> None:
    result = ask(tmp_path, command, "")
    assert result.stderr.endswith("dally.toml: url is empty, so the controller's address is not known\n")


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff"])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_controller_is_said_to_be_none(tmp_path: Path, command: list[str], body: bytes) -> None:
    with answering(200, body) as url:
        result = ask(tmp_path, command, url)
    assert result.stderr == f"dally: what answers at {url} is no controller of Dally's\n"


def test_what_a_controller_says_against_it_is_one_clean_line(tmp_path: Path) -> None:
    with answering(503, b'{"error": "no\\nway \\u001b[2J"}') as url:
        result = ask(tmp_path, ["queue"], url)
    assert result.stderr == f"dally: the controller at {url} says: no way ?[2J\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (119, "119s"), (120, "2m"), (3599, "59m"), (3660, "1h01m"), (90_000, "1d01h"), (-5, "0s")],
)
def test_time_spans_are_short(seconds: float, text: str) -> None:
    assert lasting(seconds) == text
