"""The study of segments: what is measured of a run, and the tables."""

from dataclasses import replace

from analysis.studies.segments import (
    BASE,
    BRIEF,
    FREE,
    VARIANTS,
    SegmentRun,
    SegmentSite,
    results_table,
    simulate_variant,
    spare_machines,
    spares_table,
)
from dally.cluster import load_cluster
from dally.jobs.knowledge import Knowledge

SMALL = SegmentSite("gb200-1152", 60, 512, 2.0)


def test_a_static_rule_holds_gpus_idle_that_jobs_without_segments_use() -> None:
    """One seed; on how much, see docs/results/segments.md."""
    static, free = (simulate_variant(variant, 3, SMALL, Knowledge.LIMITS) for variant in (BASE, FREE))
    assert 0 < static.occupancy <= free.occupancy <= 1
    assert static.large_jct_s >= free.large_jct_s > 0
    assert free.lost > -0.01


def test_the_table_has_each_variant_and_differences_from_slurms_static_rule() -> None:
    slow, fast = SegmentRun(200, 2000, 50, 0.0, 0.8), SegmentRun(100, 500, 50, 0.012, 0.9)
    rows = results_table({each: [slow if each == BASE else fast] * 2 for each in VARIANTS}).splitlines()
    assert len(rows) == 2 + len(VARIANTS)
    assert rows[2].startswith("| `slurm` | static | nothing | 80.0 ±0.0 % | -10.0 ±0.0 | 33.3 min |  | ")
    assert rows[3].startswith("| `slurm` | none | nothing | 90.0 ±0.0 % |  | 8.33 min | -75 ±0 % | ")
    assert rows[3].endswith("| -50 ±0 % | +1.20 |")


def test_the_brief_table_leaves_out_what_it_has_no_row_to_compare_with() -> None:
    rows = results_table({each: [SegmentRun(200, 2000, 50, 0.0, 0.8)] for each in BRIEF}).splitlines()
    assert len(rows) == 2 + len(BRIEF)
    assert rows[2].startswith("| `slurm` | static | nothing | 80.0 % |  | 33.3 min |  | ")
    assert rows[3].startswith("| `srsf-delay` | static | plans | 80.0 % | +0.0 | 33.3 min | +0 % | ")


def test_spare_machines_are_as_many_of_each_rack_and_their_gpus_do_not_count_as_idle() -> None:
    topology = load_cluster("gb200-1152")
    racks = [topology.ancestors[outage.machine][1] for outage in spare_machines(topology, 2)]
    assert sorted(racks) == sorted([*{*racks}] * 2)
    assert len({*racks}) == 16
    busy = SegmentSite("gb200-1152", 300, 128, 10.0)
    full = simulate_variant(replace(FREE, down=12), 3, busy, Knowledge.LIMITS)
    assert 0.5 < full.occupancy <= 1


def test_the_table_of_spare_machines_says_what_leaving_segments_away_gives() -> None:
    static, free = SegmentRun(200, 2000, 50, 0.0, 0.8), SegmentRun(200, 1000, 50, 0.0, 0.85)
    runs = {
        replace(each, down=down): [each_run] * 2
        for down in (0, 2)
        for each, each_run in ((BASE, static), (FREE, free))
    }
    rows = spares_table(runs).splitlines()
    assert rows[2:] == [
        f"| `slurm` | {down} | 80.0 ±0.0 % | 85.0 ±0.0 % | +5.0 ±0.0 | -50 ±0 % |" for down in (0, 2)
    ]
