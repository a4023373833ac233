from pathlib import Path

import pytest

from dally.profiles.files import load_profiles
from profiler.driver.publish import publish, show
from profiler.driver.store import MeasurementStore
from tests.profiler.driver.worlds import make_run, messages


@pytest.fixture
def store(tmp_path: Path) -> MeasurementStore:
    """The folder of one complete run."""
    store = MeasurementStore(tmp_path / "out")
    store.raw.mkdir(parents=True)
    store.begin(make_run())
    for message in messages("resnet18", "vgg11"):
        store.add("rack-2x1", message)
    store.finish("rack-2x1")
    return store


def test_each_model_becomes_a_file_that_can_be_read_back(store: MeasurementStore) -> None:
    profiles = publish(store)

    assert [profile.model.name for profile in profiles] == ["resnet18", "vgg11"]
    assert load_profiles(store.out / "vgg11.json").profiles[0] == profiles[1]


def test_profiles_have_the_time_of_the_measurement_not_of_the_fit(store: MeasurementStore) -> None:
    first, second = publish(store), publish(store)

    assert first == second


def test_the_figure_lies_beside_the_profiles(
    store: MeasurementStore, capsys: pytest.CaptureFixture[str]
) -> None:
    show(publish(store), store.out)

    assert (store.out / "profiles.png").read_bytes().startswith(b"\x89PNG")
    assert f"profiles: {store.out}/   figure: {store.out}/profiles.png" in capsys.readouterr().out
