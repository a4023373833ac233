from pathlib import Path

import pytest

from profiler.driver.store import MeasurementStore, StoreError
from profiler.messages import Finished
from tests.profiler.driver.worlds import make_run, messages, reduced, trained


@pytest.fixture
def store(tmp_path: Path) -> MeasurementStore:
    store = MeasurementStore(tmp_path / "out")
    store.raw.mkdir(parents=True)
    return store


def test_a_run_is_partial_until_it_is_finished(store: MeasurementStore) -> None:
    store.begin(make_run())
    for message in messages("resnet18"):
        store.add("rack-2x1", message)
    assert [path.name for path in store.raw.iterdir()] == ["rack-2x1.partial.jsonl"]

    store.finish("rack-2x1")

    assert [path.name for path in store.raw.iterdir()] == ["rack-2x1.jsonl"]


def test_what_was_stored_is_found_again(store: MeasurementStore) -> None:
    store.begin(make_run())
    for message in messages("resnet18"):
        store.add("rack-2x1", message)

    found = store.find("rack-2x1")

    assert found is not None
    assert found[1].run == make_run()
    assert found[1].trained == (trained("resnet18"),)
    assert found[1].finished


def test_a_run_without_a_file_is_not_found(store: MeasurementStore) -> None:
    assert store.find("rack-2x1") is None


def test_beginning_again_keeps_what_is_to_be_kept_and_leaves_one_file(store: MeasurementStore) -> None:
    store.begin(make_run())
    store.finish("rack-2x1")

    store.begin(make_run(), messages("resnet18")[:-1])

    assert [path.name for path in store.raw.iterdir()] == ["rack-2x1.partial.jsonl"]
    found = store.find("rack-2x1")
    assert found is not None
    assert found[1].reduced == (reduced(4096), reduced(4000))


def test_only_one_process_writes_to_a_folder_at_a_time(store: MeasurementStore) -> None:
    with store.locked(), pytest.raises(StoreError, match="another profile-models is writing to"):
        MeasurementStore(store.out).locked().__enter__()
    with store.locked():
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot write .*file/out/raw: Not a directory"):
        MeasurementStore(tmp_path / "file" / "out").locked().__enter__()


def test_a_full_disk_is_told_in_one_line_that_names_the_file(store: MeasurementStore) -> None:
    store.partial("rack-2x1").symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"cannot write .*rack-2x1.partial.jsonl: No space left on device"):
        store.add("rack-2x1", Finished(1.0))
