"""A row of the matrix: how its feature is tried, and what was found."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_plugin.local_cluster.cluster import ClusterError
from tests.slurm_plugin.site_matrix.matrix_site import MatrixSite, UnmetError

Check = Callable[[MatrixSite], None]
"""Does something at the site; raises `UnmetError` if it is not as it should be."""

Block = Callable[[MatrixSite], Callable[[], object]]
"""Takes away what a job needs; what it returns gives that back."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One feature.

    Attributes:
        feature: What a user or an administrator calls it.
        starts: A job with it starts where it should.
        waits: A job with it that cannot start waits, says why, and starts when it can.
        accounting: It needs slurmdbd.
    """

    feature: str
    starts: Check
    waits: Check
    accounting: bool = False


@dataclass(frozen=True, slots=True)
class RowFindings:
    """What really happened in a row; an empty text is as it should be."""

    feature: str
    starts: str
    waits: str
    hurt: str

    @property
    def good(self) -> bool:
        """All is as it should be."""
        return not (self.starts or self.waits or self.hurt)


@dataclass(frozen=True, slots=True)
class Ask:
    """A feature that is an option of a job.

    Attributes:
        options: The job's options, its GPUs among them.
        block: Takes away what it needs.
        reasons: Words that its reason for waiting must have.
        on: Node lists of which it must get one; empty: any.
        after: The same, when what it needs came back; empty: as `on`.
        gpus: GPUs that it gets.
        victims: Jobs that run meanwhile, a node each, and that Dally may stop for another.
    """

    options: tuple[str, ...]
    block: Block
    reasons: tuple[str, ...]
    on: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    gpus: int = 4
    victims: int = 5

    def starts(self, site: MatrixSite) -> None:
        """It starts on an empty cluster."""
        site.placed(site.submit(*self.options), *self.on, gpus=self.gpus)

    def waits(self, site: MatrixSite) -> None:
        """It waits for what was taken away, among jobs that it must not stop for that."""
        give_back = self.block(site)
        site.victims(self.victims)
        job = site.submit(*self.options)
        try:
            site.waits(job, *self.reasons)
        finally:
            give_back()
        site.runs(job, *(self.after or self.on), gpus=self.gpus)


def row(feature: str, ask: Ask, accounting: bool = False) -> MatrixRow:
    """The row of a feature that is an option of a job."""
    return MatrixRow(feature, ask.starts, ask.waits, accounting)


def try_row(site: MatrixSite, tried: MatrixRow) -> RowFindings:
    """Try a row on the empty cluster, and leave that empty."""
    found, hurt = dict[str, str](), list[str]()
    for name, check in (("starts", tried.starts), ("waits", tried.waits)):
        site.begin()
        try:
            check(site)
        except (UnmetError, ClusterError) as unmet:
            found[name] = str(unmet)
        finally:
            site.end()
        hurt += site.hurt
    return RowFindings(
        tried.feature, found.get("starts", ""), found.get("waits", ""), "; ".join(dict.fromkeys(hurt))
    )
