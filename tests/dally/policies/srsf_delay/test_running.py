"""What `srsf-delay` keeps of waiting and running jobs, against what plain loops over all jobs say."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.policies.common.job_queue import DemandRound
from dally.policies.common.ranking import Ranking
from dally.policies.srsf_delay.running import RunningByRemaining
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks

Drawn = list[tuple[int, int, int, bool]]
DRAWN = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 9000), st.integers(0, 500), st.booleans()), max_size=8
)
NOW = 600.0


def world(drawn: Drawn) -> list[JobState]:
    """Jobs of so many GPUs and seconds that came then; those marked run since, half of them at half speed."""
    machines = racks([[4] * 8])
    state = ClusterState(machines, CostModel(machines))
    jobs = []
    for number, (gpus, duration_s, submit_s, runs) in enumerate(drawn):
        job = Job(f"j{number}", submit_s, gpus, 1000.0 + duration_s)
        jobs.append(state.submit(job, submit_s))
        if runs:
            state.start(job.job_id, ((number, gpus),), submit_s, 10.0, 1.0 if number % 2 else 0.5)
    return jobs


@settings(max_examples=40)
@given(DRAWN)
def test_holders_come_by_what_they_will_hold(drawn: Drawn) -> None:
    running = [job for job in world(drawn) if job.allocation]
    holders = RunningByRemaining(float)
    for job in running:
        holders.add(job)
    held = {job: job.job.gpus * (job.end_s() - NOW) for job in running}
    expected = sorted(running, key=lambda job: (-held[job], job.order))
    assert [(holds, job) for holds, job in holders.largest(NOW)] == [(held[job], job) for job in expected]
    assert holders.most(NOW) == max(held.values(), default=0.0)


def test_offers_go_to_the_least_claim_and_a_postponed_one_comes_again() -> None:
    jobs = world([(1, 10, 0, False), (1, 30, 0, False), (2, 20, 0, False)])
    kinds = [Ranking(), Ranking()]
    for job in jobs:
        kinds[job.job.gpus - 1].add(job, job.job.duration_s)
    offers = DemandRound(kinds, lambda job: (False, job.job.duration_s))
    assert offers.next() is jobs[0]
    assert offers.postpone((False, 1025.0))
    assert offers.next() is jobs[2]
    offers.refused()
    assert offers.next() is jobs[0]
    assert not offers.postpone((False, 1025.0))
    offers.served()
    assert offers.next() is jobs[1]
    offers.served()
    assert offers.next() is None
