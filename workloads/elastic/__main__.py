"""`dally-ranks FOLDER`: who trains in an elastic job; `--ranks N` has the last ones leave."""

import sys
import time
from pathlib import Path

import click

from dally.errors import DallyError, InputError
from workloads.elastic.folder import RendezvousFolder

_POLL_S = 0.2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--ranks", type=int, help="Have the last ranks leave, so that so many stay.")
@click.option("--wait", type=float, default=60.0, show_default=True, help="Seconds for them to leave.")
def main(folder: Path, ranks: int | None, wait: float) -> None:
    """Tell the members of the job that meets in FOLDER, a line each: its name and its machine."""
    try:
        job = RendezvousFolder(folder)
        if ranks is not None:
            shrink(job, ranks, wait)
        for name, host in job.present().items():
            click.echo(f"{name} {host}")
    except (DallyError, OSError) as error:
        click.echo(f"dally-ranks: {error}", err=True)
        sys.exit(1)


def shrink(job: RendezvousFolder, ranks: int, wait_s: float) -> None:
    """Have the last ranks of a job leave, and wait until they have.

    Args:
        job: Where it meets.
        ranks: So many stay.
        wait_s: How long to wait.

    Raises:
        InputError: There are not more ranks than that, or they did not leave in time.
    """
    members = list(job.present())
    if not 0 < ranks < len(members):
        raise InputError(f"ranks is {ranks}, must be positive and below the {len(members)} that there are")
    job.ask(out=members[ranks:])
    until_s = time.monotonic() + wait_s
    while not set(members[ranks:]).isdisjoint(job.present()):
        if time.monotonic() > until_s:
            raise InputError(f"the ranks did not leave within {wait_s:g} s; they are still asked to")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main()
