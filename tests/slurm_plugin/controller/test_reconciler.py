"""Whatever people, Slurm and the machine do to the controller: no job is lost, and all run in the end."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Hold, State
from slurm_plugin.controller.job_data import job_to_data
from slurm_plugin.controller.journal import NAME
from tests.slurm_plugin.worlds import Action, FakeSite, Killed

CALM_S = 1500.0
"""From here on nobody disturbs anything."""

Act = Callable[[FakeSite], object]


def submission() -> st.SearchStrategy[Act]:
    shapes = st.one_of(
        st.builds(
            lambda nodes, gpus: {"nodes": nodes, "gpus_per_node": gpus}, st.integers(1, 4), st.integers(1, 8)
        ),
        st.builds(lambda gpus: {"gpus": gpus}, st.integers(1, 32)),
        st.builds(
            lambda gpus, copies: {"gpus_per_node": gpus, "copies": copies},
            st.integers(1, 8),
            st.integers(2, 4),
        ),
        st.builds(
            lambda tasks, most: {
                "gpus_per_node": 4,
                "array": tuple(range(1, tasks + 1)),
                "array_throttle": most,
            },
            st.integers(1, 5),
            st.integers(0, 2),
        ),
    )
    return st.builds(
        lambda shape, run_time_s, signal, grace_s, tag: (
            lambda site: site.submit(run_time_s=run_time_s, signal=signal, grace_s=grace_s, tag=tag, **shape)
        ),
        shapes,
        st.integers(1, 300).map(float),
        st.sampled_from(["", "USR1"]),
        st.sampled_from([0, 20]),
        st.sampled_from(["", "ab"]),
    )


def on_a_job(act: Callable[[FakeSite, str], object], *states: State) -> st.SearchStrategy[Act]:
    """Does something to one of the jobs in some states, if there is one."""

    def choose(number: int) -> Act:
        def chosen(site: FakeSite) -> None:
            site.slurm.unavailable, down = False, site.slurm.unavailable
            jobs = [job.job_id for job in site.slurm.jobs() if job.state in states]
            if jobs:
                act(site, jobs[number % len(jobs)])
            site.slurm.unavailable = down

        return chosen

    return st.integers(0, 9).map(choose)


def killed_at(step: int) -> Act:
    def act(site: FakeSite) -> None:
        left = [step]

        def at(name: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        site.restart(at)

    return act


def lose_journal(site: FakeSite) -> None:
    (site.folder / NAME).unlink(missing_ok=True)
    site.restart()


def lose_journal_under_way(site: FakeSite) -> None:
    (site.folder / NAME).unlink(missing_ok=True)


def set_node(number: int, state: str) -> Act:
    names = ("r0m0", "r0m1", "r1m0", "r1m1")
    return lambda site: site.slurm.set_node(names[number], state)


def setting(name: str, value: object) -> Act:
    return lambda site: setattr(site.slurm, name, value)


DISTURBANCES = st.one_of(
    on_a_job(lambda site, job: site.slurm.cancel(job), State.PENDING, State.RUNNING),
    on_a_job(lambda site, job: site.slurm.hold(job, Hold.ADMIN), State.PENDING),
    on_a_job(lambda site, job: site.slurm.hold(job, Hold.USER), State.PENDING),
    on_a_job(lambda site, job: site.slurm.release(job), State.PENDING),
    on_a_job(lambda site, job: site.slurm.requeue(job), State.RUNNING),
    on_a_job(lambda site, job: site.slurm.update(job, comment="mine now"), State.PENDING, State.RUNNING),
    on_a_job(lambda site, job: site.slurm.update(job, time_limit_s=400.0), State.PENDING),
    on_a_job(lambda site, job: site.slurm.refuse.update({job: "No."}), State.PENDING, State.RUNNING),
    st.builds(set_node, st.integers(0, 3), st.sampled_from(["drain", "down", ""])),
    st.builds(setting, st.just("unavailable"), st.booleans()),
    st.builds(setting, st.just("breaks_after"), st.integers(0, 2)),
    st.builds(setting, st.just("start_delay_s"), st.sampled_from([0.0, 5.0, 60.0])),
    st.builds(setting, st.just("completing_s"), st.sampled_from([0.0, 7.0])),
    st.builds(killed_at, st.integers(1, 12)),
    st.sampled_from([lose_journal, lose_journal_under_way]),
)


def calm(site: FakeSite) -> None:
    """Everybody lets go."""
    slurm = site.slurm
    slurm.unavailable, slurm.breaks_after, slurm.start_delay_s, slurm.completing_s = False, None, 0.0, 0.0
    slurm.refuse = {}
    for number in range(4):
        set_node(number, "")(site)
    for job in slurm.jobs():
        if job.state is State.PENDING and (job.hold is Hold.ADMIN or not job.comment.startswith("dally:")):
            slurm.release(job.job_id)


def picture(site: FakeSite) -> str:
    """All that the controller believes, and corrects in whatever order."""
    reconciler = site.controller.reconciler
    state = reconciler.state
    return json.dumps(
        [
            {job_id: job_to_data(managed) for job_id, managed in reconciler.managed_jobs.items()},
            [*state.waiting],
            [*state.running],
            sorted(state.withheld.items()),
            sorted(map(repr, reconciler.corrections)),
            reconciler.decided,
        ]
    )


def check(site: FakeSite) -> None:
    """Nothing is held twice, and a view that was folded in changes nothing a second time."""
    if site.slurm.unavailable:
        return
    jobs, nodes = site.slurm.jobs(), site.slurm.nodes()
    held: Counter[str] = Counter()
    for job in jobs:
        held.update(job.gpus)
    assert all(held[node.name] <= node.gpus for node in nodes)
    pictures = []
    for _ in range(2):
        site.controller.reconciler.reconcile(jobs, nodes, site.slurm.reservations(), site.now_s)
        pictures.append(picture(site))
    assert pictures[0] == pictures[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["dally:lease_s=400", "tiresias:regroup_s=0,quantum_s=0", "fifo", "hadar-e:round_s=200"]
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals=st.lists(st.tuples(st.integers(0, 600).map(float), submission()), min_size=1, max_size=6),
    disturbances=st.lists(st.tuples(st.integers(0, 1400).map(float), DISTURBANCES), max_size=10),
    shared=st.booleans(),
)
def test_every_job_ends(
    policy: str, arrivals: list[Action], disturbances: list[Action], shared: bool
) -> None:
    topology = racks([[8, 8], [8, 8]])
    names = [machine.name for machine in topology.machines]
    partitions = dict.fromkeys(names, ("gpu", "other")) if shared else {}
    with TemporaryDirectory() as folder:
        site = FakeSite(Path(folder), topology, policy, partitions=partitions)
        site.slurm.remember_s = 1e6
        checks = [(float(at_s), check) for at_s in range(3, int(CALM_S), 50)]
        site.live(40_000.0, [*arrivals, *disturbances, *checks, (CALM_S, calm)], poll_s=20.0)
        stuck = [job for job in site.slurm.jobs() if job.state is not State.ENDED]
        assert not stuck, [site.controller.reconciler.managed_jobs.get(job.job_id) for job in stuck]
        assert not site.controller.reconciler.managed_jobs
        assert not site.controller.scheduler.state.withheld
        site.controller._journal.close()


def test_a_job_released_while_it_ran_waits_for_no_reservation_that_is_gone(tmp_path: Path) -> None:
    topology = racks([[8, 8], [8, 8]])
    shared = {machine.name: ("gpu", "other") for machine in topology.machines}
    site = FakeSite(tmp_path, topology, "fifo", partitions=shared)
    site.slurm.remember_s = 1e6
    job = site.submit(nodes=4, gpus_per_node=8, run_time_s=500.0)
    site.run_to(10)
    site.topology = racks([[8, 8]])
    site.restart()
    site.run_to(400)
    assert [kind for kind, _ in site.events("released")] == ["released"]
    site.slurm.requeue(job)
    site.run_to(2000)
    assert site.outcome() == {job: ("COMPLETED", 1)}
