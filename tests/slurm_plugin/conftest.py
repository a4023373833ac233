"""What all tests of the controller share."""

from collections.abc import Iterator

import pytest

from tests.slurm_plugin.quick_journals import quick_journals


@pytest.fixture(scope="session", autouse=True)
def journals_do_not_wait_for_the_disk() -> Iterator[None]:
    """Tests kill processes only, and would wait for the disk nearly all of the time."""
    with quick_journals():
        yield
