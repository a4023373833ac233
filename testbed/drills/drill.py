"""Holds one drill: brings a cluster up, lets jobs run on it, breaks something, and judges what happened."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

from dally.errors import DallyError, InputError
from dally.jobs.job import Job
from dally.runs.records import read_events
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from testbed.drills import judge
from testbed.drills.catalogue import Drill
from testbed.drills.pulse import PULSE, read_pulse, start_pulse
from testbed.drills.report import DrillResult, event_words, fault_words
from testbed.drills.scene import FAULTS, Scene, read_faults
from testbed.drills.stories import read_stories
from testbed.drills.workload import EMULATED_TFLOPS, JOBS, POLICY, SHAPE, drill_inputs
from testbed.running.campaign import collect_run, topology_of
from testbed.running.control import Desk
from testbed.running.driver import Driver
from testbed.running.folder import RunState, begin_run, new_name, read_inputs, read_state

_LONGEST_S = 240.0
_LOGS = ("slurmctld.log", "jobcomp.txt")
_FACTS = "facts.jsonl"


def hold_drill(
    drill: Drill, out: Path, seed: int, stop: Callable[[], bool], jobs: Sequence[Job] = JOBS
) -> DrillResult:
    """Hold one drill.

    Args:
        drill: Which.
        out: Its run folder is made in this folder.
        seed: Of what is left to chance.
        stop: True ends it early.
        jobs: What runs meanwhile.

    Raises:
        InputError: There is something in its folder.
        DallyError: The cluster does not come up.
    """
    folder = out / drill.name
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds something already; name another --out")
    begun_s = time.monotonic()
    with _local_slurm() as local_slurm:
        trouble = _run(drill, local_slurm, folder, seed, stop, jobs)
        for name in _LOGS:
            with suppress(OSError):
                shutil.copy(local_slurm.spec.folder / "log" / name, folder / name)
    return judged(drill, folder, trouble, time.monotonic() - begun_s)


def judged(drill: Drill, folder: Path, trouble: str, wall_s: float) -> DrillResult:
    """What came of a drill, from its run folder.

    Args:
        drill: Which.
        folder: Its run folder.
        trouble: Why it did not go as it should; empty if it did.
        wall_s: How long it took.
    """
    state, inputs = read_state(folder), read_inputs(folder)
    origin_s = (state.origin_s if state else None) or 0.0
    stories, faults = read_stories(folder, inputs), read_faults(folder / FAULTS)
    events = list(read_events(folder))
    ends_s = [span.end_s for story in stories for span in story.spans]
    beats = read_pulse(folder / PULSE)
    gpus = {machine.name: machine.gpus for machine in inputs.topology.machines}
    checks = [
        judge.none_lost(stories),
        judge.none_twice(stories),
        judge.no_gpu_shared(stories, gpus),
        judge.controller_back(faults, beats, drill.back_within_s, max(ends_s, default=0.0)),
        judge.replays_same(folder / _FACTS),
        judge.fault_struck(events, drill.shows),
    ]
    if trouble:
        checks.append(judge.Requirement("the drill could be held", False, trouble))
    words = fault_words(faults, origin_s)
    return DrillResult(drill.name, drill.says, words, event_words(events), checks, round(wall_s, 1))


@contextmanager
def _local_slurm() -> Iterator[LocalSlurm]:
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    local_slurm = LocalSlurm(SHAPE.spec(folder))
    try:
        local_slurm.start()
        yield local_slurm
    finally:
        local_slurm.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    drill: Drill,
    local_slurm: LocalSlurm,
    folder: Path,
    seed: int,
    stop: Callable[[], bool],
    jobs: Sequence[Job],
) -> str:
    """Run the workload with the fault in its midst; why it did not go as it should, empty if it did."""
    inputs = drill_inputs(topology_of(local_slurm.cluster, None), jobs)
    run = new_name(folder.parent, drill.name)
    facts = {"seed": seed, "drill": drill.name}
    tflops = dict.fromkeys(inputs.topology.gpu_types, EMULATED_TFLOPS)
    state = RunState(run, POLICY, str(local_slurm.work / run), tflops, "gloo", facts)
    begin_run(folder, state, inputs)
    over = Event()
    scene = Scene(local_slurm, folder, Path(state.base), Random(f"{drill.name} {seed}"), over.is_set)
    drill.prepares(scene)
    trouble: list[str] = []
    breaker = Thread(target=_break, args=(drill, scene, over, trouble))
    breaker.start()
    try:
        driver = Driver(scene.cluster, folder, state, inputs, _LONGEST_S)
        note = driver.run(lambda: stop() or bool(trouble)).note
    except DallyError as error:
        note = str(error)
    finally:
        over.set()
        breaker.join()
    collect_run(folder, local_slurm.cluster)
    return "; ".join([*trouble, *([note] if note and not trouble else [])])


def _break(drill: Drill, scene: Scene, over: Event, trouble: list[str]) -> None:
    """In a thread of its own: break it, and watch the controller until the run is over."""
    config = Desk(scene.base).config
    try:
        scene.until(config.exists, "the controller was to be started")
        pulse = start_pulse(scene.local_slurm.cluster, config, scene.base / PULSE)
        try:
            drill.breaks(scene)
            over.wait()
        finally:
            pulse.stop()
    except (DallyError, OSError) as error:
        trouble.append(str(error))
