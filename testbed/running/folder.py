"""The folder of one live run: what it is to do, kept so that it can go on, or be read, after any kill."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dally.atomic_file import write_atomically
from dally.cluster import load_cluster
from dally.cluster.toml_writer import write_toml
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.files import ProfileSet, load_profiles, write_profiles
from dally.runs.records import CLUSTER
from dally.traces import load_trace
from dally.traces.common_csv import write_workload
from simulator.scenario import folder_name
from testbed.running.job_plan import JobPlan, plan_jobs

STATE = "running.json"
WORKLOAD, PROFILES = "workload.csv", "profiles"
SUBMITTED, OBSERVED, CONTROLLER = "submitted.jsonl", "observed.jsonl", "controller.jsonl"
JOBS_FOLDER = "jobs"


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run must know of itself to go on; `running.json`.

    Attributes:
        run: Its name, by which its jobs are known in Slurm.
        policy: Specification of the policy.
        base: Its folder on the head node.
        emulate_tflops: Speed of the pretended GPUs by type; None if they are real.
        backend: What carries the collectives.
        facts: Where the workload came from, for run.json.
        origin_s: When its time began, seconds since 1970; None before.
        end_s: When it was over, seconds since 1970; None before.
        note: Why it is not complete; empty if it is, or still runs.
        data: File of samples on which jobs train for real; empty: they are made up.
        companions: Each elastic job that trains for real has so many.
    """

    run: str
    policy: str
    base: str
    emulate_tflops: Mapping[str, float] | None
    backend: str
    facts: Mapping[str, Any]
    origin_s: float | None = None
    end_s: float | None = None
    note: str = ""
    data: str = ""
    companions: int = 0


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The inputs of a run, read from its folder: by these alone it can be simulated."""

    plans: tuple[JobPlan, ...]
    topology: Topology
    profiles: ProfileSet


def begin_run(folder: Path, state: RunState, inputs: RunInputs) -> None:
    """Make the folder of a run and put its inputs into it; `running.json` last, so that it says all is there.

    Raises:
        InputError: It cannot be written, or two jobs are called alike.
    """
    seen: dict[str, str] = {}
    for plan in inputs.plans:
        other = seen.setdefault(job_folder(plan.job.job_id), plan.job.job_id)
        if other != plan.job.job_id:
            raise InputError(f"jobs {other} and {plan.job.job_id} are called too much alike; rename one")
    folder.mkdir(parents=True, exist_ok=True)
    write_workload([plan.job for plan in inputs.plans], folder / WORKLOAD)
    write_atomically(folder / CLUSTER, write_toml(inputs.topology))
    models = {plan.job.model for plan in inputs.plans}
    kept = [profile for profile in inputs.profiles.profiles if profile.model.name in models]
    write_profiles(kept, folder / PROFILES)
    write_state(folder, state)


def new_name(out: Path, policy: str) -> str:
    """A name for a run that no other one has, fit for Slurm's comments and for a folder."""
    plain = "".join(char if char.isalnum() else "-" for char in f"{out.name}-{policy}")
    return f"{plain[:40]}-{secrets.token_hex(3)}"


def write_state(folder: Path, state: RunState) -> None:
    """Put the state on disk."""
    write_atomically(folder / STATE, json.dumps(asdict(state), indent=2) + "\n")


def read_state(folder: Path) -> RunState | None:
    """The state of the run in a folder; None if none has begun there.

    Raises:
        InputError: It cannot be read.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        return RunState(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not the state of a run: {error}") from error


def read_inputs(folder: Path) -> RunInputs:
    """The inputs of the run in a folder.

    Raises:
        InputError: A file is missing or wrong.
    """
    topology = load_cluster(folder / CLUSTER)
    profiles = load_profiles(folder / PROFILES, allow_mixed=True)
    plans = plan_jobs(load_trace(folder / WORKLOAD).jobs, topology, profiles)
    return RunInputs(plans, topology, profiles)


def job_folder(job_id: str) -> str:
    """The name of a job's folder: its id with what is special in paths made safe."""
    name = folder_name(job_id)
    return f"_{name}" if name.startswith(".") else name


def job_path(base: Path, job_id: str) -> Path:
    """The folder of a job below a run's folder, on the head node or fetched from there."""
    return base / JOBS_FOLDER / job_folder(job_id)


def read_text(path: Path) -> str:
    """The text of a file; empty if there is none."""
    return path.read_text("utf-8", "replace") if path.exists() else ""
