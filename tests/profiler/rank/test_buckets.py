import json
from typing import Any

import pytest

from dally.profiles.schema import Bucket
from profiler.rank.buckets import layout
from tests.profiler.rank.ranks import finish, ranks


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    """What differs between training with the recorder as hook and training without a hook, on two ranks."""
    with ranks(2, ("-m", "tests.profiler.rank.hook_program")) as started:
        ended = finish(started)
    assert [status for status, _, _ in ended] == [0, 0], ended
    found = json.loads(ended[0][1])
    assert isinstance(found, dict)
    return found


def test_the_recorded_layout_is_the_one_ddp_chose_for_itself(compared: dict[str, Any]) -> None:
    assert compared["recorded"] == compared["ddp"]
    assert len(compared["recorded"]) > 2


def test_gradients_are_those_of_ddp_without_a_hook(compared: dict[str, Any]) -> None:
    assert compared["same_gradients"] is True


def test_the_layout_has_the_median_ready_time_of_each_bucket() -> None:
    iterations = [[Bucket(400, ready_s), Bucket(100, ready_s + 1)] for ready_s in (1.0, 2.0, 6.0)]
    assert layout(iterations) == (Bucket(400, 2.0), Bucket(100, 3.0))


def test_iterations_with_other_buckets_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        layout([[Bucket(4, 1.0)] * 2, [Bucket(4, 1.0)]])
