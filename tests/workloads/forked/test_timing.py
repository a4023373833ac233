"""How long forked jobs take is read from their logs."""

from dataclasses import replace
from pathlib import Path

import pytest

from workloads.forked import timing
from workloads.forked.nets import NETS

NET = replace(NETS["digits"], rates=(1.0, 1.0), steps=60, pace_s=0.02, slots_s=(1.0,))


def test_a_table_has_what_jobs_wrote_of_their_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SEEDS", (1,))
    NET.write(tmp_path / "digits.npz")
    _, _, one, two = timing.timing(NET, tmp_path / "digits.npz").splitlines()
    assert one.split("|")[3:5] == [" 1.00 ", "  "]
    name, seconds, _, averaging, accuracy = (cell.strip() for cell in two.split("|")[1:-1])
    assert name == "2 copies, slots of 1 s"
    assert float(seconds) >= 60 / 2 * 0.02
    assert 0 < float(averaging.split()[0]) < float(seconds)
    assert float(accuracy.rstrip("%")) > 30
