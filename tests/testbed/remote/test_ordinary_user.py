"""A Slurm of others used by an ordinary user who logs in with a key: what works, and what is refused."""

import json
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dally.hosts.hosts_file import read_hosts_file
from slurm_plugin.admin.checks.gather import own_file
from slurm_plugin.admin.checks.site import Level
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.orders import Rehold, ReleaseOnNodes, ReleaseToSlurm, Requeue, Reserve, Signal
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.local_cluster.cluster import ClusterError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.submit.hints import site_lua
from testbed.remote.existing_slurm import find_slurm
from testbed.remote.hosts import CommandLog, Hosts
from testbed.remote.rights import all_findings, find_rights
from tests.dally.hosts.sshd import running_sshd
from tests.patience import LONGEST_S, wait_until
from tests.testbed.remote.test_clusters import ONE_JOB, TINY_TFLOPS, assert_complete, dally
from tests.testbed.running.worlds import write_profile_folder

USER = "dally-carol"
ENFORCED = "EnforcePartLimits=ALL"
"""Without, 24.11 and later take a job for a partition that is closed to its user, and it waits for ever."""

CLOSED = "PartitionName=closed Nodes=n1 AllowGroups=root"
pytestmark = pytest.mark.slurm


@dataclass(frozen=True, slots=True)
class SeenLogin:
    """Somebody's account on a host: its home, and the hosts file with which to log in."""

    home: Path
    hosts_toml: Path

    @property
    def out(self) -> Path:
        """Where runs go, on this side."""
        return self.hosts_toml.parent / "out"


@pytest.fixture
def login() -> Iterator[SeenLogin]:
    """An ordinary user of this machine who may log in by SSH; both go with the test."""
    with TemporaryDirectory(prefix="dally-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        home = folder / "home"
        remove_user()  # one that a killed run of the tests has left
        order("useradd", "--create-home", f"--home-dir={home}", "--shell=/bin/sh", "--password=*", USER)
        try:
            with running_sshd("n1", folder / "n1") as daemon:
                (folder / "known").write_text(daemon.known)
                account = f'user = "{USER}"\npython = "{open_python(folder)}"\n'
                lines = [line for line in daemon.table.splitlines() if not line.startswith("user = ")]
                text = "\n".join(['known_hosts = "known"', *lines, account])
                (folder / "hosts.toml").write_text(text)
                yield SeenLogin(home, folder / "hosts.toml")
        finally:
            wait_until(lambda: not remove_user(), f"{USER} to be gone")


def order(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=LONGEST_S)


def remove_user() -> int:
    """The status of userdel, which refuses as long as the user has processes."""
    return subprocess.run(["userdel", USER], capture_output=True, timeout=LONGEST_S).returncode


def open_python(folder: Path) -> Path:
    """A command that runs the tests' Python for the user, whose own may lie in root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = os.pathsep.join(
        [str(Path(__file__).parents[3]), *(path for path in sys.path if "-packages" in path)]
    )
    found = sys.executable if may_run(sys.executable) else f"/usr/bin/{version}"
    assert may_run(found), f"an ordinary user can run neither {sys.executable} nor {found}"
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(packages)} exec {shlex.quote(found)} "$@"\n')
    path.chmod(0o755)
    return path


def may_run(program: str) -> bool:
    argv = ["su", USER, "-c", shlex.join([program, "-c", ""])]
    return subprocess.run(argv, capture_output=True, timeout=LONGEST_S).returncode == 0


def started(spec: LocalClusterSpec) -> Iterator[LocalSlurm]:
    local_slurm = LocalSlurm(spec)
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


@pytest.fixture
def roots_slurm(cluster_folder: Path, login: SeenLogin) -> Iterator[LocalSlurm]:
    """A Slurm of root's, with a partition that the user may not use."""
    yield from started(
        LocalClusterSpec(cluster_folder, nodes=2, racks=2, gpus=2, extra_conf=(CLOSED, ENFORCED))
    )


@pytest.fixture
def dallys_slurm(cluster_folder: Path, login: SeenLogin) -> Iterator[LocalSlurm]:
    """A Slurm whose partition `gpu` is scheduled by the site's own Dally."""
    files = {"job_submit.lua": own_file("job_submit.lua"), "dally_site.lua": site_lua(["gpu"], [])}
    yield from started(LocalClusterSpec(cluster_folder, nodes=2, racks=2, gpus=2, lua_files=files))


@pytest.fixture
def alices_slurm(cluster_folder: Path, login: SeenLogin) -> Iterator[LocalSlurm]:
    """A Slurm whose SlurmUser is the user, who so may do all."""
    work = cluster_folder / "work"
    files = ("StateSaveLocation", "SlurmctldLogFile", "SlurmctldPidFile", "JobCompLoc")
    conf = (f"SlurmUser={USER}", *(f"{name}={work}/{name}" for name in files))
    yield from started(LocalClusterSpec(cluster_folder, nodes=2, racks=2, gpus=2, extra_conf=conf))


def place(login: SeenLogin, local_slurm: LocalSlurm, partition: str) -> tuple[str | Path, ...]:
    folder = login.hosts_toml.parent
    there = ("--hosts", login.hosts_toml, "--partition", partition, "--work", login.home)
    return (*there, "--slurm-conf", local_slurm.spec.conf, "--logs", folder / "logs")


def connected(login: SeenLogin) -> Hosts:
    """Connections to the host, as the user, inside `with`."""
    return Hosts(read_hosts_file(login.hosts_toml), CommandLog(login.hosts_toml.parent / "logs"))


def run(
    login: SeenLogin, local_slurm: LocalSlurm, partition: str = "gpu"
) -> subprocess.CompletedProcess[str]:
    """Run a workload under fifo on the user's account."""
    folder = login.hosts_toml.parent
    (folder / "trace.csv").write_text(ONE_JOB)
    profiles = write_profile_folder(folder / "profiles")
    work = ("--workload", folder / "trace.csv", "--profiles", profiles, "--emulate", TINY_TFLOPS)
    ends = ("--policy", "fifo", "--out", login.out, "--existing")
    return dally("run", *work, *ends, *place(login, local_slurm, partition))


def test_an_ordinary_user_runs_a_workload_and_nothing_else_changes(
    login: SeenLogin, roots_slurm: LocalSlurm
) -> None:
    local_slurm = roots_slurm
    local_slurm.run("sbatch", "--hold", "--output=/dev/null", "--wrap=true")
    shown = [("scontrol", "show", what) for what in ("partition", "reservation")]
    before = [local_slurm.run(*argv) for argv in shown]
    done = run(login, local_slurm)
    assert done.returncode == 0, done.stderr
    assert f"note: {USER} is no operator: jobs of partitions closed, other may take nodes" in done.stderr
    assert_complete(login.out / "fifo", {"a"})
    assert [local_slurm.run(*argv) for argv in shown] == before
    assert local_slurm.run("squeue", "--noheader", "--format=%u %T") == "root PENDING\n"
    owners = {path.owner() for path in login.home.glob("out-fifo-*/**/*")}
    assert owners == {USER}


def test_what_the_user_may_not_do_is_said_beforehand(login: SeenLogin, roots_slurm: LocalSlurm) -> None:
    done = run(login, roots_slurm, "closed")
    assert (done.returncode, done.stderr.count("\n"), login.out.exists()) == (1, 1, False)
    assert f"{USER} may not run jobs in partition closed: User's group not permitted" in done.stderr
    assert "AllowGroups" in done.stderr
    roots_slurm.run("sbatch", "--hold", "--comment=dally:", "--output=/dev/null", "--wrap=true")
    done = run(login, roots_slurm)
    assert (done.returncode, done.stderr.count("\n"), login.out.exists()) == (1, 1, False)
    assert "partition gpu has jobs for Dally of root" in done.stderr
    found = dally("check", *place(login, roots_slurm, "other"), "--json")
    rows = {row["check"]: row for row in json.loads(found.stdout)}
    assert rows["jobs"]["found"] == f"{USER} may run jobs in partition other"
    assert (rows["rights"]["level"], rows["others"]["level"]) == ("warning", "ok")
    assert "without slurmdbd there are no operators" in rows["rights"]["advice"]


def test_beside_the_sites_own_dally_only_slurm_itself_can_run(
    login: SeenLogin, dallys_slurm: LocalSlurm
) -> None:
    with connected(login) as hosts:
        for partition, problems in (("gpu", {"jobs", "others"}), ("other", {"others"})):
            slurm = find_slurm(hosts, partition, login.home, conf=dallys_slurm.spec.conf)
            found = all_findings(find_rights(slurm))
            assert {name for name, each in found.items() if each.level is Level.PROBLEM} == problems


def test_with_the_rights_granted_dally_keeps_its_nodes_from_others(
    login: SeenLogin, alices_slurm: LocalSlurm
) -> None:
    done = run(login, alices_slurm)
    assert (done.returncode, "note: " in done.stderr) == (0, False), done.stderr
    events = (login.out / "fifo" / "controller.jsonl").read_text()
    assert '"order_refused"' not in events


def test_all_orders_for_ones_own_job_are_taken_but_for_the_fence(
    login: SeenLogin, roots_slurm: LocalSlurm
) -> None:
    account = pwd.getpwnam(USER)
    prefix = ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
    slurm = CommandLine(roots_slurm.environment, prefix)
    words = ("sbatch", "--parsable", "--hold", "--requeue", "--gpus=1", "--output=/dev/null")
    number = roots_slurm.run(*words, "--wrap=sleep 600", user=USER).strip()

    def job() -> SlurmJob:
        return next(each for each in slurm.jobs() if each.job_id == number)

    assert slurm.run([Reserve("dally_1_1", ("n2",), USER)]) == (
        "Error creating the reservation: Invalid user id",
    )
    assert slurm.run([ReleaseOnNodes(number, ("n2",))]) == (None,)
    wait_until(lambda: job().state is State.RUNNING, "the job to run")
    assert job().nodes == ("n2",)
    assert slurm.run([Signal(number, "CONT"), Requeue(number)]) == (None, None)
    wait_until(lambda: job().state is State.PENDING, "the job to wait")
    assert slurm.run([Rehold(number)]) == (None,)
    assert job().hold is Hold.USER
    assert slurm.run([ReleaseToSlurm(number, 1)]) == (None,)
    wait_until(lambda: job().state is State.RUNNING, "the job to run again")
    roots_slurm.run("scancel", number, user=USER)


def test_a_slurm_conf_that_the_user_cannot_read_is_named(login: SeenLogin) -> None:
    with (
        connected(login) as hosts,
        pytest.raises(ClusterError, match=f"^{USER} cannot read /etc/shadow on n1; have the administrator"),
    ):
        find_slurm(hosts, "gpu", login.home, conf=Path("/etc/shadow"))
