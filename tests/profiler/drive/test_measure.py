from dataclasses import replace
from pathlib import Path

import pytest

from profiler.drive.measure import InterruptedRunError, MeasureError, measure
from profiler.drive.store import Store, StoreError
from profiler.drive.tasks import plan_tasks
from profiler.findings import Finding, Started
from profiler.report.raw import read_raw
from tests.profiler.drive.worlds import ENV, FakeLauncher, findings, make_run

LONG_S = 120.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "out")
    store.raw.mkdir(parents=True)
    return store


def files(store: Store) -> list[str]:
    return sorted(path.name for path in store.raw.iterdir())


def do(
    store: Store, launcher: FakeLauncher, *names: str, resume: bool = False, timeout_s: float = LONG_S
) -> None:
    runs = [make_run(name) for name in names or ("rack-2x1",)]
    measure(plan_tasks(runs, store, resume), launcher, store, timeout_s)


def test_runs_are_launched_one_after_another_and_stored(store: Store) -> None:
    launcher = FakeLauncher()

    do(store, launcher, "rack-2x1", "network-2x1")

    assert [run.name for run in launcher.launched] == ["rack-2x1", "network-2x1"]
    assert files(store) == ["network-2x1.jsonl", "rack-2x1.jsonl"]
    assert [item.model.name for item in read_raw(store.complete("rack-2x1")).trained] == ["resnet18", "vgg11"]


def test_what_was_found_stays_when_a_rank_fails_and_its_own_line_is_the_message(store: Store) -> None:
    some = findings("resnet18")[:-1]
    launcher = FakeLauncher({"rack-2x1": some}, "echo 'rank 1 on h2: out of memory' >&2; exit 1")

    with pytest.raises(MeasureError, match=r"^rack-2x1: rank 1 on h2: out of memory$") as caught:
        do(store, launcher, "rack-2x1", "network-2x1")

    assert "1 of 2 models are kept in" in caught.value.hint
    assert "--resume continues" in caught.value.hint
    assert files(store) == ["rack-2x1.log", "rack-2x1.partial.jsonl"]
    assert store.log("rack-2x1").read_text() == "rank 1 on h2: out of memory\n"
    assert len(launcher.launched) == 1


def test_a_failed_run_can_be_resumed_and_ends_as_if_it_had_not_failed(store: Store) -> None:
    with pytest.raises(MeasureError):
        do(store, FakeLauncher({"rack-2x1": findings("resnet18")[:-1]}, "echo no >&2; exit 1"))

    do(store, launcher := FakeLauncher(), resume=True)

    assert launcher.launched[0].order.models == ("vgg11",)
    assert files(store) == ["rack-2x1.jsonl"]
    raw = read_raw(store.complete("rack-2x1"))
    assert raw.run == make_run()
    assert [item.model.name for item in raw.trained] == ["resnet18", "vgg11"]
    assert [item.bytes for item in raw.reduced] == [4096, 4000]
    assert raw.finished


def test_ranks_that_end_without_a_word_have_failed(store: Store) -> None:
    with pytest.raises(MeasureError, match="rank 0 did not say that it finished"):
        do(store, FakeLauncher({"rack-2x1": findings("resnet18")[:-1]}))

    assert files(store) == ["rack-2x1.partial.jsonl"]


def test_ranks_that_fail_after_all_was_measured_have_measured_all(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    do(store, FakeLauncher(then="echo 'rank 0 on h1: terminated' >&2; exit 1"))

    assert files(store) == ["rack-2x1.jsonl"]
    assert "the end was not clean: rank 0 on h1: terminated" in capsys.readouterr().err


def test_a_run_that_takes_too_long_is_ended(store: Store) -> None:
    with pytest.raises(MeasureError, match=r"took longer than 0.5 s"):
        do(store, FakeLauncher({"rack-2x1": ()}, "exec sleep 1000"), timeout_s=0.5)


def test_an_interrupted_run_keeps_what_it_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str, finding: Finding) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "add", interrupt)
    with pytest.raises(InterruptedRunError, match=r"^rack-2x1: interrupted$") as caught:
        do(store, FakeLauncher())

    assert "0 of 2 models are kept in" in caught.value.hint
    assert files(store) == ["rack-2x1.partial.jsonl"]


def test_a_disk_that_is_full_ends_the_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, finding: Finding) -> None:
        raise StoreError(f"cannot write {store.partial(name)}: No space left on device")

    monkeypatch.setattr(store, "add", fail)
    with pytest.raises(MeasureError, match=r"^rack-2x1: cannot write .*: No space left on device$"):
        do(store, FakeLauncher(then="exec sleep 1000"))


def test_a_run_does_not_go_on_with_another_torch(store: Store) -> None:
    with pytest.raises(MeasureError):
        do(store, FakeLauncher({"rack-2x1": findings("resnet18")[:-1]}, "exit 1"))
    newer = (Started(replace(ENV, torch="9.0")), *findings("vgg11")[1:])

    with pytest.raises(MeasureError, match=r"began with torch 2\.13\.0, cannot go on with 9.0"):
        do(store, FakeLauncher({"rack-2x1": newer}), resume=True)


def test_lines_that_are_no_findings_are_shown(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    do(store, FakeLauncher(then="echo prolog was here"))

    assert "rack-2x1: prolog was here" in capsys.readouterr().err
