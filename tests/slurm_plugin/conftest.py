"""What all tests of the controller share."""

from collections.abc import Iterator

import pytest

from slurm_plugin.controller.journal import Journal


@pytest.fixture(scope="session", autouse=True)
def journals_do_not_wait_for_the_disk() -> Iterator[None]:
    """Commits are whole for every other process, also after a kill, but not safe from a loss of power.

    Tests kill processes only, and would wait for the disk nearly all of the time.
    """
    take_over = Journal._take_over

    def at_once(journal: Journal) -> None:
        journal._database.execute("PRAGMA synchronous=OFF")
        take_over(journal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_take_over", at_once)
        yield
