"""Tries on one job of its own what the controller will order, and takes all of it back.

The job asks for one GPU and never gets it: whatever is ordered here begins in 500 days, and the job is held
or waits for that. Its mark tells the controller to leave it alone.
"""

import re
import secrets
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dally.errors import DallyError
from slurm_plugin.admin.checks.site import Finding, Row, SiteFacts, ok, problem, warning
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.node_text import is_available, read_records
from slurm_plugin.client.orders import (
    Annotate,
    Cancel,
    Order,
    Rehold,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Requeue,
    Reserve,
    Signal,
    Unreserve,
)
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.request import MARK, TRIAL, Request, encode

JOB_NAME = "dally-doctor"
RESERVATION = "dally_doctor"
_FAR = "now+500days"
_START = re.compile(r"StartTime=\S+")
_TIMEOUT_S = 15.0


class FarAhead(CommandLine):
    """Slurm, told to begin in 500 days whatever an order has begin."""

    def _scontrol(self, lines: Sequence[str]) -> list[str]:
        return super()._scontrol([_START.sub(f"StartTime={_FAR}", line) for line in lines])


@dataclass(frozen=True, slots=True)
class _Step:
    """One order, how its outcome can be seen in the job's record and the reservations, and it in words."""

    name: str
    order: Order
    is_done: Callable[[Row, bool], bool]
    done: str


def try_orders(site: SiteFacts) -> Generator[tuple[str, Finding]]:
    """What came of each order that a controller gives, by name; nothing where none could be given.

    Closing it, or an exception in it, cancels the job, too.
    """
    if site.config is None or site.slurm_error or site.version is None or site.hint_mode:
        return
    for partition in site.config.partitions:
        nodes = sorted(
            site.gpu_nodes(partition),
            key=lambda name: (not is_available(site.nodes[name].get("State", "")), name),
        )
        if nodes:
            yield from _try_on(FarAhead(prefix=site.as_user, timeout_s=_TIMEOUT_S), site, partition, nodes[0])
            return


def _try_on(slurm: FarAhead, site: SiteFacts, partition: str, node: str) -> Generator[tuple[str, Finding]]:
    ask = f"see `rights` and `job_submit`: {site.user} must be an operator, and exempt in dally_site.lua"
    try:
        _clear(slurm, site.user)
        try:
            job_id = _submit(slurm, partition)
        except SlurmUnavailableError as error:
            advice = f"let {site.user} submit one job to {partition} (its account, QOS), and run this again"
            yield (
                "try submit",
                warning(f"nothing can be tried in {partition} as {site.user}: {error}", advice),
            )
            return
        job, _ = _look(slurm, job_id)
        yield "try submit", _judge_submission(site, job_id, job, partition)
        for step in _steps(job_id, node, site.user, job.get("AdminComment", "")):
            (refusal,) = slurm.run([step.order])
            job, reserved = _look(slurm, job_id)
            name = f"try {step.name}"
            if refusal is None and step.is_done(job, reserved):
                yield name, ok(step.done)
            elif isinstance(step.order, Annotate):
                yield name, ok(f"{refusal}: squeue does not tell why jobs wait, `dally why` does")
            else:
                yield name, problem(refusal or "Slurm says yes and does not do it", ask)
    except SlurmUnavailableError as error:
        yield "try orders", problem(str(error), "Slurm must answer; then run this again")
    finally:
        _clear(slurm, site.user)


def _steps(job_id: str, node: str, user: str, mark: str) -> tuple[_Step, ...]:
    """All kinds of orders, in an order in which each shows what it does."""

    def is_free(job: Row, _: bool) -> bool:
        return job.get("Priority", "0") != "0" and job.get("JobState") == "PENDING"

    def is_placed(job: Row, _: bool) -> bool:
        return is_free(job, _) and job.get("ReqNodeList") == node

    def is_accepted(*_: object) -> bool:
        return True

    def is_held_anywhere(job: Row, _: bool) -> bool:
        return job.get("Priority") == "0" and not job.get("ReqNodeList")

    def is_gone(job: Row, _: bool) -> bool:
        return job.get("JobState", "CANCELLED") == "CANCELLED"

    place = ReleaseOnNodes(job_id, (node,))
    reserve = Reserve(RESERVATION, (node,), user)
    return (
        _Step("place", place, is_placed, f"put on {node} and released, to begin in 500 days"),
        _Step("hold", Rehold(job_id), is_held_anywhere, "held again, on no node"),
        _Step("hand back", ReleaseToSlurm(job_id, 1), is_free, "released to Slurm, to begin in 500 days"),
        _Step("requeue", Requeue(job_id), is_accepted, "accepted; of a job that waits it changes nothing"),
        _Step("signal", Signal(job_id, "USR2"), is_accepted, "accepted; a job that waits gets none"),
        _Step("annotate", Annotate(job_id, mark), is_accepted, "the admin comment was set"),
        _Step("reserve", reserve, lambda _, kept: kept, f"{node} is kept, in 500 days"),
        _Step("unreserve", Unreserve(RESERVATION, True), lambda _, kept: not kept, "and no more"),
        _Step("cancel", Cancel(job_id), is_gone, f"job {job_id} is gone"),
    )


def _judge_submission(site: SiteFacts, job_id: str, job: Row, partition: str) -> Finding:
    """Whether the job went in as a user's does: held, and through job_submit.lua where there is one."""
    went_in = f"job {job_id} of {site.user} in {partition}, held"
    if job.get("Priority") != "0":
        return problem(f"job {job_id} of {site.user} is not held", "see which job_submit plugin releases it")
    if job.get("AdminComment", "").startswith(MARK):
        return ok(f"{went_in}, with a user's mark")
    if site.site_lua and site.option("JobSubmitPlugins", "lua") is not None:
        return problem(
            f"{went_in}, but job_submit.lua did not take its mark",
            "restart slurmctld, and see what its log says of `dally:`",
        )
    return ok(f"{went_in}; no job_submit.lua saw it")


def _submit(slurm: CommandLine, partition: str) -> str:
    """Submit the job, as `dally-sbatch` would; its number. Signals wait until it is known.

    Raises:
        SlurmUnavailableError: Slurm does not take it; the message says why.
    """
    mark = encode(Request(signal="USR2", tag=secrets.token_hex(4), held=True))
    asked = (
        f"--partition={partition}",
        "--gpus=1",
        "--time=1",
        f"--begin={_FAR}",
        f"--comment={mark}&{TRIAL}",
    )
    plain = ("--export=NONE", "--chdir=/", "--output=/dev/null", "--wrap=exit 0")
    with _signals_wait():
        said = slurm.read("sbatch", "--parsable", "--hold", f"--job-name={JOB_NAME}", *asked, *plain)
    return said.strip().partition(";")[0]


@contextmanager
def _signals_wait() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _look(slurm: CommandLine, job_id: str) -> tuple[Row, bool]:
    """The job as Slurm shows it, empty if it does not, and whether the reservation is there."""
    shown: Row = {}
    with suppress(SlurmUnavailableError):
        shown = read_records(slurm.read("scontrol", "--oneliner", "show", "job", job_id), "JobId")[job_id]
    return shown, any(each.name == RESERVATION for each in slurm.reservations())


def _clear(slurm: CommandLine, user: str) -> None:
    """Take away all that a trial, also one that was killed, has left."""
    with suppress(DallyError), _signals_wait():
        slurm.read("scancel", f"--user={user}", f"--name={JOB_NAME}")
        if any(each.name == RESERVATION for each in slurm.reservations()):
            slurm.run([Unreserve(RESERVATION, unused=True)])
