"""The files that Dally brings for sites: the example configuration is complete, the units are sound."""

import re
import subprocess
import tomllib
from configparser import ConfigParser
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from slurm_plugin.admin.checks.gather import own_file
from slurm_plugin.admin.install import UNITS, InstallTarget, install, plan_install
from slurm_plugin.config import Config, parse_config
from tests.patience import LONGEST_S

_KEY = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


def test_the_example_parses_to_the_defaults() -> None:
    assert parse_config(tomllib.loads(own_file("dally.toml"))) == Config(("gpu",))


def test_the_example_shows_every_key_with_its_default() -> None:
    shown = tomllib.loads("\n".join(_KEY.findall(own_file("dally.toml"))))
    defaults = {field.name: field.default for field in fields(Config) if field.default is not MISSING}
    assert shown == defaults


def test_every_key_of_the_example_has_a_comment_above() -> None:
    lines = own_file("dally.toml").splitlines()
    for number, line in enumerate(lines):
        if _KEY.match(line) or line.startswith("partitions"):
            assert re.match(r"# [A-Z.].*", lines[number - 1])


def unit(name: str) -> ConfigParser:
    """A unit; none gives a key twice, so a parser of INI files understands it."""
    parser = ConfigParser(interpolation=None)
    parser.read_string(own_file(name))
    return parser


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_a_description_and_known_sections(name: str) -> None:
    parser = unit(name)
    assert parser["Unit"]["Description"]
    assert set(parser.sections()) <= {"Unit", "Service", "Timer", "Install"}


def test_the_controller_is_restarted_and_unprivileged() -> None:
    service = unit("dally-controller.service")["Service"]
    assert service["ExecStart"] == "/usr/bin/dally controller --config /etc/dally/dally.toml"
    assert (service["User"], service["Restart"]) == ("dally", "always")
    assert (service["NoNewPrivileges"], service["CapabilityBoundingSet"]) == ("yes", "")


def test_the_deadman_hands_jobs_back_without_asking_and_sooner_than_he_is_late() -> None:
    command = unit("dally-deadman.service")["Service"]["ExecStart"]
    assert command.startswith("/usr/bin/dally release-all --if-silent-for 900 --yes ")
    minutes = re.fullmatch(r"(\d+)min", unit("dally-deadman.timer")["Timer"]["OnUnitActiveSec"])
    assert minutes is not None
    assert int(minutes[1]) * 60 < 900


def test_systemd_accepts_the_units_as_installed(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=n1 Gres=gpu:1\n")
    (tmp_path / "units").mkdir()
    (tmp_path / "dally.toml").write_text(f'partitions = ["gpu"]\nstate_dir = "{tmp_path}/state"\n')
    target = InstallTarget(tmp_path / "dally.toml", tmp_path, tmp_path / "units", Path("/bin/true"), "root")
    install(plan_install(target))
    units = [str(tmp_path / "units" / name) for name in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "dally" in line]
    assert (done.returncode, ours) == (0, [])
