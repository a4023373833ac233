"""Samples come from a file as they are in it, and a file that does not fit the model is told why."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dally.errors import InputError
from tests.workloads.tiny import TINY
from workloads.group import Group
from workloads.local_data import LocalData
from workloads.registry import WORKLOADS
from workloads.settings import Settings
from workloads.task import make_task
from workloads.training import Trainer

INPUTS = np.arange(24, dtype=np.int32).reshape(8, 3) % 10
TARGETS = np.arange(8, dtype=np.uint8) % 3
TASK = make_task(TINY)


@pytest.fixture(params=["stored", "compressed", "by columns"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    save = np.savez_compressed if request.param == "compressed" else np.savez
    inputs = np.asfortranarray(INPUTS) if request.param == "by columns" else INPUTS
    save(tmp_path / "data.npz", inputs=inputs, targets=TARGETS)
    return tmp_path / "data.npz"


def test_samples_are_those_of_the_file(path: Path) -> None:
    data = LocalData(path, TASK)
    inputs, targets = data.draw([7, 0, 7])
    assert data.count == 8
    assert np.array_equal(inputs, INPUTS[[7, 0, 7]])
    assert np.array_equal(targets, TARGETS[[7, 0, 7]])


def test_a_model_learns_them(path: Path, alone: Group) -> None:
    trainer = Trainer(TINY, Settings(8), alone, source=LocalData(path, TASK))
    losses = [trainer.train(step, range(8)).item() for step in range(50)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (INPUTS.astype(float), TARGETS, "inputs of .* are float64 of shape"),
        (INPUTS[:, :2], TARGETS, r"must be whole numbers of shape \(samples, 3\)"),
        (INPUTS + 1, TARGETS, r"inputs .* go from 1 to 10, .* below \(10,\)"),
        (INPUTS - 1, TARGETS, "inputs .* go from -1 to 8, must be 0 or more"),
        (INPUTS, TARGETS + 1, r"targets .* go from 1 to 3, .* below \(3,\)"),
        (INPUTS, TARGETS[1:], "has 8 inputs and 7 targets, must be as many"),
        (INPUTS[:0], TARGETS[:0], "has no samples"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    inputs: NDArray[np.generic], targets: NDArray[np.generic], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=targets)
    with pytest.raises(InputError, match=message):
        LocalData(tmp_path / "data.npz", TASK)


def test_an_array_that_is_missing_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", inputs=INPUTS)
    with pytest.raises(InputError, match=r"is not an \.npz file with an array targets"):
        LocalData(tmp_path / "data.npz", TASK)


def test_compressed_numbers_that_are_broken_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, inputs=INPUTS, targets=TARGETS)
    content = bytearray(path.read_bytes())
    start = content.index(b"inputs.npy") + len(b"inputs.npy")
    content[start : start + 60] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is not an \.npz file with an array inputs"):
        LocalData(path, TASK)


def test_each_column_has_its_own_limit(tmp_path: Path) -> None:
    task = make_task(WORKLOADS["ncf"])
    np.savez(tmp_path / "data.npz", inputs=np.array([[100_000, 26_744]]), targets=np.array([1]))
    with pytest.raises(InputError, match=r"below \(138493, 26744\)"):
        LocalData(tmp_path / "data.npz", task)


@pytest.mark.parametrize("content", [None, b"", b"PK", b"no zip file"])
def test_a_file_that_is_no_npz_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"data\.npz is not an \.npz file with an array inputs"):
        LocalData(tmp_path / "data.npz", TASK)
