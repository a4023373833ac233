"""Slurm by its own commands: squeue, scontrol and scancel. Needs nothing but an installed Slurm client."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import groupby
from math import inf
from types import MappingProxyType

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces import sacct
from dally.traces.rows import JobCollector
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.block_topology import BLOCKS_SINCE, BlockTopology
from slurm_plugin.client.changed_jobs import ChangedJobs
from slurm_plugin.client.fewest_nodes import with_fewest_nodes
from slurm_plugin.client.genuine import genuine_records, genuine_rows, new_key, time_format
from slurm_plugin.client.job_json import Records, in_order, read_records
from slurm_plugin.client.job_text import GENUINE
from slurm_plugin.client.node_text import (
    number,
    read_blocks,
    read_licenses,
    read_nodes,
    read_partitions,
    read_reservations,
    read_settings,
)
from slurm_plugin.client.node_text import read_records as read_lines
from slurm_plugin.client.orders import Annotate, Cancel, Order, ReleaseOnNodes, ReleaseToSlurm, Signal
from slurm_plugin.client.priority_factors import (
    QOS_PRIORITY_COLUMNS,
    SHARE_COLUMNS,
    booked_every_s,
    read_fair_shares,
    read_partition_factors,
    read_qos_factors,
    read_weights,
)
from slurm_plugin.client.resource_limits import (
    ASSOCIATION_COLUMNS,
    enforced_for,
    is_safe,
    qos_columns,
    read_limits,
    with_spent,
)
from slurm_plugin.client.scontrol import answers, first_line, run_checked, script, steps, unavailable
from slurm_plugin.client.slurm import (
    Look,
    Partition,
    PriorityFactors,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
)

_AT_ONCE = 100
"""Orders for one process, so that each time-out is for a bounded amount of work."""

_PRINTS_S = 0.002
"""So often it is looked whether a command prints already; squeue takes some 0.2 s for thousands of jobs."""

PRIVACY_S = 60.0
"""Who may see whose jobs is read again after this."""

_ALL_JOBS = ("--all", "--states=all")
_HELD = "an administrator holds it (JobHeldAdmin)"
_OUR_FORMAT = {"LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s", "TZ": "UTC0"}
"""Times are seconds since 1970 in any zone; without one the C library looks at /etc/localtime for each."""
_ENDED = "Submit,JobIDRaw,User,Start,ElapsedRaw,State,AllocTRES,ReqTRES,TimelimitRaw,Account,JobName"
"""Each row begins with a time, and so with a key; users write what is last."""

_JSON, _JSON_OF_25_11 = "--json", "--json=v0.0.44"
_HIDES_EXCLUSIVE = (26, 5)
"""From this version on, JSON as it comes tells no `--exclusive`; that of 25.11, which it prints too, does."""

_HIDE_JOBS = frozenset({"jobs", "all"})
_THEIR_FORMAT = re.compile("S(QUEUE|CONTROL|CANCEL)_.*|SLURM_CLUSTERS")


class CommandLine:
    """The `Slurm` that the client commands reach.

    Attributes:
        environment: Variables of the commands, SLURM_CONF for instance.
        prefix: What comes before each command, `chroot /other` for instance.
        timeout_s: How long one command may take, seconds.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        timeout_s: float = 30.0,
    ) -> None:
        ours = {name: value for name, value in os.environ.items() if not _THEIR_FORMAT.fullmatch(name)}
        self.environment = {**ours, **(environment or {}), **_OUR_FORMAT}
        self.prefix = tuple(prefix)
        self.timeout_s = timeout_s
        self._json = ""
        self._last_settings, self._settings_s = dict[str, str](), -inf
        self._changed_jobs = ChangedJobs(self._squeue, self._show_jobs, self.read_all_jobs)

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs that Slurm still knows."""
        return with_fewest_nodes(in_order(self.records()), self.nodes())

    def records(self) -> Records:
        """The same jobs, by the number that Slurm has for them."""
        return self._changed_jobs.look()

    def read_all_jobs(self) -> Records:
        """All jobs by JSON, which takes much longer, by the number that Slurm has for them."""
        self._json = self._json or json_option(self.read("squeue", "--version"))
        return read_records(self.read("squeue", *_ALL_JOBS, self._json))

    def _squeue(self, columns: str, answered: Callable[[], object]) -> str:
        # Without --array a task that was requeued would be shown in its array's line, as if it had never run.
        # The form has a mark that users must not know: who may not read our environment may read our words.
        form = {"SQUEUE_FORMAT2": columns}
        return self.read(
            "squeue", *_ALL_JOBS, "--array", "--noheader", "--noconvert", variables=form, prints=answered
        )

    def _show_jobs(self, numbers: Sequence[int]) -> list[str]:
        """What scontrol says of each job, with `GENUINE` before each time; a mark is between them."""
        key = new_key()
        lines = [f"show hostnames Q{key}\nshow job {number}\n" for number in numbers]
        said = self._run(
            "scontrol",
            "--oneliner",
            "--details",
            text=f"{''.join(lines)}show hostnames Q{key}\n",
            variables={"SLURM_TIME_FORMAT": time_format(key)},
        )
        _, *parts = said.stdout.split(f"\nQ{key}\n")
        if len(parts) != len(numbers) + 1:
            raise SlurmUnavailableError(f"scontrol ended early: {first_line(said.stderr) or said.returncode}")
        return [part.replace(key, GENUINE) for part in parts[:-1]]

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes."""
        return read_nodes(self._records("NodeName", "--details", "--all", "show", "node"))

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations."""
        shown = self._records("ReservationName", "--all", "show", "reservation", all_timed=True)
        return read_reservations(shown)

    def _records(self, name_key: str, *words: str, all_timed: bool = False) -> str:
        """What scontrol shows, a line each, of things with times."""
        key = new_key()
        shown = self.read("scontrol", "--oneliner", *words, variables={"SLURM_TIME_FORMAT": time_format(key)})
        return genuine_records(shown, key, name_key, all_timed)

    def _rows(self, columns: str, *words: str) -> str:
        """What sacctmgr or sshare shows of these columns."""
        form = "format" if words[0] == "sacctmgr" else "--format"
        table = (*words, "--noheader", "--parsable2")
        return genuine_rows(self.read(*table, f"{form}=ID"), self.read(*table, f"{form}=ID,{columns}"))

    def look(self) -> Look:
        """Jobs, nodes, reservations and partitions.

        The others are asked for as soon as squeue prints jobs, as it has had all of them from slurmctld then:
        they must not be older. Else a job could ask for a reservation that is not there yet, and a node that
        has just failed would seem free, its jobs being back in the queue.
        """
        with ThreadPoolExecutor(3) as pool:
            ask_others = cache(
                lambda: (
                    pool.submit(self.nodes),
                    pool.submit(self.reservations),
                    pool.submit(self.partitions),
                )
            )
            in_detail = in_order(self._changed_jobs.ask(ask_others)())
            nodes, reservations, partitions = ask_others()
        jobs = with_fewest_nodes(in_detail, nodes.result())
        return Look(jobs, nodes.result(), reservations.result(), partitions.result())

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""
        settings = self._last_settings or self._settings()
        return read_partitions(self._shown("partition"), settings)

    def limits(self) -> AccountingLimits:
        """The limits that sacctmgr shows, if Slurm enforces any."""
        settings = self._settings()
        cluster = enforced_for(settings)
        if not cluster:
            return AccountingLimits()
        version = self._version()
        of_qos = self._rows(qos_columns(version), "sacctmgr", "show", "qos")
        associations = self._rows(
            ASSOCIATION_COLUMNS, "sacctmgr", "show", "association", f"cluster={cluster}"
        )
        found = read_limits(of_qos, associations, version)
        return replace(found, safe=is_safe(settings), booked_every_s=booked_every_s(settings))

    def spent(self, accounting: AccountingLimits) -> AccountingLimits:
        """The limits with what slurmctld has counted of them."""
        return with_spent(
            accounting, self.read("scontrol", "--oneliner", "show", "assoc_mgr", "flags=qos,assoc")
        )

    def blocks(self, partitions: Sequence[str]) -> BlockTopology:
        """The blocks of the topologies that these partitions name, or of the cluster's."""
        version = self._version()
        if version < BLOCKS_SINCE:
            return BlockTopology()
        shown = read_lines(self._shown("partition"), "PartitionName")
        named = {shown.get(name, {}).get("Topology", "") for name in partitions}
        show = ("scontrol", "--oneliner", "show", "topology")
        return read_blocks([self.read(*show, *filter(None, (name,))) for name in sorted(named)], version)

    def priority_factors(self) -> PriorityFactors:
        """The factors of priorities, if Slurm's have any; without accounting all are of one share and QOS."""
        factors = read_weights(self._settings())
        if factors is None:
            return PriorityFactors()
        partitions = read_partition_factors(self._shown("partition"))
        shares = self.fair_shares() if factors.weight_fair_share else {}
        qos: dict[str, float] = {}
        if factors.weight_qos:
            qos = read_qos_factors(self._rows(QOS_PRIORITY_COLUMNS, "sacctmgr", "show", "qos"))
        return replace(factors, partitions=partitions, qos=qos, fair_share=shares)

    def fair_shares(self) -> dict[tuple[str, str], float]:
        """The fair shares that sshare shows."""
        return read_fair_shares(self._rows(SHARE_COLUMNS, "sshare", "--all"))

    def licenses(self) -> dict[str, int]:
        """Free licences by name."""
        return read_licenses(self.read("scontrol", "--oneliner", "show", "license"))

    def booted_s(self) -> float:
        """When slurmctld was started."""
        return number(self._settings().get("BOOT_TIME", ""))

    def hides_jobs(self) -> bool:
        """Whether users see their own jobs alone, as the settings had it a minute ago at most."""
        if time.monotonic() - self._settings_s > PRIVACY_S:
            self._settings()
        hidden = self._last_settings.get("PrivateData", "")
        return not _HIDE_JOBS.isdisjoint(hidden.split(","))

    def ended_jobs(self, partitions: Sequence[str], days: int) -> tuple[Job, ...]:
        """The jobs that ended in the last days, as sacct has them; rows that make no sense are left out."""
        whose = ("--allusers", "--allocations", f"--partition={','.join(partitions)}")
        since = f"--starttime=now-{days}days"
        form, key = ("--parsable2", f"--format={_ENDED}"), {"SLURM_TIME_FORMAT": time_format(new_key())}
        return read_ended(self.read("sacct", *whose, since, *form, variables=key))

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders; one that holds something that is no number and no name is refused unsent.

        So is the release of a job that an administrator holds.
        """
        releases = [order.job_id for order in orders if isinstance(order, ReleaseOnNodes | ReleaseToSlurm)]
        held = self._changed_jobs.held_by_administrator(releases) if releases else ()

        def run(some: Sequence[Order]) -> Iterator[str | None]:
            ours = [order for order in some if not _is_release_of(order, held)]
            answers = self._run_all(ours)
            return (_HELD if _is_release_of(order, held) else next(answers) for order in some)

        return run_checked(orders, run)

    def _run_all(self, orders: Sequence[Order]) -> Iterator[str | None]:
        """Carry out orders of one kind together, each step for all of them; no process gets too many."""
        for (kind, signal_name), group in groupby(
            orders, key=lambda order: (type(order), order.signal if isinstance(order, Signal) else "")
        ):
            alike = list(group)
            for some in (alike[start : start + _AT_ONCE] for start in range(0, len(alike), _AT_ONCE)):
                if kind is Cancel:
                    yield from self._scancel(some, "--state=PENDING")
                elif kind is Signal:
                    # `--full` reaches the script and its steps. Without `--state` KILL would cancel a job
                    # that waits.
                    yield from self._scancel(some, "--state=RUNNING", "--full", f"--signal={signal_name}")
                elif kind is Annotate:
                    yield from self._annotate([each for each in some if isinstance(each, Annotate)])
                else:
                    yield from self._control(
                        [steps(order) for order in some if not isinstance(order, Signal | Cancel | Annotate)]
                    )

    def _control(self, lines: Sequence[tuple[str, ...]]) -> list[str | None]:
        refusals: list[str | None] = [None] * len(lines)
        for step in range(len(lines[0])):
            accepted = [index for index, refusal in enumerate(refusals) if refusal is None]
            said = self._scontrol([lines[index][step] for index in accepted])
            for index, answer in zip(accepted, said, strict=True):
                refusals[index] = first_line(answer) or None
        return refusals

    def _scontrol(self, lines: Sequence[str]) -> list[str]:
        if not lines:
            return []
        mark = f"end-of-order-{new_key()}"
        output = self._run("scontrol", text=script(lines, mark))
        said = answers(output.stderr, len(lines), mark)
        if said is None:
            why = first_line(output.stderr) or output.returncode
            raise SlurmUnavailableError(f"scontrol ended early: {why}")
        return said

    def _annotate(self, orders: Sequence[Annotate]) -> list[str | None]:
        """Set the comments, for all jobs with the same one by one command: its words are no line's."""
        jobs: dict[str, list[str]] = {}
        for order in orders:
            jobs.setdefault(order.admin_comment, []).append(order.job_id)
        refusals: dict[str, str | None] = {}
        for comment, numbers in jobs.items():
            about = (f"JobId={','.join(numbers)}", f"AdminComment={comment}")
            output = self._run("scontrol", "update", *about)
            said = output.stderr.splitlines()
            refusals.update({number: _refusal(number, said) for number in numbers})
            if output.returncode and not any(refusals[number] for number in numbers):
                refusals.update(dict.fromkeys(numbers, first_line(output.stderr) or "scontrol failed"))
        return [refusals[order.job_id] for order in orders]

    def _scancel(self, orders: Sequence[Order], *options: str) -> list[str | None]:
        numbers = [order.job_id for order in orders if isinstance(order, Signal | Cancel)]
        output = self._run("scancel", *options, *numbers)
        refusals = [_refusal(number, output.stderr.splitlines()) for number in numbers]
        if output.returncode and not any(refusals):
            return [first_line(output.stderr) or f"scancel failed ({output.returncode})"] * len(numbers)
        return refusals

    def read(
        self,
        *argv: str,
        variables: Mapping[str, str] = MappingProxyType({}),
        prints: Callable[[], object] | None = None,
    ) -> str:
        """What one of Slurm's commands prints.

        Args:
            argv: The command.
            variables: Of its environment, beside those of all commands.
            prints: Called as soon as it prints.

        Raises:
            SlurmUnavailableError: It is not there, took too long or failed; the message has its first line.
        """
        output = self._run(*argv, variables=variables, prints=prints)
        if output.returncode:
            said = first_line(output.stderr or output.stdout)
            raise SlurmUnavailableError(f"{argv[0]}: {said or output.returncode}")
        return output.stdout

    def _shown(self, kind: str) -> str:
        """What scontrol shows of all partitions, or all reservations, a line each."""
        return self.read("scontrol", "--oneliner", "--all", "show", kind)

    def _settings(self) -> dict[str, str]:
        """Slurm's settings, by key."""
        self._last_settings = read_settings(self.read("scontrol", "show", "config"))
        self._settings_s = time.monotonic()
        return self._last_settings

    def _version(self) -> tuple[int, int]:
        return parse_version(self.read("scontrol", "--version")) or (0, 0)

    def _run(
        self,
        *argv: str,
        text: str = "",
        variables: Mapping[str, str] = MappingProxyType({}),
        prints: Callable[[], object] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; one that takes too long is killed, with the processes it had started.

        It prints into memory: through a pipe squeue would wake this process for each 4 KB of several MB.
        """
        try:
            printed = os.memfd_create(argv[0])
            with (
                open(printed, encoding="utf-8", errors="replace", newline="\n") as output,
                subprocess.Popen(
                    (*self.prefix, *argv),
                    stdin=subprocess.PIPE,
                    stdout=printed,
                    stderr=subprocess.PIPE,
                    env={**self.environment, **variables},
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,
                ) as process,
            ):
                end_s = time.monotonic() + self.timeout_s
                try:
                    if prints and _has_printed(process, printed, end_s):
                        prints()
                    _, err = process.communicate(text, max(0.0, end_s - time.monotonic()))
                except BaseException:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    raise
                output.seek(0)
                out = output.read()
        except OSError as error:
            raise SlurmUnavailableError(f"cannot run {argv[0]}: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmUnavailableError(f"{argv[0]} did not end within {self.timeout_s:g} s") from error
        if reason := next((line for line in err.splitlines() if unavailable(line)), ""):
            raise SlurmUnavailableError(f"{argv[0]}: {first_line(reason)}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _has_printed(process: subprocess.Popen[str], printed: int, end_s: float) -> bool:
    """Wait until a command prints into a file, or ends, or it is late; whether it has printed."""
    while not os.fstat(printed).st_size:
        if process.poll() is not None or time.monotonic() > end_s:
            return False
        time.sleep(_PRINTS_S)
    return True


def read_ended(text: str) -> tuple[Job, ...]:
    """The GPU jobs that ran and have ended in what sacct printed, as they would have ended without waits.

    Raises:
        SlurmUnavailableError: It is not sacct's output.
    """
    found = JobCollector("sacct", skip_bad=True, min_duration_s=1.0)
    try:
        sacct.read(text.strip() or "nothing", found)
    except InputError as error:
        raise SlurmUnavailableError(f"sacct printed no jobs but {text[:80]!r}") from error
    return tuple(sorted(found.jobs, key=lambda job: job.submit_s + job.duration_s))


def json_option(version: str) -> str:
    """The option with which squeue prints all that we read of a job.

    Args:
        version: What squeue says of its version, like `slurm-wlm 26.05.5`.
    """
    is_new = (parse_version(version) or (0, 0)) >= _HIDES_EXCLUSIVE
    return _JSON_OF_25_11 if is_new else _JSON


def parse_version(text: str) -> tuple[int, int] | None:
    """The version in what a command prints of it, such as `slurm-wlm 22.05.8`; None if there is none."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _is_release_of(order: Order, jobs: Container[str]) -> bool:
    return isinstance(order, ReleaseOnNodes | ReleaseToSlurm) and order.job_id in jobs


def _refusal(number: str, lines: Sequence[str]) -> str | None:
    """What scancel said about a job, or about the tasks of its array that it is one of."""
    array, is_task, _ = number.partition("_")
    about = re.compile(rf"(?<!\w)({number}(?!\w)" + (rf"|{array}_\[)" if is_task else ")"))
    return next((first_line(line) for line in lines if about.search(line)), None)
