"""The study of segments: what is measured of a run, and the tables."""

from analysis.studies.segments import (
    BASE,
    FREE,
    VARIANTS,
    SegmentRun,
    SegmentSite,
    results_table,
    simulate_variant,
)
from dally.jobs.knowledge import Knowledge

SMALL = SegmentSite("gb200-1152", 60, 512, 2.0)


def test_a_static_rule_holds_gpus_idle_that_jobs_without_segments_use() -> None:
    """One seed; on how much, see docs/results/segments.md."""
    static, free = (simulate_variant(variant, SMALL, Knowledge.LIMITS, 3) for variant in (BASE, FREE))
    assert 0 < static.occupancy <= free.occupancy <= 1
    assert static.large_jct_s >= free.large_jct_s > 0
    assert free.lost > -0.01


def test_the_table_has_each_variant_and_differences_from_slurms_static_rule() -> None:
    slow, fast = SegmentRun(200, 2000, 50, 0.0, 0.8), SegmentRun(100, 500, 50, 0.012, 0.9)
    rows = results_table({each: [slow if each == BASE else fast] * 2 for each in VARIANTS}).splitlines()
    assert len(rows) == 2 + len(VARIANTS)
    assert rows[2].startswith("| `slurm` | static | nothing | 80.0 ±0.0 % | 33.3 min |  | ")
    assert rows[3].startswith("| `slurm` | none | nothing | 90.0 ±0.0 % | 8.33 min | -75 ±0 % | ")
    assert rows[3].endswith("| -50 ±0 % | +1.20 |")
