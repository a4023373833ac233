"""`dally slurm doctor` tries the controller's orders on one job, on real Slurm, and leaves nothing."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.studies.accounting_database import add_accounting
from slurm_plugin.admin.checks.gather import gather, own_file
from slurm_plugin.admin.checks.site import Finding, Level
from slurm_plugin.admin.doctor import examine
from slurm_plugin.admin.trial import JOB_NAME, RESERVATION, try_orders
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.request import TRIAL, decode_job
from slurm_plugin.submit.hints import site_lua
from tests.patience import wait_until
from tests.slurm_plugin.live_site import LiveSite

USER = "dally-doctor"


@pytest.fixture
def guarded(cluster_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSlurm]:
    """A cluster on which all is well for a controller of an ordinary user."""
    make_user(USER)
    local_slurm = LocalSlurm(
        LocalClusterSpec(
            cluster_folder,
            nodes=2,
            racks=2,
            extra_conf=("RequeueExitHold=85", "PrivateData=jobs,usage,cloud"),
            lua_files={"job_submit.lua": own_file("job_submit.lua"), "dally_site.lua": exempting(USER)},
        )
    )
    local_slurm.start()
    for name, value in local_slurm.environment.items():
        monkeypatch.setenv(name, value)
    yield local_slurm
    local_slurm.stop()


def exempting(*users: str) -> str:
    return site_lua(["gpu"], [pwd.getpwnam(user).pw_uid for user in users])


def configured(local_slurm: LocalSlurm, user: str) -> Path:
    state_dir = local_slurm.spec.folder / "dally"
    state_dir.mkdir(mode=0o700)
    os.chown(state_dir, pwd.getpwnam(user).pw_uid, -1)
    config = local_slurm.work / "doctor.toml"
    conf_dir = local_slurm.spec.conf.parent
    config.write_text(f'partitions = ["gpu"]\ncluster = "{conf_dir}"\nurl = ""\nstate_dir = "{state_dir}"\n')
    return config


def found(config: Path) -> dict[str, Finding]:
    """What the doctor finds, but for what is fine or has nothing to do with rights."""
    site = gather(config)
    all_found = {**examine(site), **dict(try_orders(site))}
    return {
        name: each for name, each in all_found.items() if each.level is not Level.OK and name != "profiles"
    }


def trials(slurm: CommandLine) -> list[SlurmJob]:
    return [job for job in slurm.jobs() if job.job_name == JOB_NAME]


def assert_nothing_is_left(slurm: CommandLine) -> None:
    assert {job.state_name for job in trials(slurm)} == {"CANCELLED"}
    assert not slurm.reservations()


def test_a_well_site_is_well_and_each_missing_right_is_found(guarded: LocalSlurm) -> None:
    add_accounting(guarded, {"lab": (USER,)})
    with (guarded.spec.conf.parent / "slurmdbd.conf").open("a") as conf:
        conf.write("PrivateData=jobs\n")
    guarded.run("sacctmgr", "reconfigure")
    level = ("sacctmgr", "--immediate", "modify", "user", USER, "set")
    guarded.run(*level, "adminlevel=Operator")
    config, slurm = configured(guarded, USER), CommandLine()
    assert found(config) == {}
    assert {job.user for job in trials(slurm)} == {USER}
    assert_nothing_is_left(slurm)

    lua = guarded.spec.conf.with_name("dally_site.lua")
    lua.write_text(exempting())
    refused = found(config)
    assert refused.keys() == {"job_submit", "try place", "try hand back"}
    assert "Access/permission denied" in refused["try place"].found
    assert f"does not exempt {USER}" in refused["job_submit"].found
    assert_nothing_is_left(slurm)
    lua.write_text(exempting(USER))

    guarded.run(*level, "adminlevel=None")
    refused = found(config)
    assert [*refused] == ["rights", "hidden", "history", "try reserve", "try unreserve"]
    assert refused["history"].level is Level.WARNING
    assert_nothing_is_left(slurm)
    guarded.run(*level, "adminlevel=Operator")

    guarded.run("scontrol", "update", "PartitionName=gpu", "State=INACTIVE")
    refused = found(config)
    assert refused.keys() == {"partitions", "try submit"}
    assert "nothing can be tried in gpu" in refused["try submit"].found


def test_a_controller_at_work_leaves_the_trial_alone(guarded: LocalSlurm) -> None:
    live = LiveSite(guarded, ("gpu",))
    live.start_controller()
    try:
        config = guarded.work / "dally.toml"
        with_job = try_orders(gather(config))
        for name, finding in with_job:
            assert finding.level is Level.OK, (name, finding)
            live.cycles(2)
            assert live.managed() == {}
            for job in trials(live.slurm):
                assert TRIAL in job.admin_comment
                assert decode_job(job.comment, job.admin_comment) is None
                assert not job.nodes
    finally:
        live.end_controller()
    assert_nothing_is_left(live.slurm)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_the_doctor_early_has_its_job_cancelled(guarded: LocalSlurm, number: int) -> None:
    slurm, config = CommandLine(), configured(guarded, "root")
    slow, seen = guarded.work / "scontrol", guarded.work / "seen"
    real = shutil.which("scontrol", path=guarded.environment["PATH"])
    slow.write_text(f'#!/bin/sh\n[ "$3" = job ] && touch {seen} && sleep 600\nexec {real} "$@"\n')
    slow.chmod(0o755)
    path = {"PATH": f"{slow.parent}:{guarded.environment['PATH']}"}
    command = [sys.executable, "-m", "dally", "slurm", "doctor", "--config", str(config)]
    doctor = subprocess.Popen(command, env={**os.environ, **path}, stdout=subprocess.DEVNULL)
    wait_until(seen.exists, "the doctor to look at its job")
    assert [job.state for job in trials(slurm)] == [State.PENDING]
    doctor.send_signal(number)
    assert doctor.wait() == 1
    assert_nothing_is_left(slurm)


def test_what_a_killed_doctor_left_is_taken_away_by_the_next(guarded: LocalSlurm) -> None:
    slurm, config = CommandLine(), configured(guarded, "root")
    tried = try_orders(gather(config))
    names = [name for _, (name, _) in zip(range(8), tried, strict=False)]
    assert names[-1] == "try reserve"
    assert [job.nodes for job in trials(slurm)] == [()]
    assert [each.name for each in slurm.reservations()] == [RESERVATION]
    assert {each.level for _, each in try_orders(gather(config))} == {Level.OK}
    assert_nothing_is_left(slurm)
    tried.close()
