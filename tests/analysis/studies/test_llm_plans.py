"""The study of parallel plans: what rows believe, what names cost, and what its figures count."""

import re
from dataclasses import replace
from pathlib import Path

from analysis.studies.llm_plans import (
    AWARE,
    BASE,
    BLIND,
    CLASSES,
    VARIANTS,
    LlmSite,
    believed_costs,
    classes_table,
    dealt_names,
    draw,
    results_table,
    simulate_variant,
    with_ranks_by_name,
)
from dally.cluster import load_cluster
from dally.jobs.job import Job
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.costs import CostModel
from dally.traces import load_trace

EXPERTS = Job(
    "moe",
    0,
    128,
    1000,
    model="qwen3-30b-a3b",
    plan=TrainingPlan.parse("dp=128,ep=16,zero=1,sequence=4096"),
    batch=1024,
)
FAR = tuple((machine, 4) for machine in range(0, 64, 2))
SITE = LlmSite("ethernet-512", "kalos-like:jobs=150,most_gpus=64,load=2,cluster_gpus=512", 5)


def test_who_knows_no_plan_takes_all_placements_as_alike_or_levels_at_a_price() -> None:
    cluster = load_cluster("ethernet-512")
    assert CostModel(cluster).cost(EXPERTS, FAR).slowdown > 1.5
    assert believed_costs("plans", cluster) is None
    alike, by_level = believed_costs("nothing", cluster), believed_costs("1.25", cluster)
    assert alike is not None
    assert by_level is not None
    assert alike.cost(EXPERTS, FAR).slowdown == 1
    scattered = tuple((machine, 1) for machine in range(64))
    small = replace(EXPERTS, gpus=64, plan=TrainingPlan.parse("dp=64,ep=16,zero=1,sequence=4096"))
    apart = by_level.cost(small, scattered)
    assert apart.slowdown == 1 + 0.25 * 2 * 63 / 64, "one level farther, on 64 machines"


def test_dealt_names_keep_the_machines_and_give_neighbours_to_different_racks() -> None:
    named = load_cluster("ethernet-512")
    dealt = dealt_names(named)
    assert sorted(each.name for each in dealt.machines) == sorted(each.name for each in named.machines)
    assert [each.name for each in dealt.machines[:3]] == ["h100-01", "h100-09", "h100-17"]
    assert [each.name for each in dealt.domains[:3]] == ["h100-01", "h100-09", "h100-17"]
    assert dealt.ancestors == named.ancestors


def test_names_that_go_round_over_racks_cost_experts_time_on_ethernet_and_none_on_infiniband() -> None:
    plain = replace(EXPERTS, job_id="plain", model="", plan=None, batch=None)
    for fabric, low, high in (("ethernet-512", 1.2, 2.0), ("infiniband-512", 1.0, 1.001)):
        named = load_cluster(fabric)
        experts, other = with_ranks_by_name([EXPERTS, plain], named, dealt_names(named))
        assert low <= experts.duration_s / EXPERTS.duration_s <= high
        assert other == plain


def test_every_plan_is_of_one_class_by_axes_and_of_one_by_gpus() -> None:
    by_axes, by_gpus = list(CLASSES)[:4], list(CLASSES)[4:]
    jobs = [job for job in load_trace("kalos-like:jobs=3000,most_gpus=256", seed=1).jobs if job.plan]
    for job in jobs:
        assert [sum(CLASSES[name](job) for name in names) for names in (by_axes, by_gpus)] == [1, 1]
    assert all(any(CLASSES[name](job) for job in jobs) for name in CLASSES)


def test_the_tables_and_the_figure_hold_all_rows(tmp_path: Path) -> None:
    found = {variant: [simulate_variant(variant, SITE)] for variant in (BASE, AWARE, BLIND, VARIANTS[-1])}
    for runs in found.values():
        assert 0 < runs[0].occupancy <= 1
        assert runs[0].stretch >= 1
        assert runs[0].jct_s[0] < runs[0].jct_s[1]
    text = results_table(found)
    assert re.search(r"\| `slurm` \| nothing \| [^|]+ \|  \|", text)
    assert "`srsf-delay` | plans, names over racks" in text
    assert len(classes_table(found).splitlines()) == 2 + len(found)
    draw({"Ethernet": found, "InfiniBand": found}, tmp_path / "plans.png")
    assert (tmp_path / "plans.png").stat().st_size > 10_000
