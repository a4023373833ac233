"""The controller starts on the files of ten kinds of sites, and places jobs on what it reads there."""

from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.cluster.slurm_conf import read_slurm_conf
from dally.cluster.slurm_gres import parse_gres
from tests.dally.cluster.sites import FOLDER, SITES
from tests.slurm_plugin.daemons import DaemonSite
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode


def nodes_of(site: str) -> tuple[FakeNode, ...]:
    """All nodes with GPUs as slurmctld would show them, also those that Dally leaves out."""
    lines = read_slurm_conf(FOLDER / site / "slurm.conf").nodes
    gpus = {name: parse_gres(line.values.get("gres", "")) for name, line in lines.items()}
    return tuple(FakeNode(name, sum(part.count for part in parts)) for name, parts in gpus.items() if parts)


def controlled(folder: Path, site: str) -> DaemonSite:
    """A controller's site over these files."""
    here = DaemonSite(folder, cluster=str(FOLDER / site))
    here.slurm = FakeSlurm(nodes_of(site), clock=lambda: here.now_s)
    return here


@pytest.mark.parametrize("site", SITES)
def test_a_controller_starts_on_a_sites_files_and_names_what_it_leaves_out(tmp_path: Path, site: str) -> None:
    here, cluster = controlled(tmp_path, site), load_cluster(FOLDER / site, absent=True)
    job = here.submit(gpus_per_node=1)
    here.run(lambda: None)
    (told,) = here.events("cluster")
    assert (told["nodes"], told["gpus"]) == (len(cluster.machines), cluster.gpus)
    named = {name for each in cluster.left_out for name in each.names}
    assert set(told["unknown"]) <= named
    assert told["left_out"].startswith("left out") == bool(named)
    assert here.states()[job] == "RUNNING"


def test_a_gang_stays_within_one_of_several_networks(tmp_path: Path) -> None:
    here = controlled(tmp_path, "cloud_fabrics")
    fill = here.submit(nodes=7, gpus_per_node=8)
    gang = here.submit(nodes=2, gpus_per_node=8)
    here.run(lambda: None)
    of = {job.job_id: {node.split("-")[0] for node in job.gpus} for job in here.slurm.jobs()}
    assert (of[fill], of[gang]) == ({"p5"}, {"p4d"})


def test_nodes_that_register_themselves_are_used_once_slurm_shows_them(tmp_path: Path) -> None:
    here = controlled(tmp_path, "dynamic_cloud")
    for number in (7, 8):
        here.slurm.change_node(FakeNode(f"burst-{number:03}", 8, gpu_type="h100"))
    here.slurm.change_node(FakeNode("stray-1", 8, gpu_type="h100"))
    gang = here.submit(nodes=2, gpus_per_node=8, gpu_type="h100")
    here.run(lambda: None)
    (told,) = here.events("cluster")
    assert (told["nodes"], told["gpus"], told["unknown"]) == (6, 48, ["stray-1"])
    assert "burst-[001-006,009-200] (not in slurm.conf), stray-1 (on no switch)" in told["left_out"]
    (job,) = here.slurm.jobs()
    assert (job.job_id, set(job.gpus)) == (gang, {"burst-007", "burst-008"})


def test_a_node_that_registers_itself_while_the_controller_runs_is_used(tmp_path: Path) -> None:
    here = controlled(tmp_path, "dynamic_cloud")
    job = here.submit(gpus_per_node=8, gpu_type="h100")

    def register() -> None:
        here.slurm.change_node(FakeNode("burst-001", 8, gpu_type="h100"))

    here.run(register, *[lambda: None] * 20)
    assert [told["nodes"] for told in here.events("cluster")] == [4, 5]
    assert here.states()[job] == "RUNNING"


def test_gpus_that_a_node_loses_are_given_to_nobody_and_jobs_run_on(tmp_path: Path) -> None:
    here = controlled(tmp_path, "dynamic_cloud")
    first, second = (here.submit(gpus_per_node=8) for _ in range(2))
    lost: dict[str, int] = {}

    def lose() -> None:
        lost.update({node: 4 for job in here.slurm.jobs() if job.job_id == first for node in job.gpus})
        for node in lost:
            here.slurm.change_node(FakeNode(node, 4, gpu_type="a100"))

    here.run(lose, *[lambda: None] * 20, lambda: here.submit(gpus_per_node=1))
    assert [told["gpus"] for told in here.events("cluster")] == [32, 28]
    assert set(here.states().values()) == {"RUNNING"}
    gpus = {job.job_id: set(job.gpus) for job in here.slurm.jobs()}
    assert [gpus.pop(first), len(gpus.pop(second))] == [set(lost), 1]
    assert not any(lost.keys() & nodes for nodes in gpus.values())
