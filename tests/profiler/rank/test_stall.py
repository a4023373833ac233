"""A rank that gets no further ends; told by events, not by how long anything takes."""

import signal
import threading

from profiler.orders import MeasurementSpec
from profiler.rank.stall import StallWatch
from tests.profiler.rank.ranks import TIMEOUT_S, finish, order_arguments, ranks
from workloads.settings import Backend


def test_a_rank_that_never_goes_on_is_ended_with_what_it_was_at() -> None:
    said: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        ended.set()

    watch = StallWatch(0.2, end)
    watch.doing = "resnet18"
    assert ended.wait(TIMEOUT_S)
    assert said == ["got no further for 0.2 s, at resnet18: another rank hangs, or the network between"]


def test_when_a_rank_stops_in_a_collective_the_other_ends_within_the_stated_time() -> None:
    order = MeasurementSpec(
        ("mobilenetv3",),
        Backend.GLOO,
        emulated_flops=1e12,
        repetitions=1000,
        budget_s=1000.0,
        stall_s=5.0,
        allow_busy=True,
    )
    with ranks(2, order_arguments(order)) as started:
        assert started[0].stdout is not None
        assert "started" in started[0].stdout.readline()
        started[1].send_signal(signal.SIGSTOP)
        status, _, err = finish(started[:1])[0]
    assert status == 1
    assert err.splitlines()[-1] == (
        "rank 0 on host0: got no further for 5 s, at mobilenetv3: another rank hangs, or the network between"
    )
