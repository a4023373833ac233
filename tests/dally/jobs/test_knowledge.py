import pytest

from dally.errors import InputError
from dally.jobs.knowledge import EXACTLY, Knowledge, Known


def test_the_class_and_its_error_in_a_word() -> None:
    assert str(EXACTLY) == "exact"
    assert str(Known(Knowledge.NONE)) == "none"
    assert str(Known(error=0.5)) == "exact ± 0.5"
    assert str(Known(Knowledge.LIMITS, profile_error=0.3)) == "limits, profiles ± 0.3"


@pytest.mark.parametrize("error", [-1.0, float("nan"), float("inf")])
def test_an_error_that_is_no_number_of_0_or_more_is_refused(error: float) -> None:
    with pytest.raises(InputError, match=r"estimate_error is .*, must be 0 or more"):
        Known(error=error)
    with pytest.raises(InputError, match=r"profile_error is .*, must be 0 or more"):
        Known(profile_error=error)


def test_an_error_of_what_is_not_exact_is_refused() -> None:
    with pytest.raises(InputError, match="estimate_error goes with knowledge exact, not with limits"):
        Known(Knowledge.LIMITS, error=0.5)
