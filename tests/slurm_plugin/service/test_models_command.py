"""`dally models`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from dally.profiles.files import shipped_sets


def models(folder: Path, *arguments: str, profiles: str | None = "testbed") -> Result:
    """What the command says on a site with these profiles; None: without a configuration."""
    config = folder / "dally.toml"
    if profiles is not None:
        config.write_text(f'partitions = ["gpu"]\nprofiles = "{profiles}"\n')
    return CliRunner().invoke(main, ["models", "--config", str(config), *arguments])


def test_each_model_of_the_site_is_a_line_with_what_was_measured_and_its_flags_follow(tmp_path: Path) -> None:
    heads, *lines = models(tmp_path).stdout.splitlines()
    assert heads.split() == [
        *("MODEL", "GPU", "TYPE", "MODE", "PLAN", "PRECISION", "BATCH"),
        *("MACHINE", "RACK", "NETWORK", "ERROR", "MEASURED"),
    ]
    named = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert named == ["alexnet", "bert-base", "mobilenetv3", "resnet18", "resnet50"]
    resnet50 = next(line for line in lines if line.startswith("resnet50"))
    assert resnet50.split()[:7] == ["resnet50", "any", "emulated", "-", "-", "128", "1x1,1x2"]
    assert "2x1,4x2 2.77" in resnet50
    assert "    network-4x2: partial, the run did not finish" in lines


def test_models_that_need_no_profile_are_told(tmp_path: Path) -> None:
    assert "jobs with --parallel need no profile: gpt-175b, llama3-8b, " in models(tmp_path).stderr
    assert (
        models(tmp_path, "llama3-8b")
        .output.rstrip()
        .endswith("with --parallel, jobs that train it need none")
    )


def test_models_can_be_named(tmp_path: Path) -> None:
    assert [line.split()[0] for line in models(tmp_path, "alexnet").stdout.splitlines()] == [
        "MODEL",
        "alexnet",
    ]


def test_other_profiles_than_the_sites_show_too_and_need_no_site(tmp_path: Path) -> None:
    entries = json.loads(models(tmp_path, "--profiles", "pollux", "--json", "bert", profiles=None).stdout)
    assert [(each["model"], each["gpu_type"], each["mode"]) for each in entries] == [
        ("bert", "t4", "imported")
    ]
    machine, rack = entries[0]["tiers"]
    assert (machine["tier"], machine["shapes"][0]) == ("machine", "1x2")
    assert rack["slowdown"] > machine["slowdown"] > 1
    assert entries[0]["held_out_error"] > 0


@pytest.mark.parametrize(
    ("profiles", "arguments", "said"),
    [
        ("testbed", ["resnet5O"], "no profile of model resnet5O in testbed; there are alexnet, bert-base, "),
        ("", [], "names no profiles, so Dally knows no model here; measure yours with profile-models"),
        (None, [], "cannot read the configuration"),
        ("/no/such/folder", [], "no profile set or path /no/such/folder"),
    ],
)
def test_what_is_missing_is_told_in_one_line(
    tmp_path: Path, profiles: str | None, arguments: list[str], said: str
) -> None:
    result = models(tmp_path, *arguments, profiles=profiles)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", shipped_sets())
def test_every_shipped_set_shows(tmp_path: Path, name: str) -> None:
    assert models(tmp_path, "--profiles", name).exit_code == 0
