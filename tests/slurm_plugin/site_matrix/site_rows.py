"""Rows of what a site sets: partitions, limits, priorities, reservations, nodes that come and go."""

from collections.abc import Callable
from dataclasses import replace

from slurm_plugin.client.slurm import State
from tests.slurm_plugin.site_matrix.matrix_row import Ask, Block, Check, MatrixRow, row
from tests.slurm_plugin.site_matrix.matrix_site import CPUS, NODES, MatrixSite, UnmetError
from tests.slurm_plugin.site_matrix.option_rows import ALL, GPUS_FREE, WHOLE, others_hold, until_told


def partition_starts(*options: str) -> Check:
    """A job within the limits of its partition starts."""
    return lambda site: site.placed(site.submit(WHOLE, *options))


def partition_waits(
    partition: str, options: tuple[str, ...], narrow: str, widen: str, back: str, word: str
) -> Check:
    """A job beyond a limit of its partition waits until an administrator widens it.

    Args:
        partition: Its partition.
        options: What it asks for.
        narrow: The setting of the partition that keeps it out, which comes once it is submitted.
        widen: The setting that lets it in.
        back: The setting of before.
        word: What its reason must name.
    """

    def check(site: MatrixSite) -> None:
        site.victims(NODES)
        job = site.submit(f"--partition={partition}", "--hold", *options)
        site.waits(job, "held")
        update = ("scontrol", "update", f"PartitionName={partition}")
        try:
            site.slurm.run(*update, narrow)
            site.slurm.run("scontrol", "release", job)
            site.waits(job, word)
            site.slurm.run(*update, widen)
            site.runs(job)
        finally:
            site.slurm.run(*update, back)

    return check


def limit_reached(*payer: str, gpus: int = 4) -> Block:
    """A job that nobody stops has all that a limit allows."""

    def block(site: MatrixSite) -> Callable[[], object]:
        job = site.others(f"--gres=gpu:{gpus}", "--mem=100", "--nodelist=n1", *payer)
        return lambda: site.cancel(job)

    return block


def limited(payer: str, name: str) -> Ask:
    """A job of a QOS or an account that has reached its limit."""
    return Ask(("--gres=gpu:1", payer), limit_reached(payer), (name,), gpus=1)


def one_job_limit(limit: str, qos: str, within: tuple[str, ...], beyond: tuple[str, ...]) -> MatrixRow:
    """The row of a limit on each job by itself: one beyond it waits, and starts under another QOS."""

    def starts(site: MatrixSite) -> None:
        site.placed(site.submit(f"--qos={qos}", *within))

    def waits(site: MatrixSite) -> None:
        site.victims(NODES)
        job = site.submit("--qos=spent" if limit == "GrpTRESMins" else f"--qos={qos}", *beyond)
        site.waits(job, f"{limit} of QOS")
        site.slurm.run("scontrol", "update", f"JobId={job}", "QOS=normal")
        site.runs(job)

    return MatrixRow(f"{limit} of a QOS", starts, waits, accounting=True)


def two_wait(site: MatrixSite, first: str, second: str) -> tuple[str, str, Callable[[], object]]:
    """Two jobs that wait for a node each, submitted one after the other; what lets one node go."""
    give_back = others_hold(*ALL, until="n3")(site)
    jobs = site.submit(WHOLE, first), site.submit(WHOLE, second)
    for job in jobs:
        site.waits(job)
    return *jobs, give_back


def second_first(first: str, second: str, prepare: Check = lambda site: None) -> MatrixRow:
    """The row of a priority: the second job goes first."""

    def starts(site: MatrixSite) -> None:
        prepare(site)
        *jobs, give_back = two_wait(site, first, second)
        give_back()
        site.wait(lambda: any(site.live.jobs()[job].state is State.RUNNING for job in jobs), "one to run")
        if site.live.jobs()[jobs[1]].state is not State.RUNNING:
            raise UnmetError(f"not yet: the job of {first} goes before that of {second}")

    def waits(site: MatrixSite) -> None:
        *jobs, give_back = two_wait(site, second, first)
        give_back()
        site.runs(jobs[0], "n3")
        site.waits(jobs[1])

    return MatrixRow("", starts, waits, accounting=True)


def use_account(site: MatrixSite) -> None:
    """One of the two accounts has used the cluster, so much more than other rows did that its share is least.

    Shares are ranks. With less use than accounts of other rows it would be so close to the other one's that
    the policy may order them as it likes.
    """
    job = site.others("--account=busy", WHOLE, "--mem=100", f"--cpus-per-task={CPUS}")

    def counted() -> bool:
        shares = site.live.slurm.fair_shares()
        return shares["busy", "root"] <= shares["idle", "root"] / 2

    site.wait(counted, "Slurm to count what an account has used")
    site.cancel(job)


def reserve(site: MatrixSite, name: str, nodes: str, start: str, *flags: str) -> Callable[[], object]:
    """An administrator's reservation for root's jobs; what ends it."""
    what = (f"StartTime={start}", "Duration=60", f"Nodes={nodes}", "Users=root")
    site.slurm.run(
        "scontrol", "create", f"ReservationName={name}", *what, f"Flags={','.join(('IGNORE_JOBS', *flags))}"
    )
    return lambda: site.slurm.run("scontrol", "delete", f"ReservationName={name}")


def reservation_starts(site: MatrixSite) -> None:
    """A job of a reservation starts in it, and no other does."""
    reserve(site, "mine", "n5", "now")
    other = site.submit(WHOLE, "--constraint=c")
    site.placed(other, "n6")
    site.placed(site.submit(WHOLE, "--reservation=mine"), "n5")


def reservation_waits(site: MatrixSite) -> None:
    """A job of a reservation to come waits for it."""
    site.victims(NODES)
    reserve(site, "mine", "n5", "now+45seconds")
    job = site.submit(WHOLE, "--reservation=mine")
    site.waits(job, "reservation")
    site.runs(job, "n5")


def maintenance_starts(site: MatrixSite) -> None:
    """A job that ends before a maintenance starts."""
    reserve(site, "maintenance", "ALL", "now+10minutes", "MAINT")
    site.placed(site.submit(WHOLE, "--time=2"))


def maintenance_waits(site: MatrixSite) -> None:
    """A job that would run into a maintenance waits."""
    site.victims(NODES)
    cancel = reserve(site, "maintenance", "ALL", "now+10minutes", "MAINT")
    job = site.submit(WHOLE, "--time=30")
    site.waits(job, "reservation")
    cancel()
    site.runs(job)


def drained(site: MatrixSite) -> Callable[[], object]:
    """An administrator drains the only node that will do."""
    site.slurm.run("scontrol", "update", "NodeName=n5", "State=DRAIN", "Reason=test")
    return lambda: site.slurm.run("scontrol", "update", "NodeName=n5", "State=RESUME")


def drained_starts(site: MatrixSite) -> None:
    """Jobs go past a drained node."""
    back = drained(site)
    try:
        site.placed(site.submit(WHOLE, "--constraint=c"), "n6")
    finally:
        back()


DRAINED = Ask((WHOLE, "--constraint=c&ib"), drained, ("drain",), ("n5",))


def requeue_starts(site: MatrixSite) -> None:
    """A job that puts itself back is started again by Dally."""
    job, tell = until_told(site, "again.sh")
    tell()
    site.wait(lambda: site.live.jobs()[job].restarts == 1, "it to put itself back")
    site.wait(lambda: site.live.jobs()[job].state is State.ENDED, "its second run")
    if site.live.jobs()[job].state_name != "COMPLETED":
        raise UnmetError(f"ends {site.live.jobs()[job].state_name}")
    if any(each["job"] == job for each in site.live.events("released")):
        raise UnmetError("not yet: Slurm starts it again")


def requeue_waits(site: MatrixSite) -> None:
    """A job that was put back waits like all others."""
    job = site.submit(WHOLE, "--constraint=c&ib")
    site.runs(job, "n5")
    site.victims(NODES - 1)
    resume = drained(site)
    try:
        site.slurm.run("scontrol", "requeue", job)
        site.wait(lambda: site.live.jobs()[job].state is State.PENDING, "it to be put back")
        site.waits(job)
    finally:
        resume()
    site.runs(job, "n5")


def hold_starts(site: MatrixSite) -> None:
    """A job that its user holds starts when released."""
    job = site.submit(WHOLE, "--hold")
    site.waits(job, "held")
    site.slurm.run("scontrol", "release", job)
    site.placed(job)


def hold_waits(site: MatrixSite) -> None:
    """A job that an administrator holds waits for him."""
    give_back = others_hold("n5")(site)
    site.victims(NODES - 1)
    job = site.submit(WHOLE, "--constraint=c&ib")
    site.slurm.run("scontrol", "hold", job)
    give_back()
    site.waits(job, "held by an administrator")
    site.slurm.run("scontrol", "release", job)
    site.runs(job, "n5")


def added_starts(site: MatrixSite) -> None:
    """A waiting job starts on a node that the site adds."""
    others_hold(*ALL)(site)
    job = site.submit(WHOLE)
    site.waits(job, *GPUS_FREE)
    site.slurm.rewrite(replace(site.slurm.spec, nodes=NODES + 1))
    site.placed(job, "n7")


def added_waits(site: MatrixSite) -> None:
    """A job waits for the new node as for any."""
    give_back = others_hold(*ALL, "n7", until="n7")(site)
    job = site.submit(WHOLE)
    site.waits(job, *GPUS_FREE)
    give_back()
    site.runs(job, "n7")


TWO_PARTITIONS = Ask(
    (WHOLE, "--partition=east,west"),
    others_hold(*ALL, until="n5"),
    GPUS_FREE,
    after=("n5",),
    victims=0,
)
SITE_ROWS = (
    row("two partitions", TWO_PARTITIONS),
    MatrixRow(
        "a partition's MaxTime",
        partition_starts("--partition=short", "--time=4"),
        partition_waits("short", (WHOLE, "--time=4"), "MaxTime=2", "MaxTime=20", "MaxTime=5", "MaxTime"),
    ),
    MatrixRow(
        "a partition's MaxNodes",
        partition_starts("--partition=short", "--nodes=1"),
        partition_waits("short", (WHOLE, "--nodes=3"), "MaxNodes=2", "MaxNodes=4", "MaxNodes=2", "MaxNodes"),
    ),
    MatrixRow(
        "a partition's AllowQos",
        partition_starts("--partition=vip", "--qos=high"),
        partition_waits("vip", (WHOLE,), "AllowQos=high", "AllowQos=ALL", "AllowQos=ALL", "AllowQos"),
        accounting=True,
    ),
    MatrixRow(
        "a partition's AllowAccounts",
        partition_starts("--partition=vip", "--account=idle"),
        partition_waits(
            "vip", (WHOLE,), "AllowAccounts=idle", "AllowAccounts=ALL", "AllowAccounts=ALL", "AllowAccounts"
        ),
        accounting=True,
    ),
    MatrixRow(
        "a partition's DenyQos",
        partition_starts("--partition=vip", "--qos=high"),
        partition_waits("vip", (WHOLE,), "DenyQos=normal", "DenyQos=few", "DenyQos=few", "DenyQos"),
        accounting=True,
    ),
    MatrixRow(
        "a partition's DenyAccounts",
        partition_starts("--partition=vip", "--account=idle"),
        partition_waits(
            "vip", (WHOLE,), "DenyAccounts=root", "DenyAccounts=busy", "DenyAccounts=busy", "DenyAccounts"
        ),
        accounting=True,
    ),
    row("GrpTRES of a QOS", limited("--qos=group", "GrpTRES of QOS group"), accounting=True),
    row("MaxTRESPU of a QOS", limited("--qos=each", "MaxTRESPerUser of QOS each"), accounting=True),
    row("MaxJobsPU of a QOS", limited("--qos=few", "MaxJobsPerUser of QOS few"), accounting=True),
    row("GrpTRES of an account", limited("--account=small", "GrpTRES of account small"), accounting=True),
    row("MaxJobs of a user", limited("--account=single", "MaxJobs"), accounting=True),
    one_job_limit("MaxTRESPerJob", "slim", ("--gres=gpu:2",), (WHOLE,)),
    one_job_limit("MinTRESPerJob", "wide", ("--gres=gpu:2",), ("--gres=gpu:1",)),
    one_job_limit("MaxTRESPerNode", "thin", ("--gres=gpu:2",), (WHOLE,)),
    one_job_limit("MaxTRESMinsPerJob", "brief", (WHOLE, "--time=2"), (WHOLE, "--time=3")),
    row(
        "GrpTRESRunMins of a QOS",
        Ask(
            (WHOLE, "--qos=running", "--time=5"),
            limit_reached("--qos=running", "--time=60"),
            ("GrpTRESRunMins of QOS running",),
        ),
        accounting=True,
    ),
    one_job_limit("GrpTRESMins", "pot", (WHOLE,), (WHOLE,)),
    replace(second_first("--qos=normal", "--qos=high"), feature="order by the weight of a QOS"),
    replace(second_first("--account=busy", "--account=idle", use_account), feature="order by fair share"),
    MatrixRow("`--reservation`", reservation_starts, reservation_waits),
    MatrixRow("a maintenance to come", maintenance_starts, maintenance_waits),
    MatrixRow("a drained node", drained_starts, DRAINED.waits),
    MatrixRow("a job that requeues itself", requeue_starts, requeue_waits),
    MatrixRow("an administrator's hold", hold_starts, hold_waits),
    MatrixRow("a node that is added", added_starts, added_waits),
)
"""The last one is last: Slurm's files are written anew for it."""
