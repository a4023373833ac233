"""A user who takes his starts back keeps GPUs from nobody for long, on the Slurm in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.client.slurm import Hold
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.worlds import FakeSite


def put_off(site: FakeSite, job_id: str) -> None:
    job = site.slurm._jobs[job_id]
    job.begin_s = job.ready_s = site.now_s + 3600


def hold(site: FakeSite, job_id: str) -> None:
    """As job_submit.lua notes it."""
    site.slurm.update(job_id, comment=encode(Request(held=True)))
    site.slurm.hold(job_id, Hold.USER)


@pytest.mark.parametrize("take_back", [put_off, hold])
def test_whoever_takes_his_starts_back_lets_others_pass(
    tmp_path: Path, take_back: Callable[[FakeSite, str], None]
) -> None:
    site = FakeSite(tmp_path, start_timeout_s=20.0)
    site.slurm.start_delay_s = 3.0
    mallorys = [site.submit(user="mallory", nodes=4, gpus_per_node=8) for _ in range(8)]
    bobs = site.submit(user="bob", nodes=1, gpus_per_node=8, run_time_s=1.0)
    taken = 0
    while site.now_s < 19.0:
        site.controller.cycle()
        if site.states()[bobs] != "PENDING":
            break
        for job_id in mallorys:  # at once as one of them is released
            job = site.slurm._jobs[job_id]
            if job.hold is Hold.NONE and job.required_nodes and job.begin_s <= site.now_s:
                take_back(site, job_id)
                taken += 1
        site.now_s += 0.5
    assert site.states()[bobs] == "RUNNING"
    assert taken == 3
