import sys
from dataclasses import replace

import pytest

from dally.hosts.processes import Command, run_together
from dally.profiles.schema import PointShape
from profiler.launch.rank_commands import rank_argv
from profiler.launch.slurm import Allocation, SlurmClient
from profiler.launch.slurm_nodes import PartitionNode, SlurmError
from profiler.spec import MeasurementRun, parse_spec
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.patience import LONGEST_S
from tests.profiler.driver.worlds import make_run

TELL = (
    "import os; from workloads.settings import Backend; from profiler.rank.slurm_rank import set_rank; "
    "set_rank(os.environ, Backend.GLOO); "
    "print(*(os.environ[name] for name in ('RANK', 'DALLY_HOST', 'LOCAL_RANK', 'WORLD_SIZE')))"
)
"""What a rank does to find its place, and where it really is."""


def run_on(*hosts: str, ranks: int = 2) -> MeasurementRun:
    shape = PointShape(len(hosts), ranks, "blocked", len(hosts))
    return MeasurementRun(f"network-{len(hosts)}x{ranks}", "network", shape, hosts, None, make_run().spec)


def slurm(local_slurm: LocalSlurm | None = None, version: tuple[int, int] = (22, 5)) -> SlurmClient:
    names = local_slurm.spec.node_names() if local_slurm else ("n1", "n2", "n3")
    nodes = {name: PartitionNode(name, "127.0.0.1", 0.0) for name in names}
    return SlurmClient(
        nodes, None if local_slurm else "gpu", 90.0, local_slurm.version() if local_slurm else version
    )


@pytest.fixture
def client(slurm_of_any_topology: LocalSlurm, monkeypatch: pytest.MonkeyPatch) -> LocalSlurm:
    for name, value in slurm_of_any_topology.environment.items():
        monkeypatch.setenv(name, value)
    return slurm_of_any_topology


def test_srun_by_itself_gets_whole_nodes_by_leaving_out_all_others() -> None:
    run = run_on("n3", "n1")

    (command,) = slurm().commands(run)

    assert {
        "--partition=gpu",
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--exclude=n2",
        "--gres=gpu:2",
        "--exclusive",
        "--kill-on-bad-exit=1",
        "--time=2",
    } <= set(command.argv)
    assert len(command.argv) == len(set(command.argv))
    assert command.env["DALLY_RANK_HOSTS"] == "n3,n1"
    assert command.env["MASTER_ADDR"] == "127.0.0.1"
    assert parse_spec(command.argv[-1]) == run.spec


def test_in_a_job_srun_asks_for_nothing_that_the_job_has_asked_for() -> None:
    (command,) = replace(slurm(), job="12").commands(run_on("n3", "n1"))

    assert "--jobid=12" in command.argv
    assert not any(word.startswith(("--exclude", "--partition", "--time")) for word in command.argv)


@pytest.mark.parametrize(("version", "there"), [((22, 5), False), ((23, 11), False), ((24, 5), True)])
def test_nodes_may_lie_in_any_blocks_where_slurm_can_be_told(version: tuple[int, int], there: bool) -> None:
    assert ("--segment=1" in slurm(version=version).job_options(run_on("n3", "n1"))) is there


def test_all_nodes_of_a_partition_leave_none_out() -> None:
    assert not any("--exclude" in word for word in slurm().job_options(run_on("n1", "n2", "n3")))


def told_by(command: Command, run: MeasurementRun) -> tuple[str, ...]:
    """The command with ranks that only tell where they are."""
    return (*command.argv[: -len(rank_argv(run))], sys.executable, "-c", TELL)


@pytest.mark.parametrize("hosts", [("n3", "n1"), ("n2", "n1"), ("n5", "n6", "n1", "n2")])
def test_a_real_slurm_puts_each_rank_on_the_host_that_the_run_says(
    client: LocalSlurm, hosts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_DISTRIBUTION", "cyclic")  # a site's own order must not count
    told: list[str] = []
    cluster, run = slurm(client), run_on(*hosts)
    allocation = Allocation(cluster.job_options(run))
    try:
        assert set(allocation.wait(LONGEST_S) or ()) == set(hosts)
        (command,) = replace(cluster, job=allocation.job).commands(run)
        command = replace(command, argv=told_by(command, run))
        run_together([command], cluster.start, told.append, LONGEST_S)
    finally:
        allocation.stop()

    size = 2 * len(hosts)
    wanted = [f"{rank} {hosts[rank // 2]} {rank % 2} {size}" for rank in range(size)]
    assert sorted(told, key=lambda line: int(line.split()[0])) == wanted
    client.wait_for(lambda: client.run("squeue", "-h") == "", "the job to be gone")


def test_the_line_of_a_dry_run_does_the_same_alone(client: LocalSlurm) -> None:
    told: list[str] = []
    run = run_on("n3", "n1")
    (command,) = slurm(client).commands(run)
    alone = Command("srun", told_by(command, run), command.env)

    run_together([alone], slurm(client).start, told.append, LONGEST_S)

    assert sorted(told) == ["0 n3 0 4", "1 n3 1 4", "2 n1 0 4", "3 n1 1 4"]


def test_a_job_that_waits_tells_its_number_and_is_gone_when_it_is_stopped(
    local_slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(local_slurm.spec.conf))
    local_slurm.run("sbatch", "-wn1", "--exclusive", "--wrap", "sleep 300")
    allocation = Allocation(slurm(local_slurm).job_options(run_on("n1")))
    local_slurm.wait_for(
        lambda: "PENDING" in local_slurm.run("squeue", "-h", "-o%T", "-n", "profile-network-1x2"), "the job"
    )

    while allocation.job is None:
        assert allocation.wait(0.1) is None
    assert allocation.job == local_slurm.run("squeue", "-h", "-o%i", "-n", "profile-network-1x2").strip()
    allocation.stop()

    assert local_slurm.run("squeue", "-h", "-n", "profile-network-1x2") == ""


def test_a_job_that_is_refused_or_cancelled_says_so(
    local_slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(local_slurm.spec.conf))
    refused = Allocation(slurm(local_slurm).job_options(run_on("n1", ranks=9)))
    with pytest.raises(SlurmError, match="Requested node configuration is not available"):
        refused.wait(LONGEST_S)
    refused.stop()

    local_slurm.run("sbatch", "-wn1", "--exclusive", "--wrap", "sleep 300")
    cancelled = Allocation(slurm(local_slurm).job_options(run_on("n1")))
    local_slurm.wait_for(
        lambda: "PENDING" in local_slurm.run("squeue", "-h", "-o%T", "-n", "profile-network-1x2"), "the job"
    )
    local_slurm.run("scancel", "--name=profile-network-1x2")
    with pytest.raises(SlurmError, match=r"salloc: job \d+ left the queue: "):
        cancelled.wait(LONGEST_S)
    cancelled.stop()
