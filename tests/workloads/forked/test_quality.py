"""The comparison of forked training: copies and one copy have the same net, samples and steps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.markdown import replace_section
from workloads.forked.averaging_time import averaging
from workloads.forked.nets import NETS
from workloads.forked.quality import DOCUMENT, VARIANTS, Study, Variant
from workloads.group import Group, join, leave
from workloads.settings import Backend


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
    monkeypatch.setattr("workloads.forked.averaging_time.SIZES", {"resnet8": None, "resnet18": 64})
    _, _, small, large = averaging(group).splitlines()
    seconds = [float(row.split("|")[-2]) for row in (small, large)]
    assert 0 < seconds[0] < seconds[1]
