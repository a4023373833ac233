"""Python's language reference as samples: whole, nothing twice, and the small transformer learns it."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.test_train import files, invoke
from workloads.reference_text import reference, write_reference


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("topics") / "topics.npz"
    write_reference(path)
    return path


def test_pieces_are_the_text_and_targets_one_character_on(path: Path) -> None:
    arrays, text = np.load(path), reference()
    inputs, targets = arrays["inputs"].ravel(), arrays["targets"].ravel()
    assert (inputs == text[: len(inputs)]).all()
    assert (targets[:-1] == inputs[1:]).all()
    assert 8.5 < len(inputs) / len(arrays["test_inputs"].ravel()) < 9.5
    assert inputs.max() < 128


def test_no_paragraph_is_there_twice() -> None:
    paragraphs = reference().tobytes().split(b"\n\n")
    assert len(set(paragraphs)) == len(paragraphs) > 1000


def test_the_small_transformer_learns_it(path: Path, tmp_path: Path) -> None:
    job = ("chargpt", "--global-batch", "8", "--backend", "gloo", "--steps", "100", "--data", str(path))
    code, output = invoke(*job, *files(tmp_path))
    assert code == 0, output
    first, *_, last = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert first["loss"] == pytest.approx(np.log(128), abs=0.2), "it begins with a guess"
    assert last["loss"] < 3.0
    assert last["accuracy"] is None
