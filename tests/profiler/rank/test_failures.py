import dataclasses
import signal
import threading

import pytest
import torch

from dally.errors import InputError
from profiler.rank.failures import StallWatch, explain, is_out_of_memory
from profiler.spec import MeasurementSpec
from tests.patience import LONGEST_S
from tests.profiler.rank.ranks import finish, ranks, spec_arguments
from tests.profiler.rank.test_peers import FIRST, SECOND
from workloads.settings import Backend

THIRD = dataclasses.replace(SECOND, rank=2, host="n3", address="10.0.0.3")
CLOSED = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:40312. It may have crashed"
LATE = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"


def test_our_own_errors_speak_for_themselves() -> None:
    assert explain(InputError("unknown model"), [SECOND]) == "unknown model"


def test_a_closed_connection_names_the_rank_at_that_address() -> None:
    lost = "lost rank 2 on n3: it ended, or the network between broke"
    assert explain(RuntimeError(CLOSED), [SECOND, THIRD]) == lost


def test_where_the_address_does_not_tell_all_that_may_be_lost_are_named() -> None:
    on_one_host = [dataclasses.replace(peer, address="10.0.0.1", host="n1") for peer in (SECOND, THIRD)]
    assert explain(RuntimeError(CLOSED), on_one_host).startswith("lost one of ranks 1, 2 on n1: ")


def test_a_timeout_names_the_other_rank() -> None:
    assert explain(RuntimeError(LATE), [SECOND]) == "rank 1 on n2 did not answer in time"


def test_nccls_remote_error_is_a_lost_rank() -> None:
    error = RuntimeError(
        "NCCL error in: NCCLUtils.cpp:77\nncclRemoteError: A call failed possibly due to a network error"
    )
    assert explain(error, [FIRST]).startswith("lost rank 0 on n1: ")


def test_other_errors_keep_their_first_line() -> None:
    error = RuntimeError("weights are gone\nstack\nof ten lines")
    assert explain(error, [SECOND]) == "RuntimeError: weights are gone"


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError("Unable to allocate 140. GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_want_of_memory_is_seen_wherever_it_comes_from(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert explain(error, [SECOND]).startswith("out of memory: ")


def test_other_errors_are_no_want_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError(CLOSED))


def test_a_rank_that_never_goes_on_is_ended_with_what_it_was_at() -> None:
    said: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        ended.set()

    watch = StallWatch(0.2, end)
    watch.doing = "resnet18"
    assert ended.wait(LONGEST_S)
    assert said == ["got no further for 0.2 s, at resnet18: another rank hangs, or the network between"]


def test_when_a_rank_stops_in_a_collective_the_other_ends_within_the_stated_time() -> None:
    spec = MeasurementSpec(
        ("mobilenetv3",),
        Backend.GLOO,
        emulated_flops=1e12,
        repetitions=1000,
        budget_s=1000.0,
        stall_s=5.0,
        allow_busy=True,
    )
    with ranks(2, spec_arguments(spec)) as started:
        assert started[0].stdout is not None
        assert "started" in started[0].stdout.readline()
        started[1].send_signal(signal.SIGSTOP)
        status, _, err = finish(started[:1])[0]
    assert status == 1
    assert err.splitlines()[-1] == (
        "rank 0 on host0: got no further for 5 s, at mobilenetv3: another rank hangs, or the network between"
    )
