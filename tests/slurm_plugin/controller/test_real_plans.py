"""Jobs with a parallel plan on real Slurm: the plan counts, and ranks lie as `dally rank-order` says."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.slurm_plugin.controller.test_real_controller import RealSite, sleeping

ROOT = Path(__file__).parents[3]

SCRIPT = f"""#!/bin/bash
#SBATCH --nodelist=n[1-4] --gpus-per-node=2 --ntasks-per-node=2 --output=order.txt
export PYTHONPATH={ROOT}
order="{sys.executable} -m dally rank-order --cluster racks"
export SLURM_HOSTFILE=$($order --plan tp=2,pp=2,dp=2 --tasks-per-node 2 --hostfile hosts.txt)
srun --distribution=arbitrary sh -c 'echo srun $SLURM_PROCID $SLURMD_NODENAME'
unset SLURM_HOSTFILE
export rank="$order --plan pp=2,dp=2 --rank-of"
srun --ntasks-per-node=1 --ntasks=4 sh -c 'echo torchrun $($rank $SLURMD_NODENAME) $SLURMD_NODENAME'
"""

SLURM_CONF = "NodeName=n[1-8] Gres=gpu:h100:8\nPartitionName=gpu Nodes=ALL\nTopologyPlugin=topology/tree\n"
RACKS = """\
SwitchName=a Nodes=n[1,3]
SwitchName=b Nodes=n[2,4]
SwitchName=c Nodes=n[5-8]
SwitchName=top Switches=a,b,c
"""
"""Racks that the names of nodes do not follow."""


@pytest.fixture
def site(local_slurm: LocalSlurm) -> Iterator[RealSite]:
    """Eight nodes of eight H100 in racks of two."""
    found = RealSite(local_slurm, "srsf-delay")
    yield found
    found.journal.close()


def test_a_job_is_decided_by_its_plan(site: RealSite) -> None:
    blocked = [sleeping(site, 60, "--gpus-per-node=8", f"--nodelist=n{n}") for n in (1, 3, 5)]
    site.until(lambda: all(site.state(each) == "RUNNING" for each in blocked))
    plan = ("--parallel=tp=8,micro=1,sequence=4096", "--global-batch=64", "--model=llama3-70b")
    job = sleeping(site, 60, "--nodes=2", "--gpus-per-node=8", *plan)
    site.until(lambda: site.state(job) == "RUNNING")
    assert site.nodes(job) == "n[7-8]", "the only rack with two idle nodes"
    state = site.controller.scheduler.state
    assert str(state.jobs[job].job.plan) == "tp=8,dp=2,micro=1,sequence=4096"
    assert state.costs.plan_gap(state.jobs[job].job) == ""


def test_ranks_lie_as_is_told_and_not_by_the_names_of_nodes(site: RealSite) -> None:
    work = site.local_slurm.work
    (work / "racks").mkdir()
    (work / "racks" / "slurm.conf").write_text(SLURM_CONF)
    (work / "racks" / "topology.conf").write_text(RACKS)
    (work / "order.sh").write_text(SCRIPT)
    job = site.submit("order.sh")
    site.until(lambda: site.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), "the job to end")
    said = (work / "order.txt").read_text()
    assert site.state(job) == "COMPLETED", said
    assert "groups of 2 nodes that span several of rack: 0, 2 by name" in said
    ranks = re.findall(r"^(srun|torchrun) (\d+) (n\d)$", said, re.MULTILINE)
    by_rank = {name: {int(rank): node for each, rank, node in ranks if each == name} for name, *_ in ranks}
    assert by_rank["srun"] == dict(enumerate(["n1", "n1", "n3", "n3", "n2", "n2", "n4", "n4"]))
    assert by_rank["torchrun"] == dict(enumerate(["n1", "n3", "n2", "n4"]))
