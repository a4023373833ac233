"""The comparison of forked training: copies and one copy have the same net, samples and steps."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.studies import forked_training
from analysis.studies.forked_training import DOCUMENT, NETS, VARIANTS, Study, Variant, averaging, timing
from dally.markdown import replace_section
from tests.workloads.ranks import preloaded
from workloads.group import Group, join, leave
from workloads.settings import Backend

NET = replace(NETS["digits"], rates=(1.0, 1.0), steps=60, pace_s=0.02, slots_s=(1.0,))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    monkeypatch.delenv("RANK", raising=False)
    yield join(Backend.GLOO, 30.0)
    leave()


def test_one_forked_copy_is_one_copy_to_the_bit_and_two_are_not(group: Group, tmp_path: Path) -> None:
    NETS["digits"].write(tmp_path / "digits.npz")
    study = Study(NETS["digits"], tmp_path / "digits.npz", group)
    alone = study.score(Variant("", slot_s=None), 24, 1)
    assert study.score(Variant("", slot_s=8.0, rates=(1.0,)), 24, 1) == alone
    two = study.score(Variant("", slot_s=8.0, rates=(1.0, 1.0)), 24, 1)
    assert two.samples == alone.samples
    assert two.loss != alone.loss


def test_every_net_has_variants_and_places_for_its_tables() -> None:
    assert set(VARIANTS) == set(NETS)
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in NETS:
        for what in ("quality", "time"):
            text = replace_section(text, f"forked-{what}-{name}", "")
    assert replace_section(text, "forked-averaging", "")


def test_what_averaging_takes_grows_with_the_model(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_training, "SIZES", {"resnet8": None, "resnet18": 64})
    _, _, small, large = averaging(group).splitlines()
    seconds = [float(row.split("|")[-2]) for row in (small, large)]
    assert 0 < seconds[0] < seconds[1]


def test_a_table_has_what_jobs_wrote_of_their_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_training, "SEEDS", (1,))
    NET.write(tmp_path / "digits.npz")
    with preloaded(tmp_path / "here"):
        _, _, one, two = timing(NET, tmp_path / "digits.npz").splitlines()
    assert one.split("|")[3:5] == [" 1.00 ", "  "]
    name, seconds, _, averaging, accuracy = (cell.strip() for cell in two.split("|")[1:-1])
    assert name == "2 copies, slots of 1 s"
    assert float(seconds) >= 60 / 2 * 0.02
    assert 0 < float(averaging.split()[0]) < float(seconds)
    assert float(accuracy.rstrip("%")) > 30
