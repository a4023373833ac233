"""Jobs are simulated at the pace of their best placement, with the models that their names or a mix tell."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.advise.naming import NamingRules
from analysis.advise.site import (
    ALL,
    HIGH,
    LOW,
    MIDDLE,
    TOLD,
    ModelAssumption,
    cases,
    sensitivities,
    without_too_large,
)
from dally.errors import CapacityError, InputError
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from tests.analysis.advise.histories import Row, read, site, small_cluster

PROFILES = load_profiles("dally")
VGG = ModelAssumption(TOLD, "vgg11=1")


def test_nodes_tell_the_placement(tmp_path: Path) -> None:
    rows = [
        Row(0, 0, 9, 3, nodes="r0m0,r1m1"),
        Row(0, 0, 9, 2, nodes="r0m1"),
        Row(0, 0, 9, 4, nodes="r0m0"),
        Row(0, 0, 9, 1, nodes="r0m[0-1]"),
        Row(0, 0, 9, 2, nodes="elsewhere"),
        Row(0, 0, 9, 2),
    ]
    here = site(tmp_path, rows)
    places = [here.real_placement(past) for past in here.history.jobs]
    assert places == [((0, 2), (3, 1)), ((1, 2),), None, None, None, None]
    assert here.located() == 2


def test_what_the_network_cost_a_job_is_taken_out_of_its_time(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 100, 2, nodes="r0m0,r1m0"), Row(0, 0, 100, 2)], PROFILES)
    far, unknown = here.under(VGG).jobs
    cost = CostModel(here.topology, PROFILES).cost(far, ((0, 1), (2, 1)))
    assert cost.slowdown > 1
    assert far.duration_s == pytest.approx(100 / cost.slowdown)
    assert unknown.duration_s == 100
    assert [job.duration_s for job in here.as_it_was().jobs] == [100, 100]


def test_names_come_before_the_mix(tmp_path: Path) -> None:
    rows = [Row(0, 0, 9, name="bert-1"), Row(0, 0, 9, name="resnet50"), Row(0, 0, 9, name="other")]
    here = site(tmp_path, rows, PROFILES, NamingRules({"bert*": "bert-large"}))
    assert [job.model for job in here.under(VGG).jobs] == ["bert-large", "resnet50", "vgg11"]
    assert here.named() == 2


def test_low_and_high_are_the_halves_of_the_mix_that_distance_costs_least_and_most(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 9)], PROFILES)
    slowdowns = sensitivities(here, ["resnet50", "vgg11"])
    least, most = sorted(slowdowns, key=lambda model: slowdowns[model])
    found = cases(here, f"{least}=3,{most}=1", 1)
    assert [case.name for case in found] == [MIDDLE, LOW, HIGH]
    assert found[1].mix == f"{least}=0.5"
    assert found[2].mix == f"{most}=0.25,{least}=0.25"


def test_each_case_is_drawn_with_each_seed_the_middle_first(tmp_path: Path) -> None:
    found = cases(site(tmp_path, [Row(0, 0, 9)], PROFILES), ALL, 2)
    assert [(case.name, case.seed) for case in found[:3]] == [(MIDDLE, 1), (MIDDLE, 2), (LOW, 1)]
    assert len(found) == 6


def test_nothing_is_drawn_without_profiles_or_if_all_is_told(tmp_path: Path) -> None:
    assert cases(site(tmp_path, [Row(0, 0, 9)]), ALL, 3) == [ModelAssumption(TOLD)]
    assert cases(site(tmp_path, [Row(0, 0, 9, name="vgg11")], PROFILES), ALL, 3) == [ModelAssumption(TOLD)]


def test_models_that_nobody_named_are_not_drawn_unasked(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 9, 2), Row(0, 0, 9, 2, name="vgg11"), Row(0, 0, 9)], PROFILES)
    (case,) = cases(here, None, 3)
    assert [job.model for job in here.under(case).jobs] == ["", "vgg11", ""]
    assert here.unknown(case) == 1
    (drawn, *_) = cases(here, ALL, 1)
    assert here.unknown(drawn) == 0


def test_a_mix_of_unknown_models_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no profile of gpt; there are .*vgg11"):
        cases(site(tmp_path, [Row(0, 0, 9)], PROFILES), "gpt=1", 1)


def test_jobs_larger_than_the_cluster_are_told_or_left_out(tmp_path: Path) -> None:
    history = read(tmp_path, [Row(0, 0, 9, 9), Row(0, 0, 9, 8)])
    with pytest.raises(CapacityError, match="job 1: a gang of 9 GPUs does not fit"):
        without_too_large(history, small_cluster(), skip=False)
    kept = without_too_large(history, small_cluster(), skip=True)
    assert ([past.job.job_id for past in kept.jobs], kept.too_large) == (["2"], 1)
    with pytest.raises(InputError, match="can hold none of 1 job"):
        without_too_large(read(tmp_path, [Row(0, 0, 9, 9)]), small_cluster(), skip=True)


def test_a_job_may_use_the_nodes_of_the_partition_in_which_it_ran(tmp_path: Path) -> None:
    racks = {"near": frozenset({"r0m0", "r0m1"}), "all": frozenset(small_cluster().machine_index)}
    cluster = replace(small_cluster(), partitions=racks)
    history = read(tmp_path, [Row(0, 0, 9, partition="near"), Row(0, 0, 9, partition="all"), Row(0, 0, 9)])
    kept = without_too_large(history, cluster, skip=False)
    assert [past.job.machines for past in kept.jobs] == [racks["near"], None, None]
    here = replace(site(tmp_path, [Row(0, 0, 9)]), topology=cluster, history=kept)
    assert [job.machines for job in here.as_it_was().jobs] == [racks["near"], None, None]
    old = read(tmp_path, [Row(0, 0, 9, partition="old"), Row(0, 0, 9, partition="near")])
    with pytest.raises(
        CapacityError, match="job 1: partition 'old' has no machine of the cluster; known: all, near"
    ):
        without_too_large(old, cluster, skip=False)
    assert without_too_large(old, cluster, skip=True).too_large == 1
