"""Folders of live runs made of simulated ones, with known differences between the two worlds."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dally.cluster import scaled_links
from dally.cluster.toml_writer import write_toml
from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles, write_profiles
from dally.runs.records import JobRecord, read_events, read_jobs, write_jobs, write_run
from dally.testing.worlds import racks
from dally.traces.common_csv import write_workload
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import simulate

STEPS = 200
"""Steps of every job."""

TWO_RACKS = scaled_links(racks([[2, 2], [2, 2]], gpu_types=("v100",)), 0.005)
"""Four nodes at 1 Gb/s, racks at 500 Mb/s."""


@dataclass(frozen=True)
class Change:
    """How reality differs from the simulation, for each job.

    Attributes:
        wait_s: It starts so much later.
        startup_s: Its first start takes so much longer than the profile says.
        restart_s: Each later start takes so much longer than the profile says.
        step_factor: Its steps take so many times as long.
        rest_s: Each interval lasts so much longer after its steps.
        lost_steps: Steps of each interval but the last that are done again in the next one.
        nodes: Where its only interval really ran; None: where simulated.
    """

    wait_s: float = 0.0
    startup_s: float = 0.0
    restart_s: float = 0.0
    step_factor: float = 1.0
    rest_s: float = 0.0
    lost_steps: int = 0
    nodes: tuple[tuple[str, int], ...] | None = None


def live_folder(
    folder: Path,
    jobs: Sequence[Job],
    change: Change,
    policy: str = "fifo",
    topology: Topology = TWO_RACKS,
    contention: bool = False,
) -> Path:
    """Write the folder of a live run in which everything went as simulated, but for the change.

    Args:
        folder: What to write.
        jobs: Of which the first is submitted at 0.
        change: How reality differs.
        policy: Under which it ran.
        topology: The cluster.
        contention: Jobs that share links slow each other; none may be preempted then.
    """
    folder.mkdir(parents=True)
    (folder / "cluster.toml").write_text(write_toml(topology))
    write_profiles(load_profiles("realistic").profiles, folder / "profiles")
    write_workload(jobs, folder / "workload.csv")
    trace, cluster, profiles = (str(folder / name) for name in ("workload.csv", "cluster.toml", "profiles"))
    scenario = load_scenario(Inputs(trace, cluster, profiles, contention=contention))
    base = folder.parent / f".base-{folder.name}"
    simulate(scenario, parse_policy(policy), base)
    costs = CostModel(scenario.topology, scenario.profiles)
    live_jobs = {job.job_id: _Life(job, change, costs, contention) for job in scenario.jobs}
    for event in read_events(base):
        live_jobs[event["job"]].happen(event)
    records = [_record(record, live_jobs[record.job_id]) for record in read_jobs(base)]
    write_jobs(folder / "jobs.csv", records)
    lines = [json.dumps(line) for live in live_jobs.values() for line in live.intervals]
    (folder / "stretches.jsonl").write_text("\n".join(lines) + "\n")
    end_s = max(record.end_s or 0.0 for record in records)
    write_run(folder / "run.json", {"kind": "testbed", "policy": {"spec": policy}, "seed": 0, "end_s": end_s})
    return folder


class _Life:
    """Follows a job through the events of the simulation, and lets it happen with the change."""

    def __init__(self, job: Job, change: Change, costs: CostModel, contention: bool) -> None:
        self.job, self.change, self.costs, self.contention = job, change, costs, contention
        self.intervals: list[dict[str, Any]] = []
        self.late_s = 0.0
        self._began: tuple[float, dict[str, int], float] | None = None
        self._owed_steps = 0
        self._done = 0

    def happen(self, event: dict[str, Any]) -> None:
        if event["event"] == "start":
            self._began = event["t"], dict(self.change.nodes or event["gpus"].items()), event["slowdown"]
        if event["event"] in ("preempt", "end"):
            self._stop(event["t"], last=event["event"] == "end")

    def _stop(self, now: float, last: bool) -> None:
        assert self._began is not None
        (start_s, gpus, simulated_slowdown), number = self._began, len(self.intervals)
        change, best_s = self.change, self.job.duration_s / STEPS
        paid_s = self.costs.restart_s(self.job) if number else self.costs.launch_s(self.job)
        net = STEPS - self._done if last else round((now - start_s - paid_s) / simulated_slowdown / best_s)
        steps = net + self._owed_steps
        lost = 0 if last else change.lost_steps
        self._owed_steps = lost
        index = self.costs.topology.machine_index
        where = tuple(sorted((index[name], count) for name, count in gpus.items()))
        slowdown = self.costs.cost(self.job, where).slowdown
        step_s = change.step_factor * (
            (now - start_s - paid_s) / steps if self.contention else best_s * slowdown
        )
        self.late_s += 0.0 if number else change.wait_s
        begin_s = start_s + self.late_s
        startup_s = paid_s + (change.restart_s if number else change.startup_s)
        end_s = begin_s + startup_s + steps * step_s + change.rest_s
        self.late_s = end_s - now
        self._done += net
        self.intervals.append(
            {
                "job": self.job.job_id,
                "number": number,
                "start_s": begin_s,
                "first_step_s": begin_s + startup_s + step_s,
                "end_s": end_s,
                "gpus": gpus,
                "steps": steps,
                "step_s": step_s,
                "compute_s": best_s,
                "lost_steps": lost,
            }
        )


def _record(record: JobRecord, live: _Life) -> JobRecord:
    run_s = sum(interval["end_s"] - interval["start_s"] for interval in live.intervals)
    end_s = live.intervals[-1]["end_s"]
    return replace(
        record,
        start_s=live.intervals[0]["start_s"],
        end_s=end_s,
        run_s=run_s,
        queue_s=end_s - record.submit_s - run_s,
    )


def change_job(folder: Path, job_id: str, **columns: str) -> None:
    """Rewrite columns of one job in jobs.csv."""
    path = folder / "jobs.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["job_id"] == job_id:
            row.update(columns)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
