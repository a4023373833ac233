"""Waiting beside idle GPUs is told from waiting for GPUs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.advise.history import idle_share
from tests.analysis.advise.histories import Row, read


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ([Row(0, 0, 100, 8), Row(0, 100, 50, 4)], 0),
        ([Row(0, 0, 100, 4), Row(0, 100, 50, 4)], 1),
        ([Row(0, 0, 100, 4), Row(0, 100, 50, 5)], 0),
        ([Row(0, 0, 100, 8), Row(50, 150, 50, 8)], 0.5),
        ([Row(0, 0, 100, 8), Row(0, 40, 10, 8), Row(0, 200, 50, 1)], 100 / 240),
        ([Row(0, 0, 100, 8)], 0),
    ],
)
def test_waiting_counts_as_idle_while_there_was_room(
    tmp_path: Path, rows: Sequence[Row], share: float
) -> None:
    assert idle_share(read(tmp_path, rows), 8) == pytest.approx(share)
