"""Jobs keep their place in the queue, whatever is found out about them meanwhile."""

from pathlib import Path

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.worlds import Site

TWO = racks([[4, 4]])


def waiting_pair(folder: Path, **first: float) -> tuple[Site, str, str]:
    """Two jobs that wait for a node each, one of which comes free after the other."""
    site = Site(folder, TWO, "fifo")
    for run_time_s in (100, 200):
        site.submit(gpus_per_node=4, run_time_s=run_time_s, time_limit_s=300)
    older = site.submit(gpus_per_node=4, run_time_s=1000, **first)
    younger = site.submit(gpus_per_node=4, run_time_s=1000, time_limit_s=1100)
    site.run_to(10)
    return site, older, younger


def test_a_job_that_may_use_fewer_nodes_from_now_on_stays_before_its_younger_neighbour(
    tmp_path: Path,
) -> None:
    site, older, younger = waiting_pair(tmp_path, time_limit_s=4000)
    second = TWO.machines[1].name
    site.slurm.reserve(Reservation("tomorrow", (second,), 3000.0, 9000.0), "root")
    site.run_to(20)
    assert site.managed(older).job.machines == {TWO.machines[0].name}
    assert site.managed(younger).job.machines is None
    site.run_to(150)
    assert [site.states()[job] for job in (older, younger)] == ["RUNNING", "PENDING"]


@pytest.mark.parametrize("by_person", [False, True])
def test_only_a_person_who_holds_a_job_makes_it_lose_its_place(tmp_path: Path, by_person: bool) -> None:
    site, older, younger = waiting_pair(tmp_path, time_limit_s=4000)
    everywhere = tuple(machine.name for machine in TWO.machines)
    if by_person:
        site.slurm.hold(older)
    else:
        site.slurm.reserve(Reservation("soon", everywhere, 3000.0, 9000.0), "root")
    site.run_to(20)
    assert site.managed(older).phase.name is JobPhase.INELIGIBLE
    if by_person:
        site.slurm.release(older)
    else:
        site.slurm.update(older, time_limit_s=1200)
    site.run_to(150)
    assert [site.states()[job] for job in (older, younger)] == (
        ["PENDING", "RUNNING"] if by_person else ["RUNNING", "PENDING"]
    )
