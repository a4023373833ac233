import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.profiles.allreduce import curve_time_s
from dally.profiles.iteration import buckets_s
from dally.profiles.schema import Reduced
from profiler.messages import Failed, Finished, Message, Started, Trained, parse_line
from profiler.rank.failures import StallWatch
from profiler.rank.session import RankSession
from profiler.spec import MeasurementRun, MeasurementSpec, format_spec, parse_spec
from tests.patience import LONGEST_S
from tests.profiler.rank.ranks import finish, ranks, spec_arguments
from tests.workloads.ranks import preloaded
from workloads.registry import find_workload
from workloads.settings import Backend

LONG_S = 3600.0

EMULATED = MeasurementSpec(
    models=("resnet18", "mobilenetv3"),
    backend=Backend.GLOO,
    emulated_flops=2e13,
    sweep_bytes=(4096, 1 << 20),
    repetitions=9,
    budget_s=3.0,
    warmup_s=2.0,
    allow_busy=True,
)


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("loaded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        with preloaded(folder / "here", "tests.profiler.rank.rank_server"):
            yield


@pytest.fixture(scope="module")
def emulated() -> list[Message]:
    """What two ranks find of two emulated models."""
    return measure(EMULATED, 2)


def measure(spec: MeasurementSpec, size: int) -> list[Message]:
    with ranks(size, spec_arguments(spec)) as started:
        ended = finish(started)
    assert [status for status, _, _ in ended] == [0] * size, ended
    assert all(not out for _, out, _ in ended[1:])
    lines = [parse_line(line) for line in ended[0][1].splitlines()]
    return [line for line in lines if not isinstance(line, MeasurementRun)]


def failure(module: tuple[str, ...]) -> tuple[int, str, str]:
    with ranks(1, module) as started:
        return finish(started)[0]


def curve(messages: list[Message]) -> list[Reduced]:
    found = [message for message in messages if isinstance(message, Reduced)]
    return sorted(found, key=lambda reduced: reduced.bytes)


def trained(messages: list[Message]) -> list[Trained]:
    return [message for message in messages if isinstance(message, Trained)]


def test_a_launch_tells_where_it_runs_first_and_that_it_finished_last(emulated: list[Message]) -> None:
    assert isinstance(emulated[0], Started)
    assert emulated[0].env.hosts == ("host0", "host1")
    assert emulated[0].env.nic == "lo"
    assert isinstance(emulated[-1], Finished)


def test_every_model_is_measured_in_the_order_given(emulated: list[Message]) -> None:
    assert [message.model.name for message in trained(emulated)] == list(EMULATED.models)


def test_every_ordered_size_and_every_bucket_size_is_swept_once(emulated: list[Message]) -> None:
    sizes = {bucket.bytes for message in trained(emulated) for bucket in message.model.buckets}
    assert [reduced.bytes for reduced in curve(emulated)] == sorted(sizes | set(EMULATED.sweep_bytes))


def test_buckets_hold_exactly_the_gradients_of_the_model(emulated: list[Message]) -> None:
    for message in trained(emulated):
        assert message.model.grad_bytes == find_workload(message.model.name).grad_bytes
        assert message.model.grad_bytes == sum(bucket.bytes for bucket in message.model.buckets)


def test_buckets_become_ready_during_backward(emulated: list[Message]) -> None:
    resnet = trained(emulated)[0]
    fwd_s = resnet.compute.fwd_s
    assert fwd_s is not None
    assert resnet.model.buckets[0].ready_s > fwd_s / 2, "medians of different iterations, on a busy machine"
    assert resnet.compute.window_s is not None
    assert 0 < resnet.compute.window_s < resnet.compute.bwd_s * 1.5


def test_backward_lasts_about_twice_as_long_as_forward_when_slept(emulated: list[Message]) -> None:
    compute = trained(emulated)[0].compute
    assert compute.fwd_s is not None
    assert 1.2 < compute.bwd_s / compute.fwd_s < 3.0


def test_replaying_the_buckets_on_the_swept_curve_comes_near_the_measured_iteration(
    emulated: list[Message],
) -> None:
    resnet = trained(emulated)[0]
    predicted_s = buckets_s(
        resnet.compute, resnet.model.buckets, lambda size: curve_time_s(curve(emulated), size)
    )
    assert 0.6 < predicted_s / resnet.iteration.median_s < 1.6


def test_on_one_rank_compute_is_timed_with_other_batches_and_its_fixed_part_told() -> None:
    spec = replace(SMALL, models=("mobilenetv3",), emulated_flops=2e10)
    messages = measure(replace(spec, local_batch=64, more_local_batches=(32, 8)), 1)
    (message,) = trained(messages)
    assert [item.local_batch for item in message.compute.other_batches] == [8, 32]
    assert message.compute.other_batches[0].total_s < message.compute.other_batches[1].total_s
    assert message.compute.fixed_s < message.compute.total_s / 2, "slept compute goes with the batch"
    assert message.model.precision is None, "what is slept has no precision"


def test_one_rank_computes_for_real_and_sweeps_nothing() -> None:
    messages = measure(
        MeasurementSpec(
            ("mobilenetv3",),
            Backend.GLOO,
            local_batch=1,
            sweep_bytes=(4096,),
            repetitions=3,
            budget_s=0.5,
            warmup_s=0.2,
            allow_busy=True,
        ),
        1,
    )
    assert curve(messages) == []
    (message,) = trained(messages)
    assert message.compute.contention_factor is None
    assert (message.model.local_batch, message.compute.other_batches) == (1, ())
    assert (message.model.precision, message.model.dtype) == ("fp32", "float32")
    assert len(message.model.buckets) > 1


def test_when_a_rank_is_killed_the_other_names_it_and_ends() -> None:
    spec = MeasurementSpec(
        ("mobilenetv3",), Backend.GLOO, emulated_flops=1e12, repetitions=1000, allow_busy=True
    )
    with ranks(2, spec_arguments(spec)) as started:
        assert started[0].stdout is not None
        assert "started" in started[0].stdout.readline()
        started[1].kill()
        status, _, err = finish(started)[0]
    assert status == 1
    assert (
        err.splitlines()[-1]
        == "rank 0 on host0: lost rank 1 on host1: it ended, or the network between broke"
    )


MEMORY = "tests.profiler.rank.memory_program"
SMALL = MeasurementSpec(
    ("resnet18", "mobilenetv3"),
    Backend.GLOO,
    emulated_flops=1e14,
    repetitions=3,
    budget_s=0.5,
    warmup_s=0.1,
    allow_busy=True,
)
NO_MEMORY = "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_alone_a_rank_goes_on_after_a_model_that_does_not_fit_into_memory() -> None:
    with ranks(1, (MEMORY, format_spec(SMALL), "resnet18", "0")) as started:
        ((status, out, err),) = finish(started)
    found = [parse_line(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert Failed("resnet18", NO_MEMORY) in found
    assert [item.model.name for item in found if isinstance(item, Trained)] == ["mobilenetv3"]
    assert isinstance(found[-1], Finished)


def test_with_others_the_rank_on_which_a_model_does_not_fit_says_so_and_all_end() -> None:
    with ranks(2, (MEMORY, format_spec(SMALL), "resnet18", "1")) as started:
        (first, _, _), (second, out, err) = finish(started)
    assert (first, second) == (1, 1)
    assert [parse_line(line) for line in out.splitlines()] == [Failed("resnet18", NO_MEMORY)]
    assert err == f"rank 1 on host1: {NO_MEMORY}\n"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ('{"models": ["lenet"], "backend": "gloo"}', "unknown model lenet; valid: resnet18"),
        ('{"models": ["ncf"], "backend": "gloo", "sweep_bytes": [6]}', "sweep_bytes has 6; valid: "),
        ('{"models": ["ncf"], "backend": "mpi"}', 'backend is "mpi"; valid: nccl, gloo'),
        ('{"models": ["ncf"]', "the specification is not JSON: "),
    ],
)
def test_a_wrong_spec_is_refused(argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RankSession(parse_spec(argument), print, StallWatch(LONG_S, print))


def test_what_a_rank_refuses_it_says_in_one_line() -> None:
    status, out, err = failure(spec_arguments(MeasurementSpec(("ncf",), Backend.NCCL)))
    assert (status, out) == (1, "")
    assert err.startswith("rank 0 on host0: backend nccl needs a GPU and there is none here")
    assert err.count("\n") == 1


def test_without_a_spec_the_usage_is_told() -> None:
    status, out, err = failure(("profiler.rank",))
    assert (status, out) == (2, "")
    assert err == "usage: python -m profiler.rank SPEC_JSON\n"


def test_a_busy_machine_is_refused_by_name() -> None:
    spec = MeasurementSpec(("mobilenetv3",), Backend.GLOO)
    with burners():
        status, out, err = failure(spec_arguments(spec))
    assert (status, out) == (1, "")
    assert err.startswith("rank 0 on host0: host0 is busy: others use ")


@contextmanager
def burners() -> Iterator[None]:
    """As many busy processes as there are CPUs."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait, LONGEST_S)
            stack.callback(process.kill)
        yield
