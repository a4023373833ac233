"""Rows of what a job may ask for: nodes, features, CPUs, memory, licences, dependencies, arrays."""

from collections.abc import Callable

from tests.slurm_plugin.site_matrix.matrix_row import Ask, Block, MatrixRow, row
from tests.slurm_plugin.site_matrix.matrix_site import FEATURES, MatrixSite, UnmetError

ALL = tuple(FEATURES)
ONE_RACK = ("n[1-2]", "n[3-4]", "n[5-6]")
WHOLE = "--gres=gpu:4"
PAIR = ("--nodes=2", WHOLE)
GPUS_FREE = ("free",)


def others_hold(*nodes: str, until: str = "", **asked: int) -> Block:
    """Jobs that nobody stops hold these nodes; then all of them leave, or that of one node."""

    def block(site: MatrixSite) -> Callable[[], object]:
        jobs = dict(zip(nodes, site.others_on(*nodes, **asked), strict=True))
        leave = [jobs[until]] if until else [*jobs.values()]
        return lambda: site.cancel(*leave)

    return block


def licence_taken(site: MatrixSite) -> Callable[[], object]:
    """A job that nobody stops has the only licence."""
    job = site.others("--licenses=matlab:1", "--mem=100")
    return lambda: site.cancel(job)


def feature_not_active(site: MatrixSite) -> Callable[[], object]:
    """A node could have a feature and does not now."""
    update = ("scontrol", "update", "NodeName=n6")
    site.slurm.run(*update, "AvailableFeatures=c,fresh", "ActiveFeatures=c")
    return lambda: site.slurm.run(*update, "ActiveFeatures=c,fresh")


def feature_starts(site: MatrixSite) -> None:
    """A feature that a node was given later counts."""
    site.slurm.run("scontrol", "update", "NodeName=n5", "AvailableFeatures=c,ib,later")
    site.slurm.run("scontrol", "update", "NodeName=n5", "ActiveFeatures=c,ib,later")
    site.placed(site.submit(WHOLE, "--constraint=later"), "n5")


FEATURE = Ask((WHOLE, "--constraint=fresh"), feature_not_active, ("feature",), after=("n6",), victims=6)


def range_starts(site: MatrixSite) -> None:
    """Two nodes or three."""
    job = site.submit("--nodes=2-3", WHOLE)
    site.placed(job)
    if len(site.live.jobs()[job].nodes) not in (2, 3):
        raise UnmetError(f"has {len(site.live.jobs()[job].nodes)} nodes")


RANGE = Ask(
    ("--nodes=2-3", WHOLE), others_hold(*ALL[:5], until="n5"), GPUS_FREE, ("n[5-6]",), gpus=8, victims=1
)


def until_told(site: MatrixSite, script: str) -> tuple[str, Callable[[], object]]:
    """A job that Dally has started and that goes on to its end when it is told; and what tells it."""
    file = site.slurm.work / "go"
    file.unlink(missing_ok=True)
    job = site.submit("--gres=gpu:1", script=script)
    site.placed(job)
    return job, file.touch


def depends_starts(site: MatrixSite) -> None:
    """It starts when the other has ended well."""
    first, end = until_told(site, "until.sh")
    second = site.submit(WHOLE, f"--dependency=afterok:{first}")
    end()
    site.placed(second)


def depends_waits(site: MatrixSite) -> None:
    """It waits while the other runs."""
    first, end = until_told(site, "until.sh")
    site.victims(5)
    second = site.submit(WHOLE, f"--dependency=afterok:{first}")
    site.waits(second, "depends")
    end()
    site.runs(second)


def never_starts(site: MatrixSite) -> None:
    """What waits for a failure starts upon it."""
    first = site.submit("--gres=gpu:1", script="fail.sh", seconds=1)
    site.placed(site.submit(WHOLE, f"--dependency=afternotok:{first}"))


def never_waits(site: MatrixSite) -> None:
    """What waits for a success that cannot come says so."""
    first = site.submit("--gres=gpu:1", script="fail.sh", seconds=1)
    site.runs(first)
    site.victims(6)
    site.waits(site.submit(WHOLE, f"--dependency=afterok:{first}"), "DependencyNeverSatisfied")


def array_starts(site: MatrixSite) -> None:
    """As many tasks run as may."""
    array = site.submit("--gres=gpu:1", "--array=1-4%2")
    for task in (1, 2):
        site.placed(f"{array}_{task}")


def array_waits(site: MatrixSite) -> None:
    """The others wait, and follow one by one."""
    array = site.submit("--gres=gpu:4", "--array=1-4%2")
    site.runs(f"{array}_1")
    site.runs(f"{array}_2")
    site.victims(4)
    site.waits(f"{array}_3", "2 tasks")
    site.cancel(f"{array}_1")
    site.runs(f"{array}_3")


def salloc_starts(site: MatrixSite) -> None:
    """An allocation without a script."""
    site.placed(site.interactive("salloc", WHOLE))


def salloc_waits(site: MatrixSite) -> None:
    """An allocation waits for the only node that will do."""
    interactive_waits(site, "salloc")


def srun_starts(site: MatrixSite) -> None:
    """A command by srun."""
    site.placed(site.interactive("srun", WHOLE))


def srun_waits(site: MatrixSite) -> None:
    """A command by srun waits for the only node that will do."""
    interactive_waits(site, "srun")


def interactive_waits(site: MatrixSite, program: str) -> None:
    """A job without a script waits for the only node that will do."""
    give_back = others_hold("n5")(site)
    site.victims(5)
    job = site.interactive(program, WHOLE, "--constraint=c&ib")
    try:
        site.waits(job, "free")
    finally:
        give_back()
    site.runs(job, "n5")


ONLY_N5 = others_hold("n5")
OPTION_ROWS = (
    row(
        "`--exclusive`",
        Ask(
            ("--gres=gpu:1", "--exclusive"),
            others_hold(*ALL, until="n5", gpus=0),
            ("CPUs",),
            after=("n5",),
            victims=6,
        ),
    ),
    row("`--constraint=c&ib`", Ask((WHOLE, "--constraint=c&ib"), ONLY_N5, GPUS_FREE, ("n5",))),
    row(
        "`--constraint=[a\\|b\\|c]`",
        Ask(
            (*PAIR, "--constraint=[a|b|c]"),
            others_hold("n1", "n3", "n5", until="n3"),
            GPUS_FREE,
            ONE_RACK,
            ("n[3-4]",),
            gpus=8,
            victims=3,
        ),
    ),
    MatrixRow("features that change", feature_starts, FEATURE.waits),
    row("`--exclude`", Ask((WHOLE, "--exclude=n[1-4,6]"), ONLY_N5, GPUS_FREE, ("n5",))),
    row("`--nodelist`", Ask((WHOLE, "--nodelist=n5"), ONLY_N5, GPUS_FREE, ("n5",))),
    MatrixRow("`--nodes=2-3`", range_starts, RANGE.waits),
    row(
        "`--switches=1`",
        Ask(
            (*PAIR, "--switches=1"),
            others_hold("n1", "n3", "n5", until="n3"),
            GPUS_FREE,
            ONE_RACK,
            ("n[3-4]",),
            gpus=8,
            victims=3,
        ),
    ),
    row(
        "several GPU types",
        Ask(
            ("--gres=gpu:a100:4",),
            others_hold("n5", "n6", until="n6"),
            GPUS_FREE,
            ("n5", "n6"),
            ("n6",),
            victims=4,
        ),
    ),
    row(
        "`--mem`",
        Ask(
            (WHOLE, "--mem=50G"),
            others_hold(*ALL, until="n4", gpus=0, memory_mb=30_000),
            ("memory",),
            after=("n4",),
            victims=6,
        ),
    ),
    row(
        "`--mem=0`",
        Ask((WHOLE, "--mem=0"), others_hold(*ALL, until="n4", gpus=0), ("memory",), after=("n4",), victims=6),
    ),
    row(
        "`--cpus-per-task`",
        Ask(
            ("--gres=gpu:1", "--cpus-per-task=12"),
            others_hold(*ALL, until="n4", gpus=0, cpus=8),
            ("CPUs",),
            after=("n4",),
            gpus=1,
            victims=6,
        ),
    ),
    row(
        "`--cpus-per-gpu`",
        Ask(
            ("--gpus=1", "--cpus-per-gpu=12"),
            others_hold(*ALL, until="n4", gpus=0, cpus=8),
            ("CPUs",),
            after=("n4",),
            gpus=1,
            victims=6,
        ),
    ),
    row("`--licenses`", Ask((WHOLE, "--licenses=matlab:1"), licence_taken, ("matlab",), victims=6)),
    MatrixRow("`--dependency=afterok`", depends_starts, depends_waits),
    MatrixRow("dependencies that never come", never_starts, never_waits),
    MatrixRow("`--array` with a limit", array_starts, array_waits),
    MatrixRow("`salloc`", salloc_starts, salloc_waits),
    MatrixRow("`srun` without a script", srun_starts, srun_waits),
)
