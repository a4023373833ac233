"""Which order of machines gives a step least to send between racks, by profile and by plan."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.cluster.rank_order import orders_by_axis
from dally.cluster.toml_writer import write_toml
from dally.commands import main
from dally.jobs.parallelism import Axis, Parallelism
from dally.profiles.events import Event
from dally.profiles.files import write_profile
from dally.profiles.iteration import predict
from dally.profiles.parallel.rank_choice import fastest_order, step_in_order
from dally.profiles.parallel.rank_placement import RankPlacement
from dally.testing.worlds import racks
from tests.dally.profiles.test_event_iteration import DATA, MB, TENSOR, TOPOLOGY, profile

HEAVY = {"tp": replace(TENSOR, bytes=9 * MB), "dp": replace(DATA, bytes=9 * MB)}
"""What one axis sends of which the other sends little."""

LIGHT = {"tp": DATA, "dp": TENSOR}
BY_RACK, IN_TURNS = (0, 1, 2, 3), (0, 2, 1, 3)
WANTED = {"tp": BY_RACK, "dp": IN_TURNS}


@pytest.mark.parametrize("axis", HEAVY)
@pytest.mark.parametrize("given", [BY_RACK, IN_TURNS])
def test_the_axis_that_sends_most_lies_in_racks(axis: str, given: tuple[int, ...]) -> None:
    known = profile(*_events(axis))
    shape = TOPOLOGY.shape(tuple((machine, 1) for machine in range(4)))

    def step_s(ranks: RankPlacement) -> float:
        return predict(known, shape, ranks=ranks).iteration_s

    order = fastest_order(TOPOLOGY, given, Parallelism.parse("tp=2,dp=2"), 1, step_s)
    took = {each: step_in_order(TOPOLOGY, each, 1, step_s) for each in (BY_RACK, IN_TURNS)}
    assert order == WANTED[axis]
    assert took[order] == min(took.values()) < max(took.values())


def _events(axis: str) -> tuple[Event, Event]:
    first, second = sorted((HEAVY[axis], LIGHT[axis]), key=lambda event: event.ready_s)
    return first, second


@pytest.mark.parametrize(
    ("plan", "each", "orders"),
    [
        ("tp=2,dp=2", 1, {"tp": BY_RACK, "dp": IN_TURNS}),
        ("tp=16,dp=2", 8, {"tp": BY_RACK, "dp": IN_TURNS}),
        ("tp=8,dp=2,pp=2", 8, {"dp": BY_RACK, "pp": IN_TURNS}),
        ("tp=8,pp=4", 8, {"pp": BY_RACK}),
        ("tp=3,dp=4", 3, {"dp": BY_RACK}),
    ],
)
def test_each_axis_that_leaves_machines_has_an_order(
    plan: str, each: int, orders: Mapping[str, tuple[int, ...]]
) -> None:
    topology = racks([[8, 8], [8, 8]])
    assert dict(orders_by_axis(topology, IN_TURNS, Parallelism.parse(plan), each)) == orders


def test_an_axis_whose_groups_do_not_come_out_even_has_none() -> None:
    """Eight ranks of tp lie on three machines of three, and there are eight machines."""
    orders = dict(orders_by_axis(racks([[8] * 4] * 2), range(8), Parallelism.parse("tp=8,dp=3"), 3))
    assert orders.keys() == {"dp"}
    assert sorted(orders[Axis.DATA]) == [*range(8)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "cluster.toml").write_text(write_toml(TOPOLOGY))
    for axis in HEAVY:
        write_profile(profile(*_events(axis)), tmp_path / f"{axis}.json")
    return tmp_path


def said(files: Path, *arguments: str) -> tuple[int, str, str]:
    nodes = ",".join(machine.name for machine in TOPOLOGY.machines)
    words = ["rank-order", f"--cluster={files / 'cluster.toml'}", f"--nodes={nodes}", *arguments]
    done = CliRunner().invoke(main, words)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("axis", "order", "told"),
    [
        ("tp", "n00,n01,n10,n11\n", "a step is expected to take 19.5 s, 19.5 s by name\n"),
        ("dp", "n00,n10,n01,n11\n", "a step is expected to take 15.3 s, 77.6 s by name\n"),
    ],
)
def test_rank_order_goes_by_the_profile_of_a_record(files: Path, axis: str, order: str, told: str) -> None:
    code, printed, beside = said(files, f"--profile={files / axis}.json")
    assert (code, printed) == (0, order)
    assert beside == told


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--model=llama3-8b"], "--model and --global-batch go together"),
        (
            ["--model=llama3-8b", "--global-batch=8", "--profile=x"],
            "--profile and --model exclude each other",
        ),
        (
            ["--plan=dp=4", "--profile=x"],
            "--profile and --plan, as it has one of its own, exclude each other",
        ),
        (["--profile=nowhere.json"], "nowhere.json"),
        (["--profile=testbed"], "testbed is not the profile of one record; name the file of one"),
    ],
)
def test_what_gives_no_step_is_one_line(files: Path, arguments: list[str], line: str) -> None:
    code, _, told = said(files, *arguments)
    assert code != 0
    assert line in told
