"""The lists of test files in conftest.py."""

import pytest

from tests.conftest import ONE_WORKER, SLOW, SLOW_FOLDERS, TESTS


@pytest.mark.parametrize("name", sorted({*SLOW, *ONE_WORKER, *SLOW_FOLDERS}))
def test_what_is_listed_is_there(name: str) -> None:
    assert (TESTS / name).exists()
