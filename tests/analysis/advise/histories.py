"""Small histories as sacct writes them, of a cluster of four machines with two GPUs each in two racks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from analysis.advise.history import SiteHistory, read_history
from analysis.advise.naming import NamingRules
from analysis.advise.site import Site
from dally.cluster import write_toml
from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.jobs.knowledge import EXACTLY, Known
from dally.profiles.files import ProfileSet
from dally.testing.worlds import racks, simulate

HEADER = (
    "JobIDRaw|User|Account|Submit|Eligible|Start|End|ElapsedRaw|State|AllocTRES|ReqTRES|TimelimitRaw|NodeList|"
    "Partition|JobName"
)
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Row:
    """A finished job, as sacct tells it; times in seconds from the first moment."""

    submit_s: float
    start_s: float
    run_s: float
    gpus: int = 1
    user: str = "ann"
    account: str = "vision"
    name: str = "job"
    nodes: str = ""
    partition: str = ""
    eligible_s: float | None = None
    state: str = "COMPLETED"

    def line(self, number: int) -> str:
        """The line of sacct's output."""
        eligible_s = self.submit_s if self.eligible_s is None else self.eligible_s
        times = (self.submit_s, eligible_s, self.start_s, self.start_s + self.run_s)
        tres = f"cpu=1,gres/gpu={self.gpus}"
        fields: Sequence[object] = (
            number,
            self.user,
            self.account,
            *map(moment, times),
            int(self.run_s),
            self.state,
            tres,
            tres,
            60,
            self.nodes,
            self.partition,
            self.name,
        )
        return "|".join(map(str, fields))


def moment(time_s: float) -> str:
    """A moment as sacct writes it."""
    return (BEGIN + timedelta(seconds=time_s)).strftime("%Y-%m-%dT%H:%M:%S")


def sacct(rows: Iterable[Row]) -> str:
    """Sacct's output."""
    return "\n".join([HEADER, *(row.line(number) for number, row in enumerate(rows, 1))]) + "\n"


def written(folder: Path, rows: Iterable[Row]) -> Path:
    """A file of sacct's output."""
    path = folder / "jobs.sacct"
    path.write_text(sacct(rows), encoding="utf-8")
    return path


def small_cluster() -> Topology:
    """Machines r0m0, r0m1, r1m0, r1m1."""
    return racks([[2, 2], [2, 2]])


def cluster_file(folder: Path) -> Path:
    """The same as a file."""
    path = folder / "cluster.toml"
    path.write_text(write_toml(small_cluster()), encoding="utf-8")
    return path


def site(
    folder: Path,
    rows: Iterable[Row],
    profiles: ProfileSet | None = None,
    rules: NamingRules | None = None,
    knows: Known = EXACTLY,
) -> Site:
    """A site with such a history."""
    return Site(small_cluster(), profiles, read(folder, rows), rules or NamingRules(), knows)


def read(folder: Path, rows: Iterable[Row]) -> SiteHistory:
    """The history of such rows."""
    return read_history(written(folder, rows))


def scheduled(rows: Iterable[Row], policy: str = "slurm:switch_wait_s=0") -> tuple[Row, ...]:
    """The same jobs, started when a simulated scheduler of the small cluster starts them."""
    given = list(rows)
    jobs = [Job(str(number), row.submit_s, row.gpus, row.run_s) for number, row in enumerate(given)]
    starts = simulate(policy, small_cluster(), jobs).by_job
    return tuple(
        replace(row, start_s=float(starts[str(number)].start_s or 0.0)) for number, row in enumerate(given)
    )


def held_back(jobs: int = 120) -> tuple[Row, ...]:
    """Jobs that wait for what no history tells, such as a reservation: every third for hours, GPUs or not."""
    random, now_s, rows = Random(3), 0.0, []
    for number in range(jobs):
        now_s += round(random.expovariate(1 / 900))
        wait_s = 4 * 3600 if number % 3 == 0 else 0
        rows.append(Row(now_s, now_s + wait_s, 60.0 * random.randint(5, 30), random.choice((1, 1, 2, 4))))
    return tuple(rows)


BUSY = scheduled(
    Row(20 * n, 20 * n, 60 + 40 * (n % 4), gpus, user, account, name)
    for n, (gpus, user, account, name) in enumerate(
        [
            (2, "ann", "vision", "train-resnet"),
            (4, "bob", "language", "bert-large-ft"),
            (1, "ann", "vision", "debug"),
            (8, "cy", "vision", "vgg11"),
        ]
        * 8
    )
)
"""More jobs than the cluster has room for at once, under Slurm's own scheduling."""
