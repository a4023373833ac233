from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dally.profiles.schema import PointShape
from profiler.driver.measure import InterruptedRunError, MeasureError, measure
from profiler.driver.plan import NoRoomError
from profiler.driver.store import MeasurementStore, StoreError
from profiler.driver.tasks import plan_tasks
from profiler.launch.rank_commands import Launcher
from profiler.messages import Failed, Message, Started
from profiler.report.raw import read_raw
from profiler.spec import MeasurementRun
from tests.profiler.driver.worlds import ENV, FakeLauncher, make_run, messages

LONG_S = 120.0


@pytest.fixture
def store(tmp_path: Path) -> MeasurementStore:
    store = MeasurementStore(tmp_path / "out")
    store.raw.mkdir(parents=True)
    return store


def files(store: MeasurementStore) -> list[str]:
    return sorted(path.name for path in store.raw.iterdir())


def do(
    store: MeasurementStore,
    launcher: FakeLauncher,
    *names: str,
    resume: bool = False,
    timeout_s: float = LONG_S,
) -> tuple[str, ...]:
    runs = [make_run(name) for name in names or ("rack-2x1",)]
    return measure(plan_tasks(runs, store, resume), launcher, store, timeout_s)


def test_runs_are_launched_one_after_another_and_stored(store: MeasurementStore) -> None:
    launcher = FakeLauncher()

    do(store, launcher, "rack-2x1", "network-2x1")

    assert [run.name for run in launcher.launched] == ["rack-2x1", "network-2x1"]
    assert files(store) == ["network-2x1.jsonl", "rack-2x1.jsonl"]
    assert [item.model.name for item in read_raw(store.complete("rack-2x1")).trained] == ["resnet18", "vgg11"]


def test_a_run_runs_on_the_hosts_that_it_is_given(store: MeasurementStore) -> None:
    other, given = FakeLauncher(), []

    class Holding(FakeLauncher):
        @contextmanager
        def hold(
            self, run: MeasurementRun, say: Callable[[str], None]
        ) -> Iterator[tuple[MeasurementRun, FakeLauncher]]:
            say("waiting")
            yield replace(run, hosts=("h7", "h8")), other
            given.append(run.name)

    assert do(store, Holding({}, "exit 1")) == ()
    assert [run.hosts for run in other.launched] == [("h7", "h8")]
    assert read_raw(store.complete("rack-2x1")).run.hosts == ("h7", "h8")
    assert given == ["rack-2x1"]


def test_a_run_that_gets_no_hosts_is_left_out_and_the_others_go_on(
    store: MeasurementStore, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(FakeLauncher):
        @contextmanager
        def hold(
            self, run: MeasurementRun, say: Callable[[str], None]
        ) -> Iterator[tuple[MeasurementRun, Launcher[MeasurementRun]]]:
            if run.name == "rack-2x1":
                raise NoRoomError("gave up")
            yield run, self

    left = do(store, Refusing(), "rack-2x1", "network-2x1")

    assert left == ("rack-2x1: gave up",)
    assert files(store) == ["network-2x1.jsonl"]
    assert "rack-2x1: gave up" in capsys.readouterr().err


def test_what_was_found_stays_when_a_rank_fails_and_its_own_line_is_the_message(
    store: MeasurementStore,
) -> None:
    some = messages("resnet18")[:-1]
    launcher = FakeLauncher({"rack-2x1": some}, "echo 'rank 1 on h2: lost its disk' >&2; exit 1")

    (problem,) = do(store, launcher)

    assert problem.startswith("rack-2x1: rank 1 on h2: lost its disk (1 of 2 models kept in")
    assert "--resume continues" in problem
    assert files(store) == ["rack-2x1.log", "rack-2x1.partial.jsonl"]
    assert store.log("rack-2x1").read_text() == "rank 1 on h2: lost its disk\n"


def test_a_run_that_fails_once_its_ranks_have_met_does_not_end_the_next(store: MeasurementStore) -> None:
    launcher = FakeLauncher({"rack-2x1": messages()[:-1]}, "exit 1")

    (problem,) = do(store, launcher, "rack-2x1", "network-2x1")

    assert problem.startswith("rack-2x1: ")
    assert [run.name for run in launcher.launched] == ["rack-2x1", "network-2x1"]
    assert files(store) == ["network-2x1.jsonl", "rack-2x1.partial.jsonl"]


def test_ranks_that_never_meet_end_the_measurement(store: MeasurementStore) -> None:
    launcher = FakeLauncher({"rack-2x1": ()}, "echo 'rank 0 on h1: no torch' >&2; exit 1")

    with pytest.raises(MeasureError, match=r"^rack-2x1: rank 0 on h1: no torch$") as caught:
        do(store, launcher, "rack-2x1", "network-2x1")

    assert "0 of 2 models kept in" in caught.value.hint
    assert len(launcher.launched) == 1


def test_a_model_that_does_not_fit_is_left_out_and_the_others_are_launched_again(
    store: MeasurementStore,
) -> None:
    launcher = FakeLauncher(too_large=["resnet18"])

    problems = do(store, launcher)

    assert problems == ("rack-2x1: resnet18: out of memory",)
    assert [run.spec.models for run in launcher.launched] == [("resnet18", "vgg11"), ("vgg11",)]
    raw = read_raw(store.complete("rack-2x1"))
    assert ([item.model for item in raw.failed], [item.model.name for item in raw.trained]) == (
        ["resnet18"],
        ["vgg11"],
    )


def test_on_resume_a_model_that_did_not_fit_is_tried_again_and_nothing_else(store: MeasurementStore) -> None:
    do(store, FakeLauncher(too_large=["resnet18"]))

    problems = do(store, launcher := FakeLauncher(), resume=True)

    assert problems == ()
    assert [run.spec.models for run in launcher.launched] == [("resnet18",)]
    raw = read_raw(store.complete("rack-2x1"))
    assert ([item.model.name for item in raw.trained], raw.failed) == (["vgg11", "resnet18"], ())


def test_what_does_not_fit_for_one_rank_alone_is_not_tried_in_later_runs(store: MeasurementStore) -> None:
    alone = replace(make_run("machine-1x1"), tier="machine", shape=PointShape(1, 1, "blocked", 1))
    said = (*messages()[:-1], Failed("resnet18", "out of memory"), *messages("vgg11")[3:])
    launcher = FakeLauncher({"machine-1x1": said})

    problems = measure(plan_tasks([alone, make_run()], store, False), launcher, store, LONG_S)

    assert problems == ("machine-1x1: resnet18: out of memory",)
    assert [run.spec.models for run in launcher.launched] == [("resnet18", "vgg11"), ("vgg11",)]


def test_a_failed_run_can_be_resumed_and_ends_as_if_it_had_not_failed(store: MeasurementStore) -> None:
    assert do(store, FakeLauncher({"rack-2x1": messages("resnet18")[:-1]}, "echo no >&2; exit 1"))

    do(store, launcher := FakeLauncher(), resume=True)

    assert launcher.launched[0].spec.models == ("vgg11",)
    assert files(store) == ["rack-2x1.jsonl"]
    raw = read_raw(store.complete("rack-2x1"))
    assert raw.run == make_run()
    assert [item.model.name for item in raw.trained] == ["resnet18", "vgg11"]
    assert [item.bytes for item in raw.reduced] == [4096, 4000]
    assert raw.finished


def test_ranks_that_end_without_a_word_have_failed(store: MeasurementStore) -> None:
    (problem,) = do(store, FakeLauncher({"rack-2x1": messages("resnet18")[:-1]}))

    assert "rank 0 did not say that it finished" in problem
    assert files(store) == ["rack-2x1.partial.jsonl"]


def test_ranks_that_fail_after_all_was_measured_have_measured_all(
    store: MeasurementStore, capsys: pytest.CaptureFixture[str]
) -> None:
    do(store, FakeLauncher(then="echo 'rank 0 on h1: terminated' >&2; exit 1"))

    assert files(store) == ["rack-2x1.jsonl"]
    assert "the end was not clean: rank 0 on h1: terminated" in capsys.readouterr().err


def test_a_run_that_takes_too_long_is_ended(store: MeasurementStore) -> None:
    with pytest.raises(MeasureError, match=r"took longer than 0.5 s"):
        do(store, FakeLauncher({"rack-2x1": ()}, "exec sleep 1000"), timeout_s=0.5)


def test_an_interrupted_run_keeps_what_it_found(
    store: MeasurementStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str, message: Message) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "add", interrupt)
    with pytest.raises(InterruptedRunError, match=r"^rack-2x1: interrupted$") as caught:
        do(store, FakeLauncher())

    assert "0 of 2 models kept in" in caught.value.hint
    assert files(store) == ["rack-2x1.partial.jsonl"]


def test_a_disk_that_is_full_ends_the_run(store: MeasurementStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, message: Message) -> None:
        raise StoreError(f"cannot write {store.partial(name)}: No space left on device")

    monkeypatch.setattr(store, "add", fail)
    with pytest.raises(MeasureError, match=r"^rack-2x1: cannot write .*: No space left on device$"):
        do(store, FakeLauncher(then="exec sleep 1000"))


def test_a_run_does_not_go_on_with_another_torch(store: MeasurementStore) -> None:
    do(store, FakeLauncher({"rack-2x1": messages("resnet18")[:-1]}, "exit 1"))
    newer = (Started(replace(ENV, torch="9.0")), *messages("vgg11")[1:])

    with pytest.raises(MeasureError, match=r"began with torch 2\.13\.0, cannot go on with 9.0"):
        do(store, FakeLauncher({"rack-2x1": newer}), resume=True)


def test_lines_that_are_no_findings_are_shown(
    store: MeasurementStore, capsys: pytest.CaptureFixture[str]
) -> None:
    do(store, FakeLauncher(then="echo prolog was here"))

    assert "rack-2x1: prolog was here" in capsys.readouterr().err
