import pytest

from dally.errors import InputError
from profiler.rank.sweep import check_sizes


@pytest.mark.parametrize("size", [0, 6, 4097])
def test_a_size_that_is_not_whole_numbers_of_fp32_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"sweep_bytes has {size}; valid: positive multiples of 4"):
        check_sizes((4096, size))
