"""One simulation from inputs to run folder: a workload on a cluster under a policy."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dally import __version__
from dally.cluster.toml_writer import write_toml
from dally.cluster.topology import Topology
from dally.errors import DallyError
from dally.jobs.job import Job
from dally.jobs.knowledge import EXACTLY, Known
from dally.policies.registry import PolicySpec, blaming
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import Split
from dally.profiles.predictions import Predictions
from dally.runs.records import (
    CLUSTER,
    EVENTS,
    JOBS,
    RUN,
    EventLog,
    JobRecord,
    NoEvents,
    read_jobs,
    write_run,
)
from dally.runs.summary import Figures, Summary
from dally.scheduling.recording.recorder import FACTS, RecordedScheduler, Recording
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine, Outcome
from simulator.failures import Outage
from simulator.priorities import PrioritySettings, SimulatedPriorities
from simulator.records import RunRecords


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
        restart_s: What every restart costs, seconds; None: what the profiles say.
        assumed_slowdown: What each level farther apart costs gangs without a profile; see `CostModel`.
        knows: What schedulers know of how long jobs take.
        priorities: How Slurm would work out priorities; None: all jobs have the same.
        priority_ratio: How far they count; see `ClusterState`.
    """

    topology: Topology
    profiles: ProfileSet | None
    jobs: Sequence[Job]
    too_large: Sequence[Job]
    outages: Callable[[], Iterable[Outage]]
    checkpoint_s: float
    facts: dict[str, Any]
    contention: bool = False
    batch_split: Split = Split.EVEN
    restart_s: float | None = None
    assumed_slowdown: float = 1.0
    knows: Known = EXACTLY
    priorities: PrioritySettings | None = None
    priority_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: its policy, folder, summary, and what the predictions in it rest on.

    Attributes:
        figures: Of a simulation, the times of its jobs.
        knows: What its schedulers knew of how long jobs take.
        blocks_s: Of a simulation, the mean completion times of blocks of its jobs by submission.
    """

    spec: str
    folder: str
    summary: Summary
    predictions: Predictions
    complete: bool
    note: str
    figures: Figures = field(default_factory=Figures)
    knows: str = str(EXACTLY)
    blocks_s: tuple[float, ...] = ()


def folder_name(spec: str) -> str:
    """The sub-folder of a policy's run: its specification with the separators made safe."""
    return "".join(char if char.isalnum() or char in "-.=_" else "_" for char in spec)


def simulate(
    scenario: Scenario,
    policy: PolicySpec,
    folder: Path | None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[float, int], None] = lambda now, ended: None,
    record: bool = False,
    log: EventLog | None = None,
    keep: Callable[[int, JobRecord], None] = lambda place, record: None,
) -> Run:
    """Simulate one policy and write its run folder, if it is to have one.

    Args:
        scenario: What to simulate.
        policy: Under which policy.
        folder: Where to write; must not exist. None: nowhere, only the summary matters.
        stop: True ends the run early; what it wrote is then marked incomplete.
        progress: Told of each moment: seconds on the clock and jobs that ended.
        record: Whether every fact and decision goes to facts.jsonl, for `dally replay`; with a folder only.
        log: Where events go without a folder; None: nowhere.
        keep: Given each record with its job's place in `scenario.jobs`, when the job ends.

    Raises:
        DallyError: The recording cannot be written, or a policy of another package is broken.
    """
    if folder is not None:
        folder.mkdir(parents=True)
        (folder / CLUSTER).write_text(write_toml(scenario.topology), encoding="utf-8")
    costs = CostModel(
        scenario.topology,
        scenario.profiles,
        scenario.batch_split,
        policy.policy.batching,
        scenario.restart_s,
        scenario.assumed_slowdown,
        averaging=policy.policy.averaging(policy.knobs),
    )
    believed = costs.believed(scenario.knows)
    state = ClusterState(scenario.topology, believed, scenario.knows, scenario.priority_ratio)
    priorities = None
    if scenario.priorities is not None:
        priorities = SimulatedPriorities(scenario.priorities, scenario.topology.gpus)
    recording = None
    built = policy.build(state)
    if record and folder is not None:
        recording = Recording(folder / FACTS, _refuse)
        scheduler: Scheduler = RecordedScheduler(state, built, policy.spec, recording)
    else:
        scheduler = Scheduler(state, built)
    records = RunRecords(folder and folder / JOBS, scenario.jobs, scenario.too_large)

    def kept(place: int, record: JobRecord) -> None:
        records.add(place, record)
        keep(place, record)

    with ExitStack() as open_files:
        log = log or NoEvents()
        if folder is not None:
            log = EventLog(open_files.enter_context((folder / EVENTS).open("w", encoding="utf-8")))
        engine = Engine(
            scheduler,
            scenario.jobs,
            log,
            scenario.outages(),
            scenario.checkpoint_s,
            SharedLinks(costs) if scenario.contention else None,
            stop=stop,
            progress=progress,
            keep=kept,
            costs=costs,
            priorities=priorities,
        )
        with blaming(policy.policy):
            outcome = engine.run()
    if recording is not None:
        recording.flush()
    records.close()
    summary = records.figures.summary(scenario.topology.gpus, outcome.end_s)
    predictions = costs.report()
    if folder is not None:
        write_run(folder / RUN, _facts(scenario, policy, outcome, summary, predictions))
    return Run(
        policy.spec,
        folder.name if folder else "",
        summary,
        predictions,
        outcome.complete,
        outcome.note,
        records.figures,
        str(scenario.knows),
        records.blocks.means_s(),
    )


def simulate_jobs(scenario: Scenario, policy: PolicySpec) -> tuple[Run, list[JobRecord]]:
    """Run one policy on a scenario and give what became of each job, by submission; no folder stays."""
    with TemporaryDirectory() as folder:
        run = simulate(scenario, policy, Path(folder) / "run")
        return run, read_jobs(Path(folder) / "run")


def _refuse(reason: str) -> None:
    raise DallyError(f"cannot record: {reason}")


def _facts(
    scenario: Scenario, policy: PolicySpec, outcome: Outcome, summary: Summary, predictions: Predictions
) -> dict[str, object]:
    """What run.json says; figures that came later only where there are any."""
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
        "predictions": predictions.data(),
        "summary": asdict(summary),
    }
