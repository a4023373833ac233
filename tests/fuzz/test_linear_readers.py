"""No text that a user, Slurm or a site writes takes a reader more time than its length accounts for.

Neither copies nor backtracking show in a count of calls or lines. So the processor time of a text is held
against that of four times the text, read right after it: what else runs on the machine is not in it.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.cluster.slurm_gres import parse_gres
from dally.config_text import parse_toml
from dally.errors import DallyError
from dally.hostlist import expand, fold
from dally.jobs.job import Job
from dally.profiles.gpu_types import slurm_type
from dally.traces.load import pick_format
from dally.traces.rows import JobCollector
from slurm_plugin.client.job_json import count_gpus, read_jobs, read_tres
from slurm_plugin.client.node_text import count_shared, read_nodes, read_partitions, read_reservations
from slurm_plugin.client.resource_limits import read_limits, with_spent
from slurm_plugin.client.scontrol import answers, first_line
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.constraint import satisfies
from slurm_plugin.controller.eligibility import SeenJobs, never_satisfied, satisfied
from slurm_plugin.controller.job_requests import demand
from slurm_plugin.controller.limit_use import licenses_asked
from slurm_plugin.controller.managed_job import NEW, IneligiblePhase, ManagedJob
from slurm_plugin.request import Request, decode
from slurm_plugin.submit.advice import handles
from slurm_plugin.submit.command_plan import read_command
from slurm_plugin.submit.submission import (
    build_request,
    fixed_reason,
    overlooked,
    read_submission,
    unread_reason,
)

LONGER, MOST = 4, 10.0
"""Four times the text takes four times as long where time is linear, sixteen times where it is a square."""

ENOUGH_S = 0.01
"""Processor time from which on two readings can be compared."""

LONGEST = 1 << 16
"""A text of so many letters that is read in less time is read fast enough."""

Read = Callable[[str], object]
Text = Callable[[int], str]

PIECES = (
    *("a", "1", " ", "\n", "\t\n", "(", "[", ",", ";", "|", "=", ":", "'", '"', "\\", "\\\n", "#"),
    *("a ", "a,", "a=", " a=b", "a=b|", "a=b\n", "1.", "a.", "[1", "a: ", "[1]", "'a", '"a".', ">"),
    *("#\n", "{", "\0", "\r\n", "<<A ", "<<A\n", "$A ", "${A:-"),
    *(",gpu:1(", "gres/gpu:", "--tp $A\n", ";trap "),
)
"""What regular expressions and loops stumble on, for all readers."""


def repeated(piece: str, before: str = "", after: str = "") -> Text:
    """A piece as often as asked; `{}` in it is a number that goes up."""
    if "{}" not in piece:
        return lambda times: before + piece * times + after
    return lambda times: before + "".join(piece.replace("{}", str(at)) for at in range(times)) + after


def submitted(script: str) -> None:
    """What `dally-sbatch` reads of a script."""
    found = read_submission((), {}, script.encode, dict)
    unread_reason(found)
    fixed_reason(found.settings, ("gpu",))
    list(overlooked(found))
    build_request(found, "ab")


def trace(text: str) -> None:
    """A trace, of whatever format."""
    pick_format("trace", text or " ").read(text, JobCollector("trace", skip_bad=True))


def limits(text: str) -> None:
    """What sacctmgr shows of associations, and scontrol of what is spent."""
    with_spent(read_limits("", text), text)


def depends(text: str) -> None:
    """A job's dependency, in a queue of as many jobs."""
    others = [SlurmJob(f"{at}", 0.0, State.ENDED, "COMPLETED", array_id="7") for at in range(text.count(","))]
    job = SlurmJob("x", 0.0, State.PENDING, dependency=text)
    seen = SeenJobs({other.job_id: other for other in others})
    satisfied(job, seen)
    never_satisfied(ManagedJob(Job("x", 0.0, 1, 1.0), Request(), IneligiblePhase(0.0, NEW)), job, seen)


def of_gpus(text: str) -> None:
    """What a job asks for."""
    demand(SlurmJob("1", 0.0, State.PENDING, tres_per_node=text), Request())


READERS: dict[str, Read] = {
    "script": submitted,
    "trainer": lambda text: read_command(f"--tensor-model-parallel-size {text}", lambda _: None, 8, {}),
    "trainer with a file": lambda text: read_command(f"--job.config_file=c {text}", lambda _: None, 8, {}),
    "trainer's file": lambda text: read_command("--job.config_file=a", lambda _: text),
    "trap": lambda text: handles(text, "USR2"),
    "request": lambda text: decode(f"dally:{text}"),
    "constraint": lambda text: satisfies(text, frozenset()),
    "resources": of_gpus,
    "licences": licenses_asked,
    "dependency": depends,
    "host list": expand,
    "host": lambda text: fold([text, "a"]),
    "TOML": parse_toml,
    "trace": trace,
    "GPU type": slurm_type,
    "Gres": parse_gres,
    "TRES": lambda text: (count_gpus(text), count_shared(text), read_tres.__wrapped__(text)),
    "nodes": lambda text: read_nodes(f"NodeName=a {text}"),
    "partitions": lambda text: (read_partitions(f"PartitionName=a {text}"), read_reservations(text)),
    "jobs": read_jobs,
    "limits": limits,
    "answers": lambda text: (answers(text, 1, "mark"), first_line(text)),
}


@contextmanager
def no_collection() -> Iterator[None]:
    """The collector of garbage looks at all objects, now and then."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def spent_s(read: Read, text: str) -> float:
    """Processor time of one reading; what is wrong with the text may be told by a `DallyError`."""
    with no_collection(), suppress(DallyError):
        began_s = time.thread_time()
        try:
            read(text)
        finally:
            spent = time.thread_time() - began_s
    return spent


def times_as_long(read: Read, text: Text, enough_s: float) -> float:
    """How much longer four times the text takes, once the time is long enough; 0 if it never is."""
    times = 250
    while (once := spent_s(read, text(times))) < enough_s:
        if len(text(times)) > LONGEST:
            return 0.0
        times *= 2
    return spent_s(read, text(LONGER * times)) / once


def assert_linear(read: Read, text: Text, enough_s: float = ENOUGH_S) -> None:
    tried: list[float] = []
    while len(tried) < 3 and (not tried or tried[-1] > MOST):
        tried.append(times_as_long(read, text, enough_s))
    assert min(tried) <= MOST, f"{LONGER} times the text takes {min(tried):.0f} times as long"


@pytest.mark.parametrize("name", READERS)
def test_time_grows_as_any_text_does(name: str) -> None:
    for piece in PIECES:
        try:
            assert_linear(READERS[name], repeated(piece, after="!"))
        except AssertionError as error:
            raise AssertionError(f"{piece!r}: {error}") from error


ROWS: list[tuple[str, Text]] = [
    ("script", repeated("a ", "#SBATCH ")),
    ("script", repeated("--a{} ", "#SBATCH ")),
    ("script", repeated("a", "#SBATCH -J '", "'")),
    ("script", repeated("x|", "#SBATCH -C a[", "]")),
    ("constraint", lambda times: f"{'a' * times}[{'x|' * times}x]"),
    ("trainer", repeated(" --tensor-model-parallel-size $A", "$A", "\nA=8\n")),
    ("trainer with a file", repeated("cat <<B > $A\nB\n", after="\nA=1\n")),
    ("trainer with a file", repeated("cat <<B{} > c\n", "\n")),
    ("trainer with a file", repeated(" ", "\nA=b", "!")),
    ("host list", lambda times: f"{'a' * times}[1-{times}]"),
    ("host", repeated("1", after="a")),
    ("TOML", repeated("a.", after="b = 1")),
    ("TOML", repeated('"a".', after="b = 1")),
    ("trainer's file", repeated("a.", after="b = 1")),
    ("trace", repeated("a{},", "job_id,submit_s,gpus,duration_s,")),
    ("trace", repeated("{},0,1,9\n", "job_id,submit_s,gpus,duration_s\n")),
    (
        "trace",
        repeated(
            "gres/gpu:", "JobIDRaw|Submit|State|ElapsedRaw|AllocTRES\n1|2024-01-01T00:00:00|COMPLETED|9|"
        ),
    ),
    ("dependency", repeated("afterok:{},")),
    ("dependency", repeated("afterany:7_*,")),
    ("limits", repeated("a{}||||gres/gpu=1|||||||||\n")),
    ("limits", lambda times: "".join(f"a{at}|||a{at // 8}|||||||||||\n" for at in range(times))),
    ("limits", repeated("a|u{}|p||gres/gpu=1|||||||||\n")),
]
"""Texts that a reader understands."""


@pytest.mark.parametrize(("name", "text"), ROWS)
def test_time_grows_as_a_sound_text_does(name: str, text: Text) -> None:
    assert_linear(READERS[name], text)
    assert_linear(READERS[name], text, 5 * ENOUGH_S)


CLUSTERS: list[tuple[str, Text]] = [
    ("slurm.conf", repeated("\n", after="a")),
    ("slurm.conf", repeated("a=b\\\n", "NodeName=n ")),
    ("slurm.conf", repeated("a{}=b ", "NodeName=n ")),
    ("slurm.conf", repeated("NodeName=n{} Gres=gpu:8\n")),
    ("slurm.conf", repeated("((", "NodeName=n Gres=")),
    ("slurm.conf", repeated(",a", "NodeName=n Gres=")),
    ("topology.conf", repeated("SwitchName=s{} Nodes=n{}\n")),
    ("topology.conf", lambda times: "".join(f"SwitchName=s{at} Switches=s{at + 1}\n" for at in range(times))),
    ("topology.conf", repeated("\n", "SwitchName=s Nodes=n", "a")),
    ("cluster.toml", repeated("[[machines]]\nnames = 'n{}'\n[[switches]]\nname = 's{}'\nmachines = 'n{}'\n")),
    ("hosts.csv", repeated("{},D,P,A\n", "ip,DSW,PSW,ASW\n")),
]


@pytest.mark.parametrize(("file", "text"), CLUSTERS)
def test_time_grows_as_the_files_of_a_cluster_do(file: str, text: Text, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=n Gres=gpu:8\n")

    def read(text: str) -> None:
        (tmp_path / file).write_text(text)
        load_cluster(tmp_path / file)

    assert_linear(read, text)
    assert_linear(read, text, 5 * ENOUGH_S)
