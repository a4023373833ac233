"""The lists of test files in conftest.py."""

import pytest

from tests.conftest import DAEMONS, ONE_WORKER, SLOW, TESTS


@pytest.mark.parametrize("name", sorted({*SLOW, *ONE_WORKER, *DAEMONS}))
def test_what_is_listed_is_there(name: str) -> None:
    assert (TESTS / name).exists()
