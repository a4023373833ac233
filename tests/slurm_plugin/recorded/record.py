"""Records what this machine's Slurm prints, for the parsers' tests.

Run as root, as README.md says; it takes two minutes and fills the folder of the version.
"""

import re
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.client.command_line import json_option
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

USER = "dally-alice"
FORMAT = ("LC_ALL=C.UTF-8", "SLURM_BITSTR_LEN=0", "SLURM_TIME_FORMAT=%s")
SLEEP = "--wrap=sleep 600"
STUBBORN = "--wrap=trap '' TERM; while :; do sleep 1; done"
STRANGE = "a|b \"c\" 'd' $(e) `f` \\ %j é 😀 <g>\nsecond line\ttab"

HELD = {
    "held": ["-N2", "--gres=gpu:8", "--comment=dally:model=vgg11&signal=USR1&tag=1f my words"],
    "held-no-requeue": ["--no-requeue", "--gres=gpu:h100:1", "--time=90"],
    "gpus": ["--gpus=6"],
    "gpus-typed": ["--gpus=h100:12", "-N2-3"],
    "gpus-per-task": ["--gpus-per-task=2", "-n4"],
    "gpus-per-node": ["--gpus-per-node=h100:4", "-N2", "--ntasks-per-node=2"],
    "gpus-per-socket": ["--gpus-per-socket=2", "--sockets-per-node=2"],
    "switches": ["-N2", "--gres=gpu:1", "--switches=1@05:00"],
    "exclusive": ["--exclusive", "--gres=gpu:1"],
    "constraint": ["--constraint=h100", "--gres=gpu:1", "--mem=1000", "-c4"],
    "nodelist": ["-N2", "-w", "n1,n3", "--exclude=n[4-6]"],
    "two-partitions": ["-p", "gpu,other", "--gres=gpu:1"],
    "reservation": ["--reservation=active", "--gres=gpu:1"],
    STRANGE: [f"--comment={STRANGE}", "--gres=gpu:1"],
    "array-held": ["--array=1,3-5%2", "--gres=gpu:1"],
    "array": ["--array=1-6:2%1", "--gres=gpu:1", "-w", "n4"],
}


@dataclass(frozen=True, slots=True)
class Recorder:
    """A local cluster and the folder that its recordings go to."""

    local_slurm: LocalSlurm
    folder: Path

    def submit(self, name: str, *options: str, user: str | None = USER) -> str:
        """Submit a job; its number."""
        fixed = ("sbatch", "--parsable", "--output=/dev/null", "--time=60", f"--job-name={name}")
        return self.local_slurm.run(*fixed, *options, user=user).strip()

    def started(self, name: str, *options: str) -> str:
        """Submit a job and wait until it runs."""
        job = self.submit(name, *options)
        self.wait_state(job, "RUNNING")
        return job

    def wait_state(self, job: str, state: str) -> None:
        """Wait until a job is in a state."""
        show = ("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}")
        self.local_slurm.wait_for(
            lambda: state in self.local_slurm.run(*show).split(), f"job {job} to be {state}", 100
        )

    def control(self, *words: str) -> None:
        """Run scontrol as root."""
        self.local_slurm.run("scontrol", *words)

    def save(self, name: str, *command: str) -> None:
        """Keep what a command prints, without this machine's name and folder."""
        done = self.local_slurm.attempt("env", *FORMAT, *command)
        for ending, text in (("", done.stdout), (".err", done.stderr)):
            if text:
                (self.folder / f"{name}{ending}").write_text(self.without_machine(text), encoding="utf-8")

    def without_machine(self, text: str) -> str:
        """The text with a name and a folder that are the same on all machines; JSON may escape slashes."""
        for slash in ("/", "\\/"):
            text = text.replace(str(self.local_slurm.spec.folder).replace("/", slash), f"{slash}lab")
        return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "head", text)


def reserve(slurm: Recorder) -> None:
    """One reservation that is active and one to come."""
    common = ("create", "reservation", "Users=root,dally-alice", "Flags=IGNORE_JOBS")
    slurm.control(*common, "ReservationName=active", "StartTime=now", "Duration=60", "Nodes=n7")
    slurm.control(*common, "ReservationName=future", "StartTime=now+2hours", "Duration=60", "Nodes=n[1-3],n7")


def submit_all(slurm: Recorder) -> None:
    """Bring jobs and nodes into as many states as there are."""
    timeout = slurm.submit("timeout", "--time=1", "--gres=gpu:1", "-w", "n4", SLEEP)
    held = {name: slurm.submit(name, "-H", *options, SLEEP) for name, options in HELD.items()}
    slurm.control("release", f"{held['array']}_3")
    held_by_root = slurm.submit("held-by-root", "-H", "--gres=gpu:1", SLEEP)
    slurm.control("hold", held_by_root)
    slurm.submit("begin", "--begin=now+1hour", "--gres=gpu:1", SLEEP)
    slurm.submit("dependency", f"--dependency=afterok:{held['held']}", "--gres=gpu:1", SLEEP)
    slurm.submit("het", "-N1", "--gres=gpu:1", "-H", ":", "-N2", "--gres=gpu:2", "-H", SLEEP)
    slurm.wait_state(slurm.submit("completed", "--gres=gpu:1", "--wrap=true"), "COMPLETED")
    slurm.wait_state(slurm.submit("failed", "--gres=gpu:1", "--wrap=exit 3"), "FAILED")
    cancelled = slurm.submit("cancelled", "-H", "--gres=gpu:1", SLEEP)
    slurm.local_slurm.run("scancel", cancelled, user=USER)
    run_jobs(slurm)
    slurm.wait_state(timeout, "TIMEOUT")
    slurm.submit("resources", "-N8", "--gres=gpu:8", SLEEP)


def run_jobs(slurm: Recorder) -> None:
    """The jobs that ran or run, and what was done to them and to their nodes."""
    slurm.started("running", "-N2", "-w", "n1,n2", "--gres=gpu:2", "-c2", SLEEP)
    slurm.started("exclusive-running", "-w", "n3", "--exclusive", "--gres=gpu:8", SLEEP)
    slurm.started("gpus-running", "--gpus=11", "-N2", "-w", "n1,n2", SLEEP)
    slurm.started("no-gpu-running", "-w", "n4", "-p", "other", SLEEP)
    suspended = slurm.started("suspended", "-w", "n4", "--gres=gpu:2", SLEEP)
    slurm.control("suspend", suspended)
    requeued = slurm.started("requeued", "-w", "n4", "--gres=gpu:1", SLEEP)
    slurm.control("requeuehold", "Incomplete", requeued)
    slurm.wait_state(requeued, "PENDING")
    slurm.started("on-draining", "-w", "n5", "--gres=gpu:1", SLEEP)
    slurm.started("node-fail", "-w", "n9", "--gres=gpu:1", "--no-requeue", SLEEP)
    slurm.started("node-fail-requeued", "-w", "n9", "--gres=gpu:1", SLEEP)
    change_nodes(slurm)


def change_nodes(slurm: Recorder) -> None:
    """Take nodes away in all ways there are."""
    slurm.control("update", "NodeName=n5,n8", "State=DRAIN", "Reason=it is | broken")
    for name in ("n6", "n9"):
        slurm.local_slurm.kill_node(name)
    slurm.local_slurm.wait_for(lambda: "idle*" in slurm.local_slurm.node_states(), "n6 to be seen dead", 200)
    slurm.control("update", "NodeName=n9", "State=DOWN", "Reason=it is | broken")


def complete(slurm: Recorder) -> None:
    """Two jobs that are coming to their end and do not want to."""
    cancelled = slurm.started("completing", "-w", "n10", "--gres=gpu:1", STUBBORN)
    requeued = slurm.started("completing-requeued", "-w", "n10", "--gres=gpu:1", STUBBORN)
    slurm.control("requeuehold", requeued)
    slurm.local_slurm.run("scancel", cancelled)
    slurm.wait_state(cancelled, "COMPLETING")


def save_all(slurm: Recorder) -> None:
    """Record what is read of Slurm, then the same while slurmctld is down."""
    json = json_option(slurm.local_slurm.run("squeue", "--version"))
    for down in ("", "-down"):
        slurm.save(f"squeue{down}.json", "squeue", "--all", "--states=all", json)
        for what in ("node", "reservation"):
            command = ("scontrol", "--oneliner", "--details", "--all", "show", what)
            slurm.save(f"scontrol-{what}{down}.txt", *command)
        slurm.save(f"scontrol-ping{down}.txt", "scontrol", "ping")
        if not down:
            slurm.local_slurm.stop_controller()


def main() -> None:
    """Record everything into the folder of this Slurm's version."""
    make_user(USER)
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    local_slurm = LocalSlurm(
        LocalClusterSpec(folder, nodes=10, racks=5, extra_conf=("KillWait=60", "SlurmdTimeout=300"))
    )
    try:
        local_slurm.start()
        place = Path(__file__).parent / f"{local_slurm.version()[0]}.{local_slurm.version()[1]:02}"
        place.mkdir(exist_ok=True)
        slurm = Recorder(local_slurm, place)
        reserve(slurm)
        submit_all(slurm)
        complete(slurm)
        save_all(slurm)
    finally:
        local_slurm.stop()


if __name__ == "__main__":
    main()
