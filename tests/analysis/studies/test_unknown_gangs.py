"""The study of rules for gangs without a profile, on gangs that are made up."""

import random
from pathlib import Path

import pytest

from analysis.studies.unknown_gangs import (
    ASSUMED,
    RULES,
    PlacedGang,
    measured_by_deepshare,
    predicted,
    random_placements,
    scores,
)
from dally.cluster import load_cluster
from dally.jobs.job import Job
from dally.profiles.costs import CostModel

CLUSTER = "ethernet-512"


@pytest.mark.parametrize("learns", [False, True])
def test_costs_without_a_profile_follow_the_rule_of_levels_and_machines(learns: bool) -> None:
    topology, job = load_cluster(CLUSTER), Job("a", 0, 8, 1, model="nobody-knows")
    costs = CostModel(topology, None, assumed_slowdown=ASSUMED, learns=learns)
    places = random_placements(topology, 8, random.Random(1))
    assert len({len(place) for place in places}) > 2
    for place in places:
        placed = PlacedGang(topology.level_of(place), len(place), 1.0)
        assert costs.cost(job, place).slowdown == pytest.approx(RULES["levels and machines"](placed))


def test_rules_are_held_against_slowdowns() -> None:
    near, two, four = PlacedGang(0, 1, 1.0), PlacedGang(1, 2, 1.2), PlacedGang(1, 4, 1.375)
    assert tuple(scores([[near, two, four]])) == ("2", "3", "7%", "83%", "2%", "100%")


def test_gangs_that_were_never_close_tell_of_pairs_alone(tmp_path: Path) -> None:
    file = tmp_path / "isolated_thp.csv"
    file.write_text(',isol_thp\n"moe,8,2",45\n"moe,8,4",30\n"moe,8,8",29\n')
    gangs = list(measured_by_deepshare(file))
    assert [[placed.machines for placed in gang] for gang in gangs] == [[2, 4, 8]]
    assert tuple(scores(gangs)) == ("0", "2", "", "50%", "", "100%")


def test_predicted_gangs_are_slower_where_they_are_farther_apart() -> None:
    job = Job("a", 0, 16, 1, model="vgg11")
    (gang,) = predicted("docs/studies/clusters/ethernet-64.toml", "realistic", [job], 1)
    near = [placed.slowdown for placed in gang if not placed.farther]
    far = [placed.slowdown for placed in gang if placed.farther]
    assert max(near) < max(far)
