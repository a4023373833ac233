"""One simulation from inputs to run folder: a workload on a cluster under a policy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dally import __version__
from dally.contention import SharedLinks
from dally.costs import CostModel, Predictions, Split
from dally.cycle import Scheduler
from dally.errors import DallyError
from dally.job import Job
from dally.policies.registry import PolicySpec
from dally.profiles.files import ProfileSet
from dally.recording.recorder import FACTS, RecordedScheduler, Recording
from dally.records import EVENTS, JOBS, RUN, EventLog, JobRecord, write_jobs, write_run
from dally.state import ClusterState
from dally.summary import Summary, summarise
from dally.topology import Topology
from simulator.engine import Engine, Outcome
from simulator.failures import Outage
from simulator.tally import rejected


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated, the same for every policy.

    Attributes:
        topology: The cluster.
        profiles: Profiles of the models; None if no job is sensitive to the network.
        jobs: Jobs that the cluster can hold, by submission.
        too_large: Jobs that it cannot hold, reported as rejected.
        outages: Gives the machine failures, from the beginning, each time it is called.
        checkpoint_s: A failure loses the work since the last multiple of this, seconds.
        facts: Where all this came from, for run.json.
        contention: Jobs that share links slow each other.
        batch_split: How gangs over several GPU types split their batch.
    """

    topology: Topology
    profiles: ProfileSet | None
    jobs: tuple[Job, ...]
    too_large: tuple[Job, ...]
    outages: Callable[[], Iterable[Outage]]
    checkpoint_s: float
    facts: dict[str, Any]
    contention: bool = False
    batch_split: Split = Split.EVEN


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: its policy, folder, summary, records, and what the predictions in it rest on."""

    spec: str
    folder: str
    summary: Summary
    records: list[JobRecord]
    predictions: Predictions
    complete: bool
    note: str


def folder_name(spec: str) -> str:
    """The sub-folder of a policy's run: its specification with the separators made safe."""
    return "".join(char if char.isalnum() or char in "-.=_" else "_" for char in spec)


def simulate(
    scenario: Scenario,
    policy: PolicySpec,
    folder: Path,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[float, int], None] = lambda now, ended: None,
    record: bool = False,
) -> Run:
    """Simulate one policy and write its run folder.

    Args:
        scenario: What to simulate.
        policy: Under which policy.
        folder: Where to write; must not exist.
        stop: True ends the run early; what it wrote is then marked incomplete.
        progress: Told of each moment: seconds on the clock and jobs that ended.
        record: Whether every fact and decision goes to facts.jsonl, for `dally replay`.

    Raises:
        DallyError: The recording cannot be written.
    """
    folder.mkdir(parents=True)
    costs = CostModel(scenario.topology, scenario.profiles, scenario.batch_split, policy.policy.batching)
    state = ClusterState(scenario.topology, costs)
    recording = Recording(folder / FACTS, _refuse) if record else None
    scheduler = _scheduler(state, policy, recording)
    with (folder / EVENTS).open("w", encoding="utf-8") as file:
        log = EventLog(file)
        engine = Engine(
            scheduler,
            scenario.jobs,
            log,
            scenario.outages(),
            scenario.checkpoint_s,
            SharedLinks(costs) if scenario.contention else None,
            stop=stop,
            progress=progress,
        )
        outcome = engine.run()
    if recording is not None:
        recording.flush()
    records = _in_order(outcome.records, scenario)
    summary = summarise(records, scenario.topology.gpus, outcome.end_s)
    predictions = costs.report()
    write_jobs(folder / JOBS, records)
    write_run(folder / RUN, _facts(scenario, policy, outcome, summary, predictions))
    return Run(policy.spec, folder.name, summary, records, predictions, outcome.complete, outcome.note)


def _scheduler(state: ClusterState, policy: PolicySpec, recording: Recording | None) -> Scheduler:
    if recording is None:
        return Scheduler(state, policy.build(state))
    return RecordedScheduler(state, policy.build(state), policy.spec, recording)


def _refuse(reason: str) -> None:
    raise DallyError(f"cannot record: {reason}")


def _in_order(records: Sequence[JobRecord], scenario: Scenario) -> list[JobRecord]:
    """Records by submission, those too large for the cluster among them."""
    place = {job.job_id: number for number, job in enumerate(scenario.jobs)}
    known = sorted(records, key=lambda record: place[record.job_id])
    return sorted([*known, *map(rejected, scenario.too_large)], key=lambda record: record.submit_s)


def _facts(
    scenario: Scenario, policy: PolicySpec, outcome: Outcome, summary: Summary, predictions: Predictions
) -> dict[str, object]:
    return {
        "kind": "simulation",
        "version": __version__,
        "policy": {"name": policy.policy.name, "spec": policy.spec, "knobs": asdict(policy.knobs)},
        "cluster": {
            "name": scenario.topology.name,
            "gpus": scenario.topology.gpus,
            "machines": len(scenario.topology.machines),
            "levels": list(scenario.topology.levels),
        },
        **scenario.facts,
        "checkpoint_s": scenario.checkpoint_s,
        "complete": outcome.complete,
        "note": outcome.note,
        "end_s": round(outcome.end_s, 3),
        "moments": outcome.moments,
        "predictions": asdict(predictions),
        "summary": asdict(summary),
    }
