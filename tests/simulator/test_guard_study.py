"""The study of the guard: its rows, and clusters of so many GPUs."""

import pytest

from simulator.guard_study import SETS, Setting, cluster, figures, rows, run


def test_a_cluster_is_a_number_of_gpus_or_a_shipped_one() -> None:
    assert (cluster("64").gpus, cluster("dally-128").gpus) == (64, 128)


def test_figures_are_of_waits_in_order() -> None:
    setting = Setting("poisson:jobs=60,load=0.9,cluster_gpus=16,gpus=1:9/16:1,max_s=5000", "16")
    mean_s, wait_s, p50, p90, p95, p99, longest, starved, makespan_s, _ = figures(
        run("srsf-delay", setting, 1)
    )
    assert p50 <= p90 <= p95 <= p99 <= longest < makespan_s
    assert (wait_s < mean_s, 0 <= starved <= 1) == (True, True)


def test_rows_say_how_much_a_policy_differs_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting("poisson:jobs=40,load=0.9,cluster_gpus=16,gpus=1:9/16:1,max_s=5000", "16")
    monkeypatch.setattr("simulator.guard_study.SETTINGS", {"tiny": setting})
    first, second = rows("tiny", ["srsf-delay", "srsf-delay"], [1])
    assert (first[:2], "(" in first[2]) == (["tiny", "`srsf-delay`"], False)
    assert second[2] == f"{first[2]} (+0.0%)"


def test_tuning_and_report_have_no_setting_in_common() -> None:
    assert not set(SETS["tuning"].values()) & set(SETS["report"].values())
