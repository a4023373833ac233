"""`dally slurm install` and `uninstall`: write what is missing, touch nothing else, and leave no trace."""

import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dally.atomic_file import write_atomically
from dally.commands import main
from dally.errors import InputError
from slurm_plugin.admin import install as install_module
from slurm_plugin.admin.checks.gather import own_file
from slurm_plugin.admin.install import UNITS, InstallTarget, install, plan_install
from slurm_plugin.admin.installed import plan_uninstall, read_manifest, uninstall
from slurm_plugin.config import load_config
from slurm_plugin.submit.hints import Mode

CONF = "ClusterName=lab\nNodeName=n[1-8] Gres=gpu:h100:8\n"
TOPOLOGY = "SwitchName=r1 Nodes=n[1-4]\nSwitchName=r2 Nodes=n[5-8]\nSwitchName=top Switches=r[1-2]\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with Slurm and a configuration, before Dally."""
    for name in ("slurm", "units", "dally"):
        (tmp_path / name).mkdir()
    (tmp_path / "slurm/slurm.conf").write_text(CONF)
    (tmp_path / "slurm/topology.conf").write_text(TOPOLOGY)
    configure(tmp_path)
    return tmp_path


def configure(root: Path, more: str = "") -> None:
    (root / "dally/dally.toml").write_text(
        f'partitions = ["gpu"]\ncluster = "{root}/slurm"\nstate_dir = "{root}/state"\n{more}'
    )


def target(root: Path, mode: Mode = "hold", user: str = "dally-nobody") -> InstallTarget:
    return InstallTarget(
        root / "dally/dally.toml", root / "slurm", root / "units", Path("/opt/bin/dally"), user, mode
    )


def installed(root: Path) -> InstallTarget:
    install(plan_install(target(root)))
    return target(root)


def tree(root: Path) -> dict[str, str]:
    """Every file with its text, and every folder."""
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else "" for path in root.rglob("*")
    }


def test_all_files_are_written_and_nothing_else_is_touched(root: Path) -> None:
    before = tree(root)
    installed(root)
    after = tree(root)
    new = {"dally/installed.json", "slurm/job_submit.lua", "slurm/dally_site.lua", "state"}
    assert after.keys() - before.keys() == new | {f"units/{name}" for name in UNITS}
    assert {name: after[name] for name in before} == before
    assert after["slurm/job_submit.lua"] == own_file("job_submit.lua")
    assert '["gpu"] = true' in after["slurm/dally_site.lua"]
    assert stat.S_IMODE((root / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "slurm/job_submit.lua").stat().st_mode) == 0o644


def test_planning_changes_nothing(root: Path) -> None:
    before = tree(root)
    plan_install(target(root))
    assert tree(root) == before


def test_installing_twice_changes_nothing(root: Path) -> None:
    installed(root)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    plan = plan_install(target(root))
    assert (plan.files, plan.folders) == ({}, {})
    install(plan)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times


def test_a_changed_configuration_renews_what_depends_on_it(root: Path) -> None:
    installed(root)
    configure(root)
    path = root / "dally/dally.toml"
    path.write_text(path.read_text().replace('"gpu"', '"gpu", "long"'))
    plan = plan_install(target(root))
    assert list(plan.files) == [root / "slurm/dally_site.lua"]
    install(plan)
    assert '["long"] = true' in (root / "slurm/dally_site.lua").read_text()


def test_without_a_configuration_the_example_is_written_and_to_be_edited(root: Path) -> None:
    (root / "dally/dally.toml").unlink()
    plan = plan_install(
        InstallTarget(root / "dally/dally.toml", root / "slurm", root / "units", Path("/d"), mode="hint")
    )
    install(plan)
    assert (root / "dally/dally.toml").read_text() == own_file("dally.toml")
    assert plan.next_steps[0].startswith(f"edit `partitions` in {root}/dally/dally.toml")


def test_the_configuration_names_the_controllers_user(root: Path) -> None:
    told = "write user = 'dally-nobody' into"
    assert any(step.startswith(told) for step in plan_install(target(root)).next_steps)
    configure(root, 'user = "dally-nobody"\n')
    assert not any(step.startswith(told) for step in plan_install(target(root)).next_steps)
    (root / "dally/dally.toml").unlink()
    install(plan_install(target(root, "hint")))
    assert load_config(root / "dally/dally.toml").user == "dally-nobody"


def test_units_name_this_sites_command_configuration_user_and_folder(root: Path) -> None:
    installed(root)
    text = (root / "units/dally-controller.service").read_text()
    assert f"ExecStart=/opt/bin/dally controller --config {root}/dally/dally.toml\n" in text
    assert "User=dally-nobody\n" in text
    assert f"ReadWritePaths={root}/state\n" in text
    assert "StateDirectory" not in text


def test_a_folder_below_var_lib_is_left_to_systemd(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_module, "_STATE_ROOT", root)
    installed(root)
    assert "StateDirectory=state\n" in (root / "units/dally-controller.service").read_text()


def test_hint_mode_needs_no_controller_and_gives_slowdowns(root: Path) -> None:
    configure(root, 'profiles = "realistic"\n')
    install(plan_install(target(root, "hint")))
    text = (root / "slurm/dally_site.lua").read_text()
    assert 'mode = "hint"' in text
    assert re.search(r'slowdowns = \{ \["[\w.-]+"\] = [1-9]\.\d', text)
    assert not list((root / "units").iterdir())
    assert not (root / "state").exists()


def test_a_job_submit_of_the_site_stays_and_is_told_how_to_call_ours(root: Path) -> None:
    own = root / "slurm/job_submit.lua"
    own.write_text("-- the site's\n")
    plan = plan_install(target(root))
    install(plan)
    assert own.read_text() == "-- the site's\n"
    ours = root / "slurm/dally/job_submit.lua"
    assert ours.read_text() == own_file("job_submit.lua")
    assert ours.with_name("dally_site.lua").exists()
    assert any(str(ours) in step for step in plan.next_steps)


@pytest.mark.parametrize("name", ["slurm/dally_site.lua", "units/dally-deadman.timer"])
def test_a_file_that_is_not_dallys_stops_everything(root: Path, name: str) -> None:
    (root / name).write_text("mine")
    before = tree(root)
    with pytest.raises(InputError, match=f"{name} is in the way: it is not Dally's"):
        plan_install(target(root))
    assert tree(root) == before


def test_a_changed_file_is_not_written_over(root: Path) -> None:
    installed(root)
    (root / "units/dally-controller.service").write_text("changed")
    with pytest.raises(InputError, match="was changed since Dally wrote it"):
        plan_install(target(root))


def test_a_dangling_link_counts_as_not_dallys(root: Path) -> None:
    (root / "slurm/dally_site.lua").symlink_to(root / "nowhere")
    with pytest.raises(InputError, match="is in the way"):
        plan_install(target(root))


def test_another_mode_is_refused(root: Path) -> None:
    installed(root)
    with pytest.raises(InputError, match="hold mode is installed"):
        plan_install(target(root, "hint"))


@pytest.mark.parametrize("written", range(6))
def test_cut_off_anywhere_it_goes_on_and_can_be_taken_away(
    root: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    configured = tree(root)
    (root / "dally/dally.toml").unlink()
    configure(root)
    left = [written]

    def write(path: Path, text: str, mode: int = 0o644) -> None:
        if not left[0]:
            raise OSError("disk full")
        left[0] -= 1
        write_atomically(path, text, mode)

    with monkeypatch.context() as patch:
        patch.setattr(install_module, "write_atomically", write)
        if written < 5:
            with pytest.raises(OSError, match="disk full"):
                installed(root)
        else:
            installed(root)
    installed(root)
    assert len(read_manifest(target(root).manifest).files) == 5
    uninstall(plan_uninstall(target(root).config_path))
    assert tree(root) == configured


def test_uninstalling_leaves_the_machine_as_it_was(root: Path) -> None:
    before = tree(root)
    installed(root)
    assert uninstall(plan_uninstall(target(root).config_path)) == ()
    assert tree(root) == before


def test_what_was_changed_stays_and_is_told(root: Path) -> None:
    installed(root)
    unit = root / "units/dally-controller.service"
    unit.write_text("changed")
    (root / "units/dally-deadman.timer").unlink()
    (root / "state/journal").write_text("worth keeping")
    removal = plan_uninstall(target(root).config_path)
    assert removal.left == {unit: "changed since it was installed"}
    assert uninstall(removal) == (root / "state",)
    assert unit.read_text() == "changed"
    assert not (root / "units/dally-deadman.service").exists()


def test_nothing_installed_is_said(root: Path) -> None:
    with pytest.raises(InputError, match="nothing was installed"):
        plan_uninstall(target(root).config_path)


def test_a_broken_list_is_refused(root: Path) -> None:
    installed(root)
    target(root).manifest.write_text('{"mode": "hold"}')
    for plan in (lambda: plan_install(target(root)), lambda: plan_uninstall(target(root).config_path)):
        with pytest.raises(InputError, match="not a list of installed files"):
            plan()


def test_job_submit_stays_while_slurm_needs_it(root: Path) -> None:
    installed(root)
    (root / "slurm/slurm.conf").write_text(CONF + "JobSubmitPlugins=throttle,lua\n")
    with pytest.raises(InputError, match="still has JobSubmitPlugins=lua"):
        plan_uninstall(target(root).config_path)


def test_job_submit_stays_while_the_sites_own_calls_it(root: Path) -> None:
    (root / "slurm/job_submit.lua").write_text("-- the site's\n")
    installed(root)
    call = f'dofile("{root}/slurm/dally/job_submit.lua") -- \xe9\n'
    (root / "slurm/job_submit.lua").write_text(call, encoding="latin-1")
    with pytest.raises(InputError, match="still calls"):
        plan_uninstall(target(root).config_path)


@pytest.mark.parametrize(
    ("conf", "wait_s"),
    [
        (CONF, 300),
        (CONF + "SchedulerParameters=defer\n", 300),
        (CONF + "SchedulerParameters=bf_interval=1,max_switch_wait=7200\n", 7200),
    ],
)
def test_waits_end_where_slurm_cuts_them(root: Path, conf: str, wait_s: int) -> None:
    (root / "slurm/slurm.conf").write_text(conf)
    install(plan_install(target(root, "hint")))
    assert f"longest_s = {wait_s}," in (root / "slurm/dally_site.lua").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": "a b"}, "user is 'a b'"),
        ({"dally": Path("/opt/my dally")}, "/opt/my dally: must be an absolute path"),
        ({"dally": Path("dally")}, "dally: must be an absolute path"),
        ({"config_path": Path("/etc/%i.toml")}, "/etc/%i.toml: must be"),
    ],
)
def test_what_a_unit_could_misread_is_refused(root: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(target(root), **change)


def dally_slurm(root: Path, verb: str, *more: str) -> Result:
    arguments = ["slurm", verb, "--config", str(root / "dally/dally.toml"), *more]
    return CliRunner().invoke(main, arguments)


def install_options(root: Path) -> tuple[str, ...]:
    return ("--slurm-conf", str(root / "slurm"), "--units", str(root / "units"))


@pytest.fixture
def _on_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "bin").mkdir()
    (root / "bin/dally").write_text("#!/bin/sh\n")
    (root / "bin/dally").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/bin{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("_on_path")
def test_the_commands_tell_what_they_do_and_a_dry_run_does_nothing(root: Path) -> None:
    before = tree(root)
    result = dally_slurm(root, "install", *install_options(root), "--dry-run")
    assert result.exit_code == 0, result.output
    assert f"write  {root}/slurm/job_submit.lua" in result.stdout
    assert tree(root) == before
    result = dally_slurm(root, "install", *install_options(root))
    assert "add to slurm.conf: JobSubmitPlugins=lua" in result.stdout
    assert f"ExecStart={root}/bin/dally " in (root / "units/dally-controller.service").read_text()
    assert f"remove {root}/slurm/job_submit.lua" in dally_slurm(root, "uninstall", "--dry-run").stdout
    assert dally_slurm(root, "uninstall").exit_code == 0
    assert tree(root) == before


@pytest.mark.usefixtures("_on_path")
def test_slurm_conf_is_named_itself_or_by_its_folder(root: Path) -> None:
    named, by_folder = (
        dally_slurm(root, "install", "--dry-run", *install_options(root), "--slurm-conf", str(root / where))
        for where in ("slurm/slurm.conf", "slurm")
    )
    assert (named.exit_code, named.stdout) == (0, by_folder.stdout)


@pytest.mark.usefixtures("_on_path")
def test_a_folder_without_slurm_conf_is_refused_in_one_line(root: Path) -> None:
    result = dally_slurm(root, "install", "--slurm-conf", str(root / "units"))
    assert result.exit_code == 1
    assert result.stderr == f"dally: {root}/units has no slurm.conf; name its folder with --slurm-conf\n"


@pytest.mark.usefixtures("_on_path")
def test_outside_of_a_venv_it_says_that_names_may_collide(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--dry-run", *install_options(root))
    assert dally_slurm(root, "install", *options).stderr == ""
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert "give Dally a venv of its own" in dally_slurm(root, "install", *options).stderr
