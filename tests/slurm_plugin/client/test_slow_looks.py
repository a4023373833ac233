"""No user makes looks at Slurm slow for others, whatever he writes and however many jobs he changes."""

from dataclasses import replace

from slurm_plugin.client.changed_jobs import REASONS_S
from tests.slurm_plugin.client.test_changed_jobs import cluster, held, running, settled
from tests.slurm_plugin.client.text_slurm import TextSlurm


def test_changes_of_one_user_make_looks_slow_for_nobody() -> None:
    mine = [str(number) for number in range(10, 1000)]
    slurm = cluster(*map(held, mine), held("5000", user="bob"), held("5001"), running(held("7"), "n2"))
    look = settled(slurm)
    slurm.put(*(held(each, time_limit_s=60.0) for each in mine))
    slurm.put(
        held("5000", user="bob", time_limit_s=60.0, excluded_nodes=("n3",)), running(held("5001"), "n1")
    )
    for _ in range(10):
        found, many = look(), max(map(len, slurm.shown))
        assert {job.time_limit_s for job in found if job.job_id in mine} == {60.0}
        assert found[-2:] == slurm.jobs()[-2:]  # another's change and started jobs are shown at once
        assert many <= 100 + 2
    assert slurm.full == 0
    assert {int(each) for each in mine} <= {number for numbers in slurm.shown for number in numbers}


def test_of_many_new_jobs_of_a_user_some_wait_for_a_later_look() -> None:
    slurm = TextSlurm()
    slurm.records[17] = tuple(held(f"17_{task}", array_id="17", array_throttle=2) for task in range(150))
    look = settled(slurm)
    slurm.put(*slurm.records.pop(17))  # a change of each task sets it apart
    slurm.put(held("9999", user="bob", memory_per_cpu_mb=5), *(held(str(n)) for n in range(200_000, 200_150)))
    found = look()
    assert [job.array_throttle for job in found if job.array_id] == [2] * 150
    assert "9999" in {job.job_id for job in found}
    assert not [job.job_id for job in found if job.job_id.startswith("200")]
    for _ in range(2):
        look()
    assert look() == slurm.jobs()
    assert slurm.full == 0


def test_no_single_users_jobs_keep_all_on_json() -> None:
    odd = [running(held(str(number)), "n1") for number in range(10, 60)]
    slurm = cluster(*odd, held("60"), running(held("70", user="bob"), "n2"))
    changed, show_jobs = slurm.changed_jobs(), slurm.show_jobs
    unreadable = {int(job.job_id) for job in odd}
    changed._show_jobs = lambda some: [
        "" if number in unreadable else said for number, said in zip(some, show_jobs(some), strict=True)
    ]
    for _ in range(3):
        changed.look()
    assert slurm.full == 1
    slurm.put(replace(odd[0], nodes=("n3",), gpus={"n3": 2}))  # no line of scontrol's tells of its GPUs
    for _ in range(4):
        changed.look()
    assert slurm.full == 1
    slurm.now_s += REASONS_S
    for _ in range(4):
        found = changed.look()
    assert found[10][0].gpus == {"n3": 2}
    assert slurm.full == 2
