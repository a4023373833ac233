import pytest

from dally.errors import InputError
from dally.jobs.priority import check_ratio, may_take_gpus


def test_a_job_may_take_gpus_of_those_that_it_has_the_ratio_of() -> None:
    assert may_take_gpus(75.0, 100.0, 0.75)
    assert not may_take_gpus(74.0, 100.0, 0.75)
    assert may_take_gpus(0.0, 100.0, 0.0), "a ratio of 0 lets everybody"


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_that_is_no_part_is_refused(ratio: float) -> None:
    with pytest.raises(InputError, match="priority_ratio is"):
        check_ratio(ratio)
