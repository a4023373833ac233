"""Holds one drill: brings a cluster up, lets jobs run on it, breaks something, and judges what happened."""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

from dally.errors import DallyError, InputError
from dally.jobs.job import Job
from dally.runs.records import read_events
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, temporary_slurm
from testbed.drills import checks
from testbed.drills.catalogue import Drill
from testbed.drills.fault_context import FAULTS, FaultContext, read_faults
from testbed.drills.health import HEALTH, read_health, watch_health
from testbed.drills.job_executions import read_executions
from testbed.drills.report import DrillResult, event_words, fault_words
from testbed.drills.workload import EMULATED_TFLOPS, JOBS, POLICY, SHAPE, drill_inputs
from testbed.running.batch import collect_run, topology_of
from testbed.running.controller import ControllerFiles
from testbed.running.driver import Driver
from testbed.running.folder import RunState, begin_run, new_name, read_inputs, read_state

_LONGEST_S = 240.0
_LOGS = ("slurmctld.log", "jobcomp.txt")


def hold_drill(
    drill: Drill, out: Path, seed: int, stop: Callable[[], bool], jobs: Sequence[Job] = JOBS
) -> DrillResult:
    """Hold one drill; its run folder is made in the folder `out`.

    Args:
        drill: Which.
        out: The folder.
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
    with temporary_slurm(SHAPE.spec) as local_slurm:
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
    executions, faults = read_executions(folder, inputs), read_faults(folder / FAULTS)
    events = list(read_events(folder))
    ends_s = [run.end_s for execution in executions for run in execution.runs]
    samples = read_health(folder / HEALTH)
    gpus = {machine.name: machine.gpus for machine in inputs.topology.machines}
    found = [
        checks.none_lost(executions),
        checks.none_twice(executions),
        checks.no_gpu_shared(executions, gpus),
        checks.controller_back(faults, samples, drill.back_within_s, max(ends_s, default=0.0)),
        checks.replays_same(ControllerFiles(folder).facts),
        checks.fault_struck(events, drill.shows),
    ]
    if trouble:
        found.append(checks.DrillCheck("the drill could be held", False, trouble))
    words = fault_words(faults, origin_s)
    return DrillResult(drill.name, drill.says, words, event_words(events), found, round(wall_s, 1))


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
    context = FaultContext(local_slurm, folder, Path(state.base), Random(f"{drill.name} {seed}"), over.is_set)
    drill.prepares(context)
    trouble: list[str] = []

    def inject() -> None:
        """In a thread of its own, cause the fault, and watch the controller until the run is over."""
        config = ControllerFiles(context.base).config
        try:
            context.until(config.exists, "the controller was to be started")
            watch = watch_health(local_slurm.cluster, config, context.base / HEALTH)
            try:
                drill.breaks(context)
                over.wait()
            finally:
                watch.stop()
        except (DallyError, OSError) as error:
            trouble.append(str(error))

    injector = Thread(target=inject)
    injector.start()
    try:
        driver = Driver(context.cluster, folder, state, inputs, _LONGEST_S)
        note = driver.run(lambda: stop() or bool(trouble)).note
    except DallyError as error:
        note = str(error)
    finally:
        over.set()
        injector.join()
    collect_run(folder, local_slurm.cluster)
    return "; ".join([*trouble, *([note] if note and not trouble else [])])
