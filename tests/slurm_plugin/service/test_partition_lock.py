"""Two controllers with folders of their own over one Slurm: the second does not start."""

from pathlib import Path

import pytest

from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.service.partition_lock import AHEAD_S, PREFIX, SILENT_S, OccupiedError
from tests.slurm_plugin.daemons import DaemonSite
from tests.slurm_plugin.fake_reservations import FakeReservations, RefusedError


@pytest.fixture
def first(tmp_path: Path) -> DaemonSite:
    (tmp_path / "first").mkdir()
    return DaemonSite(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path, first: DaemonSite) -> DaemonSite:
    """Another one over the same Slurm, with a state folder of its own, whose clock is that of the first."""
    (tmp_path / "second").mkdir()
    return DaemonSite(tmp_path / "second", first.slurm)


def locks(site: DaemonSite) -> list[Reservation]:
    return [each for each in site.slurm.reservations() if each.name.startswith(PREFIX)]


def test_the_second_controller_of_a_partition_names_the_first_and_ends(
    first: DaemonSite, second: DaemonSite
) -> None:
    job = first.submit(gpus_per_node=8, held=False)

    def start_another() -> None:
        second.now_s = first.now_s
        with pytest.raises(OccupiedError, match="partition gpu, on host") as refused:
            second.run()
        assert locks(first)[0].name in str(refused.value)

    first.run(start_another, lambda: None)
    assert first.states() == {job: "RUNNING"}
    assert not second.events("start")


def test_a_controller_that_ended_leaves_the_partition_to_the_next_at_once(
    first: DaemonSite, second: DaemonSite
) -> None:
    first.run()
    assert locks(first) == []
    second.now_s = first.now_s
    second.run(lambda: None)
    assert second.events("cluster")


def killed(site: DaemonSite) -> None:
    """Its controller is gone, and what it said in Slurm is still there."""
    daemon = site.start(lambda: None)
    daemon._cycle()
    daemon._journal.close()


def test_a_dead_controller_is_replaced_after_a_while(first: DaemonSite, second: DaemonSite) -> None:
    killed(first)
    (left,) = locks(first)
    second.now_s = first.now_s + SILENT_S - 1
    with pytest.raises(OccupiedError):
        second.run()
    second.now_s = first.now_s + SILENT_S + 1
    killed(second)
    (taken,) = locks(second)
    assert taken.name != left.name


def test_the_same_controller_comes_back_at_once(first: DaemonSite) -> None:
    killed(first)
    first.run()
    assert first.events("controller_ends")


def test_one_that_was_replaced_while_it_stood_still_ends(first: DaemonSite, second: DaemonSite) -> None:
    def frozen() -> None:
        first.now_s += SILENT_S + 1
        second.now_s = first.now_s
        killed(second)

    with pytest.raises(OccupiedError):
        first.run(frozen, lambda: None)


def test_a_sign_of_life_is_renewed_and_keeps_nobody_out(first: DaemonSite) -> None:
    starts: list[float] = []

    def look() -> None:
        first.now_s += 40.0
        starts.append(locks(first)[0].start_s - AHEAD_S)

    first.run(look, look, look)
    assert starts[0] < starts[1] < starts[2]


def test_a_shadow_takes_no_partition(first: DaemonSite, second: DaemonSite) -> None:
    second.mode = ControllerMode(shadow=True)

    def watch() -> None:
        second.now_s = first.now_s
        second.run()
        assert len(locks(first)) == 1

    first.run(watch)


def test_without_the_right_to_reserve_it_says_so_once_and_goes_on(
    first: DaemonSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeReservations, "run", refuse)
    job = first.submit(gpus_per_node=8)
    first.run(*[lambda: None] * 3)
    assert [event["reason"] for event in first.events("no_partition_lock")] == ["Access/permission denied"]
    assert first.states() == {job: "RUNNING"}


def refuse(*_: object) -> None:
    raise RefusedError("Access/permission denied")


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_a_living_controller_keeps_its_partition_from_one_whose_clock_is_wrong(
    first: DaemonSite, second: DaemonSite, ahead_s: float
) -> None:
    second.ahead_s = ahead_s

    def start_another() -> None:
        second.now_s = first.now_s
        with pytest.raises(OccupiedError):
            second.run(lambda: first_goes_on(), lambda: None)

    def first_goes_on() -> None:
        first.now_s = second.now_s
        assert first.daemon is not None
        first.daemon._cycle()

    first.run(start_another)
    assert not second.events("start")


def test_a_controller_whose_clock_was_wrong_keeps_giving_signs_of_life(
    first: DaemonSite, second: DaemonSite
) -> None:
    signs: list[float] = []

    def look() -> None:
        first.now_s, first.ahead_s = first.now_s + 40.0, 0.0
        signs.append(locks(first)[0].start_s)

    first.ahead_s = 3600.0
    first.run(look, look, look, look)
    assert len({*signs}) == 4
