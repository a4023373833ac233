"""Random walks of jobs through all phases, with crashes at every step: nothing is lost or held twice."""

import os
import pwd
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.accounting_limits import ResourceLimit
from slurm_plugin.client.slurm import Hold, Partition, SlurmJob, SlurmUnavailableError, State
from slurm_plugin.controller.journal import read_managed_jobs
from slurm_plugin.controller.managed_job import ON_GPUS, AnyPhase, JobPhase, PendingPhase, StartingPhase
from slurm_plugin.controller.transition_table import TRANSITIONS, JobEvent, next_phase
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite, Killed

POLICIES = (
    "srtf",
    "dally:timers=no-wait,lease_s=100",
    "elastic-scaling:interval_s=30",
    "tiresias:regroup_s=0,quantum_s=0",
)
WALKS = 16
STEPS = 60
RARE = 3
"""The walk that begins with rare ways; its policy stops jobs for others."""

TROUBLES = 6
"""A walk meets so many kinds of them: if it met all, jobs would hardly ever run."""

CALM_S = 8_000.0
"""When all jobs have ended, once nobody disturbs them any more."""

ME = pwd.getpwuid(os.getuid()).pw_name
NODES = ("r0m0", "r0m1", "r1m0", "r1m1")
LIMIT = ResourceLimit("GrpTRES of QOS low", 8, qos="low", qos_with_it=frozenset({"low"}))

CRASHES = {"cycle", "observed", "decided", "cycle done"} | {
    f"{order}{when}"
    for order in ("correct", "signal", "requeue", "reserve", "release")
    for when in ("", " done")
}


class Walk:
    """One site to which something happens at random, and what was met on the way.

    Attributes:
        site: The site.
        crashes: Names of the steps at which the controller was killed.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._random = Random(seed)
        policy = POLICIES[seed % len(POLICIES)]
        shared = dict.fromkeys(NODES, ("gpu", "other")) if seed % 3 == 0 else {}
        self._topology = racks([[8, 8], [8, 8]])
        self.site = FakeSite(
            folder,
            self._topology,
            policy,
            partitions=shared,
            start_timeout_s=20.0,
            backoff_s=30.0,
            max_requeues=3 if seed % 5 == 0 else 1000,
        )
        self.site.slurm.remember_s = 1e6
        self._restart()
        self.crashes: set[str] = set()
        self._troubles = self._random.sample(self._all_troubles(), TROUBLES)

    def step(self) -> None:
        """Somebody does something, time passes, and the controller looks."""
        draw = self._random
        if draw.random() < 0.4:
            self._submit()
        elif draw.random() < 0.6:
            draw.choice(self._troubles)()
        self._pass_time()
        self._look()

    def _all_troubles(self) -> list[Callable[[], object]]:
        slurm, pending, running = self.site.slurm, State.PENDING, State.RUNNING
        return [
            lambda: self._to_a_job(slurm.cancel, pending, running),
            lambda: self._to_a_job(lambda job: slurm.hold(job, Hold.ADMIN), pending),
            lambda: self._to_a_job(lambda job: slurm.hold(job, Hold.USER), pending),
            lambda: self._to_a_job(slurm.release, pending),
            lambda: self._to_a_job(slurm.requeue, running),
            lambda: self._to_a_job(slurm.requeue_held, running),
            lambda: self._to_a_job(slurm.forget_start, pending, running),
            lambda: self._to_a_job(self._shrink, running),
            lambda: self._to_a_job(lambda job: slurm.update(job, time_limit_s=400.0), pending),
            self._refuse_orders,
            self._set_node,
            lambda: self._set("start_delay_s", 0.0, 5.0, 60.0),
            lambda: self._set("completing_s", 0.0, 7.0),
            lambda: self._set("breaks_after", 0, 1),
            lambda: self._set("unavailable", False, True),
            lambda: self._set("rules", {}, {"gpu": Partition("gpu", 300.0)}),
            lambda: self._set("told_limits", (), (LIMIT,), None),
            lambda: self._set("most_gpus", {}, {"low": 4}),
            self._lose_a_rack,
        ]

    def _submit(self) -> None:
        draw = self._random
        gpus = draw.choice([1, 4, 8, 8])
        least, most, copies = draw.choice([(0, 0, 1)] * 4 + [(1, 16, 1)] * 2 + [(0, 0, 2)])
        signal = draw.choice(["", "USR1", "USR1"])
        asked = Request(
            signal=signal,
            grace_s=draw.choice([0, 20]),
            min_gpus=least,
            max_gpus=most,
            max_copies=copies,
            tag=f"{draw.getrandbits(16):x}",
            held=draw.random() < 0.1,
            progress=f"{self.site.folder}/%j.json" if draw.random() < 0.2 else "",
        )
        size: dict[str, Any] = {"gpus_per_node": gpus, "nodes": draw.choice([1, 2, 3, 4])}
        if most:
            size = {"gpus_per_task": 1, "tasks": gpus}
        self.site.slurm.submit(
            SubmitSpec(
                **size if copies == 1 else {"gpus_per_node": gpus},
                comment=encode(asked),
                run_time_s=draw.choice([10.0, 100.0, 300.0, 300.0]),
                time_limit_s=draw.choice([None, 200.0, 1000.0]),
                checkpoint_exit_s=draw.choice([None, 2.0, 8.0]) if signal else None,
                resumes=True,
                requeue=draw.random() < 0.9,
                user=ME,
                qos=draw.choice(["", "low"]),
                array=draw.choice([(), (), (1, 2, 3)]),
                array_throttle=draw.choice([0, 1]),
            )
        )

    def _to_a_job(self, act: Callable[[str], object], *states: State) -> None:
        jobs = [job.job_id for job in self._shown() if job.state in states]
        if jobs:
            act(self._random.choice(jobs))

    def _shown(self) -> tuple[SlurmJob, ...]:
        slurm = self.site.slurm
        slurm.unavailable, down = False, slurm.unavailable
        jobs = slurm.jobs()
        slurm.unavailable = down
        return jobs

    def _shrink(self, job: str) -> None:
        nodes = [*next(each.gpus for each in self._shown() if each.job_id == job)]
        if len(nodes) > 1:
            self.site.slurm.shrink(job, nodes[-1])

    def _refuse_orders(self) -> None:
        """Slurm refuses orders for a job from now on, or no more for any."""
        refuse = self.site.slurm.refuse
        refuse.clear()
        if self._random.random() < 0.7:
            self._to_a_job(lambda job: refuse.update({job: "No."}), State.PENDING, State.RUNNING)

    def _set_node(self) -> None:
        self.site.slurm.set_node(self._random.choice(NODES), self._random.choice(["drain", "down", "", ""]))

    def _set(self, name: str, *values: object) -> None:
        setattr(self.site.slurm, name, self._random.choice(values))

    def _lose_a_rack(self) -> None:
        """The files of the cluster change, so the controller is started anew; the rack comes back later."""
        whole = self.site.topology is self._topology
        self.site.topology = racks([[8, 8]]) if whole else self._topology
        self._restart()

    def _pass_time(self) -> None:
        event_s = self.site.slurm.next_event_s
        soon = [1.0, 5.0, 30.0] + ([event_s - self.site.now_s] if event_s is not None else [])
        self.site.now_s += max(0.0, min(60.0, self._random.choice(soon)))
        self._report_progress()

    def _report_progress(self) -> None:
        for job in self._shown():
            if job.state is State.RUNNING and "progress" in job.comment:
                told = f'{{"time": {self.site.now_s}, "samples": {self.site.now_s}, "total": 100000}}'
                (self.site.folder / f"{job.job_id}.json").write_text(told)

    def _look(self) -> None:
        """A cycle, or some steps of one that ends in a crash; then all must be as it should."""
        at, steps = self._crash_after(self._random.choice([*[0] * 10, *range(1, 13)]))
        self.site.controller._at = self.site.controller._actuator._at = at
        try:
            self.site.controller.cycle()
            self.check()
        except SlurmUnavailableError:
            self.site.slurm.breaks_after = None
        except Killed:
            self.crashes.add(steps[-1])
            self._restart()

    def _restart(self) -> None:
        """The controller's process ends and a new one begins; nothing here tests the disk."""
        self.site.restart()
        self.site.controller._journal._database.execute("PRAGMA synchronous=OFF")

    def _crash_after(self, steps: int) -> tuple[Callable[[str], None], list[str]]:
        """Kills the controller after so many steps, never for 0; or at one at which it never was."""
        seen: list[str] = []

        def at(step: str) -> None:
            seen.append(step)
            if len(seen) == steps or (step not in self.crashes and self._random.random() < 0.3):
                raise Killed

        return at, seen

    def check(self) -> None:
        """Jobs, policy, Slurm and journal agree."""
        reconciler, slurm = self.site.controller.reconciler, self.site.slurm
        known, state = reconciler.managed_jobs, reconciler.state
        shown = {job.job_id: job for job in slurm.jobs()}
        open_ = {job_id for job_id, job in shown.items() if job.state is not State.ENDED}
        lost = [each for each in open_ - known.keys() if shown[each].state is not State.COMPLETING]
        assert not lost, "a job is lost"
        assert known.keys() <= shown.keys()

        def are(*phases: type[AnyPhase]) -> set[str]:
            return {job_id for job_id, managed in known.items() if isinstance(managed.phase, phases)}

        assert set(state.waiting) == are(PendingPhase, StartingPhase), "the policy's queue"
        assert set(state.running) == are(*ON_GPUS), "what the policy sees run"
        held: Counter[str] = Counter()
        for job in shown.values():
            held.update(job.gpus)
        assert all(count <= 8 for count in held.values()), "a GPU is held twice"
        ours: Counter[int] = Counter()
        for job_id in state.running:
            allocation = state.jobs[job_id].allocation
            assert state.topology.named(allocation) == known[job_id].gpus
            ours.update(dict(allocation))
        for machine, node in enumerate(state.topology.machines):
            taken = ours[machine] + state.withheld.get(machine, 0) + state.free.on(machine)
            assert taken == node.gpus, "a GPU is leaked"
        assert read_managed_jobs(self.site.folder) == known, "the journal says something else"

    def rare_ways(self) -> None:
        """What random walks seldom meet."""
        site, slurm = self.site, self.site.slurm
        whole: dict[str, Any] = {"nodes": 4, "gpus_per_node": 8, "signal": "USR1", "run_time_s": 300.0}
        small: dict[str, Any] = {"gpus_per_node": 8, "run_time_s": 50.0, "user": ME}

        refused = site.submit(grace_s=30, user=ME, **whole)
        site.run_to(150)
        slurm.refuse[refused] = "No."
        site.submit(**small)
        site.run_to(200)
        slurm.refuse.clear()
        site.run_to(600)

        cancelled = site.submit(grace_s=30, user=ME, **whole)
        site.run_to(750)
        site.submit(**small)
        site.run_to(760)
        slurm.cancel(cancelled)
        site.run_to(900)

        reports = Request(signal="USR1", grace_s=90, progress=f"{site.folder}/%j.json")
        slurm.submit(SubmitSpec(comment=encode(reports), user=ME, nodes=4, gpus_per_node=8, run_time_s=300.0))
        site.run_to(1050)
        waits = site.submit(**small)
        site.run_to(1060)
        self._report_progress()
        site.run_to(1061)
        self._lose_a_rack()
        site.run_to(1065)
        slurm.cancel(waits)
        waits = site.submit(**small)
        site.run_to(1070)
        slurm.release(waits)
        site.run_to(1075)
        slurm.hold(waits, Hold.USER)
        site.run_to(1300)

        slurm.rules, slurm.start_delay_s = {"gpu": Partition("gpu", 300.0)}, 1e6
        site.submit(time_limit_s=1000.0, **small)
        site.submit(**small)
        site.run_to(1800)
        for job in self._shown():
            slurm.cancel(job.job_id)
        slurm.rules = {}
        self._lose_a_rack()  # it comes back
        starts = site.submit(**whole)
        site.run_to(1810)
        self._lose_a_rack()
        slurm.cancel(starts)
        site.run_to(1820)
        slurm.start_delay_s = 0.0
        self.check()

    def calm(self) -> None:
        """Everybody lets go; all jobs end, and nothing is left."""
        slurm = self.site.slurm
        slurm.unavailable, slurm.breaks_after, slurm.start_delay_s, slurm.completing_s = False, None, 0.0, 0.0
        slurm.refuse, slurm.rules, slurm.told_limits, slurm.most_gpus = {}, {}, (), {}
        self.site.topology = self._topology
        self._restart()
        for node in NODES:
            slurm.set_node(node)
        for _ in range(3):
            self._release_what_people_hold()
            self.site.live(self.site.now_s + CALM_S, poll_s=30.0)
        left = [job for job in slurm.jobs() if job.state is not State.ENDED]
        assert not left, self.site.controller.reconciler.managed_jobs
        assert not self.site.controller.reconciler.managed_jobs
        state = self.site.controller.scheduler.state
        assert not state.jobs
        assert not state.withheld

    def _release_what_people_hold(self) -> None:
        for job in self.site.slurm.jobs():
            by_person = job.hold is Hold.ADMIN or job.requeued_held or "held" in job.comment
            if job.state is State.PENDING and by_person:
                self.site.slurm.release(job.job_id)


def test_nothing_is_lost_on_any_way_through_the_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Counter[tuple[JobPhase | None, JobEvent]] = Counter()

    def noting(phase: JobPhase | None, event: JobEvent) -> JobPhase | None:
        taken[phase, event] += 1
        return next_phase(phase, event)

    monkeypatch.setattr("slurm_plugin.controller.transitions.next_phase", noting)
    crashes: set[str] = set()
    for seed in range(WALKS):
        (tmp_path / str(seed)).mkdir()
        walk = Walk(tmp_path / str(seed), seed)
        if seed == RARE:
            walk.rare_ways()
        for _ in range(STEPS):
            walk.step()
        walk.calm()
        walk.site.controller._journal.close()
        crashes |= walk.crashes
    assert taken.keys() == TRANSITIONS.keys(), "walks take every transition of the table"
    assert crashes == CRASHES
