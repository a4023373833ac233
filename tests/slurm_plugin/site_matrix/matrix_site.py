"""The site of the matrix: a cluster with features, partitions and limits, and jobs that others may stop."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from analysis.studies.accounting_database import add_accounting
from dally.words import plural
from slurm_plugin.client.slurm import State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.submit.hints import site_lua
from tests.slurm_plugin.live_site import LiveSite

_LUA = Path(__file__).parents[3] / "slurm_plugin" / "site" / "job_submit.lua"

NODES = 6
GPUS = 4
CPUS = 16
FEATURES = {"n1": "a,ib", "n2": "a", "n3": "b,ib", "n4": "b", "n5": "c,ib", "n6": "c"}
"""Those of a rack have a letter in common."""

OURS = ("gpu", "east", "west", "short", "vip")
USER = "dally-alice"
"""An ordinary user, whose jobs without a script job_submit.lua sees; root's it leaves alone."""

OTHER = "other"
"""A partition over all nodes that is not Dally's."""

_PARTITIONS = (
    "PartitionName=east Nodes=n[1-3] MaxTime=INFINITE",
    "PartitionName=west Nodes=n[4-6] MaxTime=INFINITE",
    "PartitionName=short Nodes=n[1-6] MaxTime=5 MaxNodes=2",
    "PartitionName=vip Nodes=n[1-6] MaxTime=INFINITE",
)
_ACCOUNTING = (
    "AccountingStorageEnforce=limits,qos",
    "PriorityType=priority/multifactor",
    "PriorityWeightQOS=10000",
    "PriorityWeightFairshare=1000",
    "PriorityCalcPeriod=1",
)
_QOS = {
    "group": "GrpTRES=gres/gpu=4",
    "each": "MaxTRESPerUser=gres/gpu=4",
    "few": "MaxJobsPerUser=1",
    "high": "Priority=1000",
    "slim": "MaxTRESPerJob=gres/gpu=2",
    "wide": "MinTRESPerJob=gres/gpu=2",
    "thin": "MaxTRESPerNode=gres/gpu=2",
    "brief": "MaxTRESMinsPerJob=gres/gpu=8",
    "running": "GrpTRESRunMins=gres/gpu=250",
    "pot": "GrpTRESMins=gres/gpu=100000",
    "spent": "GrpTRESMins=gres/gpu=0",
}
_ACCOUNTS = {"small": "GrpTRES=gres/gpu=4", "single": "", "busy": "", "idle": ""}

_SCRIPTS = {
    "sleep.sh": "#!/bin/sh\nsleep $1\n",
    "until.sh": "#!/bin/sh\nuntil [ -e go ]; do sleep 0.2; done\n",
    "fail.sh": "#!/bin/sh\nsleep $1\nexit 1\n",
    "train.sh": "#!/bin/bash\ntrap 'exit 85' USR1\nwhile :; do sleep 1 & wait $!; done\n",
    "again.sh": (
        "#!/bin/bash\n[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] && exit 0\n"
        "until [ -e go ]; do sleep 0.2; done\nscontrol requeue $SLURM_JOB_ID\nsleep 600\n"
    ),
}

RUNS_S = 90.0
"""What can start is given so long, and a job a third of it to say why it waits; tests have more patience."""


class UnmetError(Exception):
    """Something is not as a user would want it; the message says what really happens."""


class MatrixSite:
    """What rows do and see.

    Attributes:
        live: The cluster and its controller.
        runs_s: How long what can start is given, seconds.
        hurt: What others suffered in this row.
    """

    def __init__(self, live: LiveSite, runs_s: float = RUNS_S) -> None:
        self.live, self.slurm, self.runs_s = live, live.local_slurm, runs_s
        self.hurt: list[str] = []
        self._began_s = time.time()
        self._programs: list[subprocess.Popen[bytes]] = []

    # What jobs do.

    def submit(self, *options: str, script: str = "sleep.sh", seconds: int = 600) -> str:
        """A job as its user submits it, of one minute if it says nothing else; its number.

        Raises:
            UnmetError: It is refused.
        """
        try:
            return self.live.submit("--time=1", *options, script, str(seconds))
        except AssertionError as error:
            raise UnmetError(f"submission is refused: {error}") from error

    def others(self, *options: str, seconds: int = 600) -> str:
        """A job that is not Dally's, which starts at once and which nobody stops; its number."""
        words = ("--parsable", f"--partition={OTHER}", "--output=/dev/null", *options)
        job = self.slurm.run("sbatch", *words, f"--wrap=sleep {seconds}").strip()
        self.runs(job)
        return job

    def others_on(self, *nodes: str, gpus: int = GPUS, cpus: int = 1, memory_mb: int = 100) -> list[str]:
        """Such a job on each of some nodes."""
        asked = (f"--gres=gpu:{gpus}",) if gpus else ()
        more = (f"--cpus-per-task={cpus}", f"--mem={memory_mb}")
        return [self.others(*asked, *more, f"--nodelist={node}") for node in nodes]

    def interactive(self, program: str, *options: str) -> str:
        """A job without a script, by `salloc` or `srun`, as its user starts it; its number."""
        name = f"{program}-{len(self._programs)}"
        words = ("--time=1", "--partition=gpu", f"--job-name={name}", *options, "sleep", "600")
        self._programs.append(
            subprocess.Popen(
                self.slurm.cluster.argv("runuser", "-u", USER, "--", program, *words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        asked = ("squeue", "-h", "-o", "%i", f"--name={name}")
        self.wait(lambda: self.slurm.run(*asked), f"Slurm to show the job of {program}")
        return self.slurm.run(*asked).strip()

    def victims(self, count: int, gpus: int = GPUS) -> None:
        """So many jobs on a node each that Dally may stop for a shorter one, running."""
        if not count:
            return
        asked = ("--time=60", f"--array=1-{count}", f"--gres=gpu:{gpus}", "--mem-per-cpu=100")
        stops = ("--checkpoint-signal=USR1", "--checkpoint-grace=30")
        array = self.live.submit(*asked, *stops, "train.sh")
        for task in range(1, count + 1):
            self.runs(f"{array}_{task}")

    def cancel(self, *jobs: str) -> None:
        """Cancel jobs and wait until they have left."""
        self.slurm.run("scancel", *jobs)
        self.wait(lambda: all(self._state(job) is State.ENDED for job in jobs), "cancelled jobs to leave")

    # What is expected.

    def wait(self, holds: Callable[[], object], what: str, said: Callable[[], str] = lambda: "") -> None:
        """Wait until something holds.

        Args:
            holds: Whether it does.
            what: What it is, in words.
            said: Says why a job does not start.

        Raises:
            UnmetError: It does not hold in time.
        """
        try:
            self.live.wait_for(holds, what, self.runs_s)
        except AssertionError as error:
            told = said()
            raise UnmetError(f"does not start; it says {told}" if told else str(error)) from error

    def runs(self, job: str, *on: str, gpus: int = 0) -> str:
        """Wait until a job runs; where.

        Args:
            job: Its number.
            on: The sets of nodes, as Slurm folds them, of which it must have one; none: any will do.
            gpus: So many GPUs it must have; 0 for any number.

        Raises:
            UnmetError: It does not run, or elsewhere, or with other GPUs.
        """
        self.wait(lambda: self._state(job) is not State.PENDING, "a job to start", lambda: self.why(job))
        shown = self.live.jobs()[job]
        if shown.state is not State.RUNNING and not (shown.state is State.ENDED and shown.start_s):
            raise UnmetError(f"does not run but is {shown.state_name}")
        where = self.slurm.run("squeue", "-h", "--states=all", "-r", "-j", job, "-o", "%N").strip()
        if on and where not in on:
            raise UnmetError(f"runs on {where}, not on {' or '.join(on)}")
        if gpus and (held := sum(shown.gpus.values())) != gpus:
            raise UnmetError(f"has {held} GPUs, not {gpus}")
        return where

    def placed(self, job: str, *on: str, gpus: int = 0) -> None:
        """Wait until a job runs where Dally put it.

        Raises:
            UnmetError: See `runs`; or Slurm schedules it.
        """
        where = self.runs(job, *on, gpus=gpus)
        self.live.cycles(2)
        if not any(each["job"] == job for each in self.live.events("start", since_s=self._began_s)):
            managed = self.live.managed().get(job)
            why = f": {managed['reason']}" if managed else ""
            raise UnmetError(f"not yet: Slurm starts it, on {where}{why}")

    def waits(self, job: str, *reasons: str) -> None:
        """Check that a job waits, says why, and that nobody is stopped for it meanwhile.

        Args:
            job: Its number.
            reasons: Words that the reason must have, all of them, in any case.

        Raises:
            UnmetError: It starts, says something else, or Slurm schedules it.
        """
        before_s = time.time()
        deadline = time.monotonic() + self.runs_s / 3
        while not self._says(job, reasons) and time.monotonic() < deadline:
            self._must_wait(job)
            time.sleep(0.3)
        self.live.cycles(5)
        self._must_wait(job)
        stopped = [each["job"] for each in self.live.events("stop", "preempt", since_s=before_s)]
        if stopped:
            self.hurt.append(f"{plural(len(set(stopped)), 'job')} stopped for one that cannot start")
        if not self._says(job, reasons):
            raise UnmetError(f"says {self.why(job)}")

    def why(self, job: str) -> str:
        """Why a job waits, as its user can find out, and who says so."""
        managed = self.live.managed().get(job)
        if managed is not None:
            return f"“{managed['reason']}”"
        shown = self.live.jobs().get(job)
        return f"“{shown.reason}” (Slurm schedules it)" if shown else "nothing: Slurm does not know it"

    def _says(self, job: str, reasons: tuple[str, ...]) -> bool:
        said = self.why(job).lower()
        managed = self.live.managed().get(job)
        mine = managed is not None and managed["state"] in ("ineligible", "pending")
        return mine and all(word.lower() in said for word in reasons)

    def _must_wait(self, job: str) -> None:
        if self._state(job) is not State.PENDING:
            where = self.slurm.run("squeue", "-h", "--states=all", "-j", job, "-o", "%T %N").strip()
            raise UnmetError(f"does not wait but is {where}")

    def _state(self, job: str) -> State:
        shown = self.live.jobs().get(job)
        return State.ENDED if shown is None else shown.state

    # Rows begin and end on an empty cluster.

    def begin(self) -> None:
        """A row begins."""
        self.hurt, self._began_s = [], time.time()

    def end(self) -> None:
        """Let all jobs of the row leave, and note what was done to others and what is left.

        Raises:
            UnmetError: The cluster is not as before.
        """
        failed = self.live.events("start_failed", since_s=self._began_s)
        tries = self.live.events("start", "start_failed", since_s=self._began_s)
        in_vain = set[str]()
        for stop in self.live.events("preempt", since_s=self._began_s):
            for taker in stop["by"]:
                later = [each["event"] for each in tries if each["job"] == taker and each["t"] >= stop["t"]]
                in_vain |= {stop["job"]} if later[:1] == ["start_failed"] else set()
        if in_vain:
            self.hurt.append(f"{plural(len(in_vain), 'job')} stopped in vain")
        if failed:
            self.hurt.append(f"Slurm refused a start: {failed[0]['reason'].partition(': ')[2]}")
        for user in ("root", USER):
            self.slurm.attempt("scancel", f"--user={user}")
        for program in self._programs:
            program.terminate()
            program.wait()
        self._programs.clear()
        for reservation in self.live.slurm.reservations():
            if not reservation.name.startswith("dally_"):
                self.slurm.run("scontrol", "delete", f"ReservationName={reservation.name}")
        try:
            self.live.wait_for(lambda: not self.live.leaked(), "all to be free", self.runs_s)
        except AssertionError:
            self.hurt.append(f"left behind: {self.live.leaked()}")


@contextmanager
def matrix_site(folder: Path, accounting: bool, runs_s: float = RUNS_S) -> Iterator[MatrixSite]:
    """Six nodes of four GPUs in three racks, with all that the rows need, and a controller under `srtf`.

    Args:
        folder: Where the cluster lies.
        accounting: With slurmdbd, QOS and accounts.
        runs_s: How long what can start is given, seconds.
    """
    extra = (*_PARTITIONS, "Licenses=matlab:1", *(_ACCOUNTING if accounting else ()))
    spec = LocalClusterSpec(
        folder,
        NODES + 1,
        3,
        GPUS,
        gpu_types=("h100", "h100", "a100"),
        cpus=CPUS,
        partitions=("gpu", OTHER),
        extra_conf=extra,
        lua_files={"job_submit.lua": _LUA.read_text(encoding="utf-8"), "dally_site.lua": site_lua(OURS, [])},
    )
    make_user(USER)
    slurm = LocalSlurm(spec)  # it has ports for the node that is added last
    slurm.spec = replace(slurm.spec, nodes=NODES)
    slurm.start()
    try:
        if accounting:
            _add_limits(slurm)
        for node, features in FEATURES.items():
            has = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
            slurm.run("scontrol", "update", f"NodeName={node}", *has)
        for name, text in _SCRIPTS.items():
            (slurm.work / name).write_text(text, encoding="ascii")
        live = LiveSite(slurm, OURS, policy="srtf", knowledge="limits")
        if accounting:
            _use_cluster(live)
        live.start_controller()
        try:
            yield MatrixSite(live, runs_s)
        finally:
            live.end_controller()
    finally:
        slurm.stop()


def _use_cluster(live: LiveSite) -> None:
    """Have root use the cluster: counted within a row, its first use would lower later jobs' priority."""
    run = live.local_slurm.run
    run("srun", f"--partition={OTHER}", "--gres=gpu:4", "--mem=100", "sleep", "2")
    asked = ("sshare", "--noheader", "--accounts=root", "--users=root", "--parsable2", "--format=RawUsage")
    live.wait_for(
        lambda: any(int(used or 0) for used in run(*asked).split()), "use to be counted", 3 * RUNS_S
    )


def _add_limits(slurm: LocalSlurm) -> None:
    add_accounting(slurm, dict.fromkeys(_ACCOUNTS, ("root", USER)))
    for name, limit in _QOS.items():
        slurm.run("sacctmgr", "--immediate", "add", "qos", name, limit)
    slurm.run("sacctmgr", "--immediate", "modify", "user", "root", "set", f"qos+={','.join(_QOS)}")
    for name, limit in _ACCOUNTS.items():
        if limit:
            slurm.run("sacctmgr", "--immediate", "modify", "account", name, "set", limit)
    single = ("where", "user=root", "account=single", "set", "MaxJobs=1")
    slurm.run("sacctmgr", "--immediate", "modify", "user", *single)
