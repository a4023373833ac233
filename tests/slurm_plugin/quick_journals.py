"""Journals that do not wait for the disk, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from slurm_plugin.controller.journal import Journal


@contextmanager
def quick_journals() -> Iterator[None]:
    """Commits are whole for every other process, also after a kill, but not safe from a loss of power."""
    take_over = Journal._take_over

    def at_once(journal: Journal) -> None:
        journal._database.execute("PRAGMA synchronous=OFF")
        take_over(journal)

    with patch.object(Journal, "_take_over", at_once):
        yield
