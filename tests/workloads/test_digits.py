"""scikit-learn's digits as samples: all of them once, and the small net learns them."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.test_train import files, invoke
from workloads.digits import write_digits


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    write_digits(path)
    return path


def test_every_image_is_there_once_and_a_fifth_held_out(path: Path) -> None:
    arrays = np.load(path)
    inputs, held_out = arrays["inputs"], arrays["test_inputs"]
    assert inputs.shape == (1437, 1, 8, 8)
    assert held_out.shape == (360, 1, 8, 8)
    images = {image.tobytes() for image in (*inputs, *held_out)}
    assert len(images) == 1797, "the digits have no two alike"
    assert (inputs.min(), inputs.max()) == (0, 255)
    assert set(arrays["test_targets"]) == set(range(10))


def test_moved_images_lie_whole_on_a_noisy_ground(path: Path, tmp_path: Path) -> None:
    write_digits(tmp_path / "moved.npz", moved=True)
    plain, moved = np.load(path), np.load(tmp_path / "moved.npz")
    assert moved["inputs"].shape == (1437, 1, 16, 16)
    assert (moved["targets"] == plain["targets"]).all()
    for image, ground in zip(plain["test_inputs"][:20, 0], moved["test_inputs"][:20, 0], strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(ground, (8, 8)).reshape(-1, 8, 8)
        assert any((window[image >= 96] == image[image >= 96]).all() for window in windows)
    assert np.median(moved["inputs"]) > 30, "there is noise on it"


def test_the_small_net_learns_them_and_is_judged_on_those_held_out(path: Path, tmp_path: Path) -> None:
    job = ("digits", "--global-batch", "32", "--backend", "gloo", "--steps", "120", "--data", str(path))
    code, output = invoke(*job, *files(tmp_path))
    assert code == 0, output
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["held_out"] == 360
    assert last["accuracy"] > 0.9
    assert (
        f"on 360 samples held out: loss {last['loss']:.4f}, accuracy {100 * last['accuracy']:.2f} %" in output
    )
